#!/usr/bin/env bash
# Packs the gateway that `make build` has built, and the nginx module for the nginx that is installed,
# as Debian packages: `make deb`. usage: deb.sh [OUTPUT]        (OUTPUT: .build/deb)
#
# dh writes beside what it packs, and nginx's configure takes no path with a space: both are packed in a
# temporary directory.

set -euo pipefail
tree=$(cd "$(dirname "$0")/.." && pwd)
output=${1:-$tree/.build/deb}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/spoolgate"
cp -R "$tree/deploy/debian" "$scratch/spoolgate/debian"
ln -s "$tree" "$scratch/spoolgate/tree"
cp -R "$tree/nginx/module" "$scratch/module"
for source in spoolgate module; do
    (cd "$scratch/$source" && dpkg-buildpackage -us -uc -b)
done
rm -rf "$output"
mkdir -p "$output"
mv "$scratch"/*.deb "$scratch"/*.changes "$scratch"/*.buildinfo "$output"
ls "$output"/*.deb
