#!/usr/bin/env bash
# Tests the commit, tags it, builds the packages and runs the drill with them: `make release`.
#
# The version is that of Sources/Base/TextFormats/ProgramVersion.swift. The tag is set before the packages are built,
# because only tagged packages have the plain version, and removed if a later step fails. Nothing is pushed.

set -euo pipefail
cd "$(dirname "$0")/.."

refuse() {
    echo "release.sh: $1" >&2
    exit 1
}

version=$(sed -n 's/^ *package static let version = "\([^"]*\)"$/\1/p' Sources/Base/TextFormats/ProgramVersion.swift)
[ -n "$version" ] || refuse 'Sources/Base/TextFormats/ProgramVersion.swift contains no version'
tag=v$version
[ -z "$(git status --porcelain)" ] || refuse 'there are uncommitted changes: commit or stash them first'
! git rev-parse -q --verify "refs/tags/$tag" >/dev/null ||
    refuse "tag $tag exists: set the next version in Sources/Base/TextFormats/ProgramVersion.swift"
heading=$(grep -m 1 '^## ' CHANGELOG.md)
[[ $heading =~ ^"## $version ("[0-9]{4}-[0-9]{2}-[0-9]{2}")"$ ]] ||
    refuse "CHANGELOG.md begins with '$heading': it must be '## $version (YYYY-MM-DD)'"

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo env "PATH=$PATH")

make test-all
git tag -a "$tag" -m "spoolgate $version"
trap 'git tag -d "$tag"' EXIT
"${as_root[@]}" make dist
"${as_root[@]}" make drill DRILL_DEBS="$PWD/.build/dist" | tee .build/drill.log
! grep -q '^SKIPPED' .build/drill.log || refuse 'the drill was skipped: release on a machine that can run it'
trap - EXIT
echo "Created tag $tag and the files in .build/dist. To publish: git push origin $tag"
