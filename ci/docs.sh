#!/usr/bin/env bash
# Fails if docs/registers.md or docs/layouts.md is not what verbena-abi says. To write them: make docs
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
cargo run --quiet --profile test -p verbena-docs -- --check
