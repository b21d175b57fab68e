#!/bin/bash
# `swift test` with these arguments. What failed is said again at the end, behind which thousands of
# lines about what passed would hide it.
set -euo pipefail
said=$(mktemp)
trap 'rm -f "$said"' EXIT
swift test "$@" 2>&1 | tee "$said" && exit
code=$?
echo "What failed:"
grep -E '^(✘|↳|error:)' "$said" || tail -n 50 "$said"
exit "$code"
