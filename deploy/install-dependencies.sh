#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that are missing, and only those: when nothing is missing
# it needs no root, no network and says nothing.
#
# usage: install-dependencies.sh build | run | test | deb
#        (run includes build, test includes run; deb is for make deb)

set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

# A package, and the program that proves it is there; without a program, dpkg is asked.
build='libfcgi-dev libssl-dev libcurl4-openssl-dev libyaml-dev libc6-dev pkg-config:pkg-config
       git:git ca-certificates'
run='nginx:nginx openssl:openssl curl:curl util-linux:setpriv util-linux:flock gawk|mawk:awk
     gcc:gcc make:make'
test='nginx-dev php-fpm mandoc:mandoc systemd:systemd-analyze lighttpd:lighttpd python3-h2
      nghttp2-client:nghttp strace:strace'
module='nginx-dev debhelper:dh dpkg-dev:dpkg-buildpackage gcc:gcc make:make'

# nginx's own source, for the module. `make run` does without where it is not to be had: beside an
# nginx that is not the distribution's, or without root.
optional=''
case ${1:-} in
    build) wanted=$build ;;
    run) wanted="$build $run" optional='nginx-dev' ;;
    test) wanted="$build $run $test" ;;
    deb) wanted="$build $module" ;;
    *)
        echo "usage: $0 build | run | test | deb" >&2
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

# Adds what is optional and can be installed; apt-get finds out without root and network.
add_optional() {
    local package
    for package in $optional; do
        installed "$package" || ! apt-get -s --no-remove install "$package" >/dev/null 2>&1 ||
            missing="$missing $package"
    done
}

as_root=''
if [ "$(id -u)" -ne 0 ]; then as_root=$(command -v sudo || echo none); fi
if [ -z "$missing" ]; then
    [ "$as_root" = none ] || add_optional
    [ -n "$missing" ] || exit 0
fi

command -v apt-get >/dev/null || {
    echo "missing, and there is no apt-get here to install them:$missing" >&2
    exit 1
}
[ "$as_root" != none ] || {
    printf 'missing:%s\nas root, once: apt-get update && apt-get install -y%s\n' \
        "$missing" "$missing" >&2
    exit 1
}

$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update
case $missing in
    *nginx-dev*) ;;
    *) add_optional ;;
esac
echo "installing:$missing"
# shellcheck disable=SC2086 # a list of words
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $missing
