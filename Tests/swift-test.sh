#!/bin/bash
# Runs `swift test` with the given arguments, and repeats the failures at the end, because the output has thousands of
# lines about tests that passed.
set -euo pipefail
said=$(mktemp)
trap 'rm -f "$said"' EXIT
swift test "$@" 2>&1 | tee "$said" && exit
code=$?
echo "Failures:"
grep -E '^(✘|↳|error:)' "$said" || tail -n 50 "$said"
exit "$code"
