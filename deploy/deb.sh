#!/usr/bin/env bash
# Builds Debian packages of the gateway and the client from `make build`, and of the nginx module for the installed
# nginx: `make deb`. usage: deb.sh [OUTPUT]        (default: .build/deb)
#
# MAINTAINER is the packages' maintainer. Both are packed in a temporary directory without a dot in its name: dh writes
# next to the files it packs, and nginx's configure accepts no path with a space, and mistakes one with ".S" or ".c" for
# a source file.

set -euo pipefail
tree=$(cd "$(dirname "$0")/.." && pwd)
output=${1:-$tree/.build/deb}
maintainer=${MAINTAINER:-spoolgate maintainers <maintainers@spoolgate.example>}

scratch=$(mktemp -d "${TMPDIR:-/tmp}/spoolgate-deb-XXXXXXXX")
trap 'rm -rf "$scratch"' EXIT

# The packages have the program's version.
version=$(sed -n 's/^ *package static let version = "\([^"]*\)"$/\1/p' "$tree/Sources/Base/TextFormats/ProgramVersion.swift")
[ -n "$version" ] || {
    echo "deb.sh: Sources/Base/TextFormats/ProgramVersion.swift contains no version" >&2
    exit 1
}

# The suffix of a version names the distribution's release, whose libraries and nginx the package was built with.
# Packages of an older release sort before those of a newer one, so that a distribution upgrade installs the newer ones.
release_suffix() {
    local ID='' VERSION_ID=''
    # shellcheck source=/dev/null
    . /etc/os-release
    case $ID in
        debian) [ -z "$VERSION_ID" ] || printf '~deb%s' "$VERSION_ID" ;;
        *) printf '~%s%s' "$ID" "$VERSION_ID" ;;
    esac
}

# Each commit after a release has its own version, because apt does not install a version again.
stamp='' commit='' date=$(LC_ALL=C date -R)
if commit=$(git -C "$tree" rev-parse --short HEAD 2>/dev/null); then
    date=$(git -C "$tree" log -1 --format=%cD)
    git -C "$tree" describe --exact-match --match 'v*' >/dev/null 2>&1 ||
        stamp=+$(TZ=UTC git -C "$tree" log -1 --format=%cd --date=format-local:%y%m%d%H%M%S)
fi

# The version of a package for one version of nginx contains that version. lintian requires short file names.
pack() { # directory, suffix of the version
    local source=$1
    sed -i "s/@MAINTAINER@/${maintainer//[\/&]/\\&}/" "$source/debian/control"
    printf '%s (%s) unstable; urgency=medium\n\n  * %s\n  * Built from %s.\n\n -- %s  %s\n' \
        "$(sed -n 's/^Source: //p' "$source/debian/control")" "$version$stamp$2$(release_suffix)" \
        'CHANGELOG.md of the source lists the changes.' "${commit:-a source without history}" \
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
