#!/usr/bin/env bash
# Lints of all crates and all targets; every warning is an error.
#
# The profile is that of the tests, so that the verilated models, which take most of the time, are built once for both.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
cargo clippy --version >/dev/null 2>&1 || { echo "error: clippy is missing: rustup component add clippy (Debian: apt-get install rust-clippy)" >&2; exit 1; }
cargo clippy --workspace --all-targets --profile test -- -D warnings
# A real card, which no other crate of the workspace builds. The feature is for x86-64 Linux alone.
if [ "$(uname -sm)" = "Linux x86_64" ]; then
    cargo clippy -p verbena-host --features vfio --all-targets --profile test -- -D warnings
    cargo clippy -p verbena-ndk --no-default-features --features vfio --lib --profile test -- -D warnings
fi
