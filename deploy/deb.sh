#!/usr/bin/env bash
# Packs the gateway and the client that `make build` has built, and the nginx module for the nginx that is installed,
# as Debian packages: `make deb`. usage: deb.sh [OUTPUT]        (OUTPUT: .build/deb)
#
# MAINTAINER names whoever answers for the packages. dh writes beside what it packs, and nginx's configure takes no path
# with a space, and one with ".S" or ".c" for a source's: both are packed in a temporary directory, of a name without a dot.

set -euo pipefail
tree=$(cd "$(dirname "$0")/.." && pwd)
output=${1:-$tree/.build/deb}
maintainer=${MAINTAINER:-spoolgate maintainers <maintainers@spoolgate.example>}

scratch=$(mktemp -d "${TMPDIR:-/tmp}/spoolgate-deb-XXXXXXXX")
trap 'rm -rf "$scratch"' EXIT

# The program says its version, and the packages have the same.
version=$(sed -n 's/^ *package static let version = "\([^"]*\)"$/\1/p' "$tree/Sources/Base/TextFormats/ProgramVersion.swift")
[ -n "$version" ] || {
    echo "deb.sh: Sources/Base/TextFormats/ProgramVersion.swift says no version" >&2
    exit 1
}

# The end of a version names the distribution's release, whose libraries and nginx the package was built with. The packages
# of an older release sort below those of the newer one, so that an upgrade of the distribution takes the newer ones.
release_suffix() {
    local ID='' VERSION_ID=''
    # shellcheck source=/dev/null
    . /etc/os-release
    case $ID in
        debian) [ -z "$VERSION_ID" ] || printf '~deb%s' "$VERSION_ID" ;;
        *) printf '~%s%s' "$ID" "$VERSION_ID" ;;
    esac
}

# Each commit after a release is a version of its own: apt installs no version that it has already.
stamp='' commit='' date=$(LC_ALL=C date -R)
if commit=$(git -C "$tree" rev-parse --short HEAD 2>/dev/null); then
    date=$(git -C "$tree" log -1 --format=%cD)
    git -C "$tree" describe --exact-match --match 'v*' >/dev/null 2>&1 ||
        stamp=+$(TZ=UTC git -C "$tree" log -1 --format=%cd --date=format-local:%y%m%d%H%M%S)
fi

# A package is made for one version of nginx if its version names it. lintian wants short names of files.
pack() { # directory, what follows the version
    local source=$1
    sed -i "s/@MAINTAINER@/${maintainer//[\/&]/\\&}/" "$source/debian/control"
    printf '%s (%s) unstable; urgency=medium\n\n  * %s\n  * Built from %s.\n\n -- %s  %s\n' \
        "$(sed -n 's/^Source: //p' "$source/debian/control")" "$version$stamp$2$(release_suffix)" \
        'CHANGELOG.md of the source says what is new.' "${commit:-a source without its history}" \
        "$maintainer" "$date" >"$source/debian/changelog"
    (cd "$source" && dpkg-buildpackage -us -uc -b)
}

mkdir "$scratch/spoolgate"
cp -R "$tree/deploy/debian" "$scratch/spoolgate/debian"
ln -s "$tree" "$scratch/spoolgate/tree"
cp -R "$tree/nginx/module" "$scratch/module"
pack "$scratch/spoolgate" ''
pack "$scratch/module" "+ngx$(PATH=$PATH:/usr/sbin nginx -v 2>&1 | sed 's|.*/\([0-9.]*\).*|\1|')"
rm -rf "$output"
mkdir -p "$output"
mv "$scratch"/*.deb "$scratch"/*.changes "$scratch"/*.buildinfo "$output"
lintian --allow-root --fail-on error,warning "$output"/*.deb
ls "$output"/*.deb
