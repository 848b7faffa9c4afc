#!/usr/bin/env bash
# Fails if docs/registers.md, docs/layouts.md or ndk/include/verbena_ndk.h is not what the sources say. To write them: make docs
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
cargo run --quiet --profile test -p verbena-docs -- --check
