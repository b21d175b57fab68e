#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that are missing, and only those: when nothing is missing
# it needs no root, no network and says nothing.
#
# usage: install-dependencies.sh build | run | test      (each includes the one before it)

set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

# A package, and the program that proves it is there; without a program, dpkg is asked.
build='libfcgi-dev libssl-dev libcurl4-openssl-dev libyaml-dev libc6-dev pkg-config:pkg-config
       git:git ca-certificates'
run='nginx:nginx openssl:openssl curl:curl util-linux:setpriv util-linux:flock gawk|mawk:awk'
test='php-fpm mandoc:mandoc systemd:systemd-analyze'

case ${1:-} in
    build) wanted=$build ;;
    run) wanted="$build $run" ;;
    test) wanted="$build $run $test" ;;
    *)
        echo "usage: $0 build | run | test" >&2
        exit 64
        ;;
esac

installed() { dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed; }

missing=''
for entry in $wanted; do
    package=${entry%%:*}
    case $entry in
        *:*) command -v "${entry#*:}" >/dev/null || missing="$missing ${package%%|*}" ;;
        *) installed "$package" || missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0

command -v apt-get >/dev/null || {
    echo "missing, and there is no apt-get here to install them:$missing" >&2
    exit 1
}
if [ "$(id -u)" -eq 0 ]; then
    as_root=''
elif command -v sudo >/dev/null; then
    as_root=sudo
else
    printf 'missing:%s\nas root, once: apt-get update && apt-get install -y%s\n' \
        "$missing" "$missing" >&2
    exit 1
fi

echo "installing:$missing"
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update
# shellcheck disable=SC2086 # a list of words
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $missing
