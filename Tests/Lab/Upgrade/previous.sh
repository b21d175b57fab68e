#!/usr/bin/env bash
# Builds the program of a commit below .build/previous, once, and prints its path.
#
# usage: previous.sh COMMIT [tests]
#        (tests: also builds its tests, with ExportStates.swift.in among those of the spool, and prints the directory
#        of its sources instead)

set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
commit=$(git -C "$root" rev-parse --verify --quiet "${1:?usage: previous.sh COMMIT [tests]}^{commit}") || {
    echo "previous.sh: no commit $1 in this repository" >&2
    exit 66
}
sources=$root/.build/previous/$commit
program=$sources/.build/debug/spoolgate

if [ ! -d "$sources" ]; then
    mkdir -p "$sources.new"
    git -C "$root" archive "$commit" | tar -x -C "$sources.new"
    mv "$sources.new" "$sources"
fi
if [ "${2:-}" = tests ]; then
    cp "$root/Tests/Lab/Upgrade/ExportStates.swift.in" "$sources/Tests/SpoolTests/ExportStates.swift"
    (cd "$sources" && swift build --build-tests) >&2
    echo "$sources"
else
    [ -x "$program" ] || (cd "$sources" && swift build --product spoolgate) >&2
    echo "$program"
fi
