#!/usr/bin/env bash
# Runs the models of posting, polling, flushing and closing (host/src/model.rs) under loom: every order of the threads' accesses.
# In a folder of its own, since the flag would have everything else built anew.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
# The release profile: there are many orders.
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" cargo test --quiet --release -p verbena-host --lib model::
