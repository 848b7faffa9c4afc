#!/usr/bin/env bash
# Sees to it that everything is there that a build needs. Takes no time if it is.
#
#   ci/setup.sh          for `make demo` and `make test`
#   ci/setup.sh synth    also what `make synth` needs
#
# On Debian and Ubuntu it installs what is missing if it may: as root, or with a sudo that asks for no password.
# Otherwise it says what to install and exits with 1.
set -euo pipefail
cd "$(dirname "$0")/.."

PYOSYS=0.70
RUST=1.85
VERILATOR_MIN=5.006
verilator=${VERILATOR:-verilator}
export PATH="$HOME/.cargo/bin:$PATH"

has() { command -v "$1" >/dev/null 2>&1; }
has_header() { has g++ && echo "#include <$1>" | g++ -E -x c++ - >/dev/null 2>&1; }
# Tells whether version $1 is at least $2.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }
has_venv() { has python3 && python3 -c 'import ensurepip, venv' >/dev/null 2>&1; }

# What must be there, as names of Debian packages.
missing=()
has "$verilator" || missing+=(verilator)
has g++ || missing+=(g++)
has make || missing+=(make)
has perl || missing+=(perl)
has_header zlib.h || missing+=(zlib1g-dev)
has_header lz4.h || missing+=(liblz4-dev)
# CI looks at the Verilog with a newer Verilator, which comes as a package of Python's.
if [ "${1:-}" = synth ] || [ "${CI:-}" = true ]; then
    has python3 || missing+=(python3)
    has_venv || missing+=(python3-venv)
fi
# CI compiles the C consumer for Windows too.
if [ "${CI:-}" = true ]; then
    has x86_64-w64-mingw32-gcc || missing+=(gcc-mingw-w64-x86-64-win32)
fi
# What is good to have: tshark shows the capture of the demo and decodes frames in a test, valgrind counts the instructions of a post in
# another. The tests are left out without them, but not in CI.
optional=()
for tool in tshark valgrind; do
    if has "$tool"; then
        continue
    elif [ "${CI:-}" = true ]; then
        missing+=("$tool")
    else
        optional+=("$tool")
    fi
done

as_root=()
may_install=no
if has apt-get; then
    if [ "$(id -u)" = 0 ]; then
        may_install=yes
    elif has sudo && sudo -n true 2>/dev/null; then
        may_install=yes
        as_root=(sudo)
    fi
fi

updated=no
install() {
    echo "setup: installing $*"
    if [ "$updated" = no ]; then
        "${as_root[@]}" apt-get update -q >/dev/null
        updated=yes
    fi
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >/dev/null
}

if [ ${#missing[@]} -gt 0 ]; then
    if [ "$may_install" = yes ]; then
        install "${missing[@]}"
    else
        echo "error: something is missing, and this script may not install it. On Debian and Ubuntu, as root:" >&2
        echo "    apt-get update && apt-get install ${missing[*]} ${optional[*]}" >&2
        exit 1
    fi
fi
if [ ${#optional[@]} -gt 0 ] && [ "$may_install" = yes ]; then
    install "${optional[@]}" || echo "setup: going on without ${optional[*]}; what needs it (the demo's capture, a test) is left out" >&2
fi

version=$("$verilator" --version | awk '{ print $2 }')
if ! at_least "$version" "$VERILATOR_MIN"; then
    cat >&2 <<END
error: Verilator $VERILATOR_MIN or newer is needed, \`$verilator\` is $version.
Debian 12 and newer have one in the package \`verilator\`. Elsewhere: build it from its sources, and set the
variable VERILATOR to the program.
END
    exit 1
fi

# Debian 13 has rustup as a package; before that, it comes from its authors.
if ! has cargo && ! has rustup && [ "$may_install" = yes ] && apt-cache show rustup >/dev/null 2>&1; then
    install rustup
fi
if ! has cargo && has rustup; then
    rustup toolchain install stable --profile minimal --component rustfmt --component clippy
    rustup default stable
fi
if ! has cargo || ! cargo --version >/dev/null 2>&1; then
    cat >&2 <<END
error: Rust $RUST or newer is needed, and there is no cargo. Install it for this user, then run the command again:
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal --component rustfmt,clippy
(curl is in the package \`curl\`. On Debian 13: apt-get install rustup, then rustup default stable.)
END
    exit 1
fi
version=$(cargo --version | awk '{ print $2 }')
if ! at_least "$version" "$RUST"; then
    echo "error: Rust $RUST or newer is needed, cargo is $version. With rustup: rustup update stable && rustup default stable" >&2
    exit 1
fi

if [ "${1:-}" = synth ] && ! { [ -x .venv/bin/python ] && .venv/bin/python -c 'import pyosys' >/dev/null 2>&1; }; then
    echo "setup: installing pyosys $PYOSYS into .venv"
    python3 -m venv .venv
    if ! .venv/bin/pip install --quiet --disable-pip-version-check "pyosys==$PYOSYS"; then
        echo "error: pyosys could not be installed. By hand: .venv/bin/pip install pyosys==$PYOSYS" >&2
        exit 1
    fi
fi
