#!/usr/bin/env bash
# Runs all tests and counts them. Arguments go to `cargo test`, e.g.  ci/test.sh -p verbena-host
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
mkdir -p build
if [ $# -eq 0 ]; then set -- --workspace; fi
status=0
cargo test --no-fail-fast "$@" 2>&1 | tee build/test.log || status=$?
awk '
    /^test result: / {
        for (i = 1; i <= NF; i++) {
            if ($i ~ /^passed/) passed += $(i - 1)
            if ($i ~ /^failed/) failed += $(i - 1)
            if ($i ~ /^ignored/) ignored += $(i - 1)
        }
        programs++
    }
    /^test .* \.\.\. FAILED$/ { names = names "\n    " $2 }
    END {
        printf "\ntests: %d passed, %d failed, %d ignored, in %d programs%s\n", passed, failed, ignored, programs, names
    }
' build/test.log
exit "$status"
