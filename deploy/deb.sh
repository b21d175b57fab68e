#!/usr/bin/env bash
# Packs the gateway and the client that `make build` has built, and the nginx module for the nginx that is installed,
# as Debian packages: `make deb`. usage: deb.sh [OUTPUT]        (OUTPUT: .build/deb)
#
# dh writes beside what it packs, and nginx's configure takes no path with a space, and one with ".S" or ".c" for a
# source's: both are packed in a temporary directory, of a name without a dot.

set -euo pipefail
tree=$(cd "$(dirname "$0")/.." && pwd)
output=${1:-$tree/.build/deb}

scratch=$(mktemp -d "${TMPDIR:-/tmp}/spoolgate-deb-XXXXXXXX")
trap 'rm -rf "$scratch"' EXIT

# The program says its version, and the packages have the same.
version=$(sed -n 's/^ *package static let version = "\([^"]*\)"$/\1/p' "$tree/Sources/Base/TextFormats/ProgramVersion.swift")
[ -n "$version" ] || {
    echo "deb.sh: Sources/Base/TextFormats/ProgramVersion.swift says no version" >&2
    exit 1
}

# Each commit after a release is a version of its own, or apt would install none but the first. The
# module is made for one nginx, whose version is part of its own.
describe() { # the changelog of a package, the end of its version
    local stamp='' date='' commit
    if commit=$(git -C "$tree" rev-parse --short HEAD 2>/dev/null); then
        date=$(git -C "$tree" log -1 --format=%cD)
        git -C "$tree" describe --exact-match --match 'v*' >/dev/null 2>&1 ||
            stamp=+$(TZ=UTC git -C "$tree" log -1 --format=%cd --date=format-local:%Y%m%d%H%M%S)
    fi
    sed -i -e "1s/([^)]*)/($version$stamp$2)/" \
        -e "s/^  \* .*/&\n  * Built from ${commit:-a source without its history}./" \
        -e "s/^\( -- .*>  \)\(.*\)/\1${date:-\\2}/" "$1"
}

mkdir "$scratch/spoolgate"
cp -R "$tree/deploy/debian" "$scratch/spoolgate/debian"
ln -s "$tree" "$scratch/spoolgate/tree"
cp -R "$tree/nginx/module" "$scratch/module"
describe "$scratch/spoolgate/debian/changelog" ''
describe "$scratch/module/debian/changelog" "+nginx$(
    PATH=$PATH:/usr/sbin nginx -v 2>&1 | sed 's|.*/\([0-9.]*\).*|\1|'
)"
for source in spoolgate module; do
    (cd "$scratch/$source" && dpkg-buildpackage -us -uc -b)
done
rm -rf "$output"
mkdir -p "$output"
mv "$scratch"/*.deb "$scratch"/*.changes "$scratch"/*.buildinfo "$output"
lintian --allow-root --fail-on error,warning "$output"/*.deb
ls "$output"/*.deb
