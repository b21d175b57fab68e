#!/bin/bash
# Builds a package that depends on a tag of the library (from a clone of the last commit) and on async-http-client, and
# runs its program, which docs/CLIENT.md shows, against the gateway. The library's dependencies are the checkouts of
# this build; SwiftPM fetches async-http-client.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -d "$root/.build/checkouts" ] || { echo "client-package.sh: run 'swift build' first" >&2; exit 1; }
git clone -q --no-hardlinks "$root" "$work/spoolgate"
# The last commit, as the release of its version.
version=$(sed -n 's/^ *package static let version = "\(.*\)"$/\1/p' "$root/Sources/Base/TextFormats/ProgramVersion.swift")
git -C "$work/spoolgate" tag -f "v$version" >/dev/null
cp -r "$root/Tests/ClientPackage" "$work/package"
cd "$work/package"
mirror() { swift package config set-mirror --original "$1" --mirror "file://$2" >&2; }
mirror https://example.org/spoolgate "$work/spoolgate"
for checkout in "$root"/.build/checkouts/*; do
    mirror "https://github.com/apple/$(basename "$checkout")" "$checkout"
done
swift build --disable-sandbox --product relay
cd "$root"
SPOOLGATE_RELAY=$work/package/.build/debug/relay swift test --filter '^EndToEndTests\.ClientProgramTests'
