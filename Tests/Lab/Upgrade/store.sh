#!/usr/bin/env bash
# Stores spools of a commit in spools/, for the tests that serve them (README.md): a spool with uploads in every state,
# whose daemon was killed during its work, a description of its uploads, and a spool for each state of
# spoolgate-spool(5).
#
# usage: store.sh COMMIT

set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
commit=${1:?usage: store.sh COMMIT}
name=$(git -C "$root" rev-parse --short=7 "$commit^{commit}")

program=$("$root/Tests/Lab/Upgrade/previous.sh" "$commit")
(cd "$root" && swift build --build-tests &&
    SPOOLGATE_PREVIOUS=$program SPOOLGATE_STORE=$name \
        swift test --skip-build --filter 'EndToEndTests.UpgradeBuildTests/store')

sources=$("$root/Tests/Lab/Upgrade/previous.sh" "$commit" tests)
# The directory of temporary spools, which are moved.
memory=/dev/shm
[ -w "$memory" ] || memory=${TMPDIR:-/tmp}
states=$(mktemp -d "$memory/spoolgate-states-XXXXXX")
trap 'rm -rf "$states"' EXIT
(cd "$sources" && SPOOLGATE_STATES=$states swift test --skip-build --filter 'SpoolTests.ExportStates')
tar -cJf "$root/Tests/Lab/Upgrade/spools/$name-states.tar.xz" --sort=name --owner=0 --group=0 --numeric-owner \
    -C "$states" .
ls -l "$root/Tests/Lab/Upgrade/spools"
