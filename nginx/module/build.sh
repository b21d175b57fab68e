#!/usr/bin/env bash
# Builds ngx_http_interim_module.so; needs no root and writes only to OUTPUT and a temporary folder.
#
# Without --source: for Debian's or Ubuntu's nginx, from what its package nginx-dev installs, with
# that nginx's own flags. With --source: for the nginx in that folder (a release or a checkout),
# which is built too, OUTPUT/nginx, so that the two surely belong together; --asan builds both with
# AddressSanitizer and an allocator that hides nothing from it.
#
# usage: build.sh [--source DIR [--asan]] [--output DIR]       (OUTPUT: .build/nginx-module)

set -euo pipefail

module=$(cd "$(dirname "$0")" && pwd)
installed=/usr/share/nginx/src
source=$installed
output=$module/../../.build/nginx-module
asan=no

usage() {
    echo "usage: $0 [--source DIR [--asan]] [--output DIR]" >&2
    exit 64
}
die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
        --source) source=${2:-} && shift ;;
        --output) output=${2:-} && shift ;;
        --asan) asan=yes ;;
        *) usage ;;
    esac
    shift || usage
done
if [ -z "$source" ] || [ -z "$output" ]; then usage; fi
[ "$asan" = no ] || [ "$source" != "$installed" ] ||
    die '--asan builds nginx as well, so it wants its --source (apt-get source nginx)'
if [ "$source" = "$installed" ]; then
    [ -r "$source/conf_flags" ] || die "no $source/conf_flags: apt-get install nginx-dev"
elif [ ! -r "$source/src/core/nginx.c" ]; then
    die "no nginx in $source"
fi

# A failed step says what it said; a good one nothing.
quietly() {
    local log=$scratch/log
    "$@" >"$log" 2>&1 || {
        cat "$log" >&2
        die "failed: $1"
    }
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$output"
output=$(cd "$output" && pwd)
cp -R "$source/." "$scratch/nginx"
# nginx's configure takes no path with a space: the module is built from a copy.
cp -R "$module" "$scratch/module"
cd "$scratch/nginx"
rm -rf objs Makefile
configure=./configure
[ -x configure ] || configure=./auto/configure

compile=(-g -O2 -fPIC -Wextra -Wno-unused-parameter)
link=("-Wl,-z,relro" "-Wl,-z,now" -fPIC)
if [ "$source" = "$installed" ]; then
    # shellcheck source=/dev/null
    . ./conf_flags
    # Headers only: nginx's own -W -Wall -Werror, and what the distribution hardens with.
    if command -v dpkg-buildflags >/dev/null; then
        read -r -a compile <<<"${compile[*]} $(dpkg-buildflags --get CPPFLAGS)"
    fi
    quietly "$configure" --with-cc-opt="${compile[*]}" --with-ld-opt="${link[*]}" \
        "${NGX_CONF_FLAGS[@]}" --add-dynamic-module="$scratch/module"
    quietly make -f objs/Makefile -j"$(nproc)" modules
else
    flags=(--prefix="$output/prefix" --with-compat --with-debug --with-threads
        --with-http_ssl_module --with-http_v2_module --with-http_dav_module
        --with-http_auth_request_module --with-http_realip_module --with-http_slice_module)
    [ ! -d src/http/v3 ] || flags+=(--with-http_v3_module)
    compile=(-g -O2 -fPIC)
    if [ "$asan" = yes ]; then
        compile=(-g -O1 -fPIC -fno-omit-frame-pointer -fsanitize=address -DNGX_DEBUG_PALLOC=1)
        link=(-fsanitize=address)
    fi
    quietly "$configure" "${flags[@]}" --with-cc-opt="${compile[*]}" --with-ld-opt="${link[*]}" \
        --add-dynamic-module="$scratch/module"
    quietly make -f objs/Makefile -j"$(nproc)" binary modules
    install -m 755 objs/nginx "$output/nginx"
fi
install -m 644 objs/ngx_http_interim_module.so "$output/ngx_http_interim_module.so"
