#!/usr/bin/env bash
# Fails if a Rust source is not formatted. To format them: cargo fmt
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
cargo fmt --version >/dev/null 2>&1 || { echo "error: rustfmt is missing: rustup component add rustfmt (Debian: apt-get install rustfmt)" >&2; exit 1; }
cargo fmt --all --check
