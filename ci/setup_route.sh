#!/usr/bin/env bash
# Sees to it that nextpnr for Xilinx' 7-series is there, which `make route` needs. Takes no time if it is.
#
# It takes the program that the variable NEXTPNR names, or else nextpnr-himbaechel-xilinx on PATH. Without either it makes
# a root of Debian's development release in build/route/sid and installs nextpnr there: half a gigabyte on disk,
# a minute or two. This needs root, debootstrap and unshare. Nothing is installed into the machine itself, and whatever
# is mounted is mounted in a mount namespace of its own, which ends with the command.
#
# To be rid of it: rm -rf build/route/sid
set -euo pipefail
cd "$(dirname "$0")/.."

SUITE=sid
PACKAGES=(nextpnr-himbaechel-xilinx nextpnr-himbaechel-xilinx-chipdb)
root=build/route/sid
log=build/route/setup.log

fail() {
    printf '%s\n' "error: $1" "${@:2}" >&2
    exit 1
}

if [ -n "${NEXTPNR:-}" ]; then
    command -v "$NEXTPNR" >/dev/null 2>&1 || fail "NEXTPNR is \`$NEXTPNR\`, which is no program"
    exit 0
fi
if command -v nextpnr-himbaechel-xilinx >/dev/null 2>&1 || [ -x "$root/usr/bin/nextpnr-himbaechel-xilinx" ]; then
    exit 0
fi

way_out='Or install nextpnr-himbaechel with its Xilinx databases yourself, and set the variable NEXTPNR to the program.'
[ "$(id -u)" = 0 ] || fail "nextpnr-himbaechel-xilinx is missing, and only root may make a Debian root for it: sudo $0" "$way_out"
for tool in debootstrap unshare; do
    command -v "$tool" >/dev/null 2>&1 ||
        fail "nextpnr-himbaechel-xilinx is missing, and so is $tool to make a Debian root for it: apt-get install debootstrap util-linux" "$way_out"
done
unshare --mount true 2>/dev/null || fail "nextpnr-himbaechel-xilinx is missing, and this root may not make a mount namespace, e.g. in a container" "$way_out"

mkdir -p build/route
# A tree that is not finished has another name, so the next run begins anew. Nothing is removed through a mount.
new=$root.new
if grep -qF " $(realpath -m "$new")" /proc/self/mounts; then
    fail "something is mounted below $new: unmount it first"
fi
rm -rf --one-file-system "$new"

# step WHAT COMMAND…: runs a command in a mount namespace of its own.
step() {
    local what=$1
    shift
    echo "setup: $what" >&2
    if ! unshare --mount --propagation private "$@" >>"$log" 2>&1; then
        tail -n 5 "$log" >&2
        fail "that failed; all that it said is in $log"
    fi
}

: >"$log"
step "making a Debian root in $root for nextpnr, half a gigabyte in the end" debootstrap --variant=minbase "$SUITE" "$new"
step "installing ${PACKAGES[*]} there" chroot "$new" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "${PACKAGES[@]}"
step "dropping what was fetched" chroot "$new" apt-get clean
mv "$new" "$root"
