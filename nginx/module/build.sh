#!/usr/bin/env bash
# Builds ngx_http_interim_module.so; needs no root and writes only to OUTPUT and a temporary folder.
#
# Without options: for Debian's or Ubuntu's nginx, from the files of its package nginx-dev, with that
# nginx's own flags.
#
# With --nginx: for an installed nginx, such as nginx.org's package. NGINX is the program, which
# reports its version and its configure arguments (nginx -V). --source is the source of that version,
# a folder or a .tar.gz; without it, the source is downloaded from nginx.org. Finally, NGINX tests
# whether it can load the module.
#
# With --source only: for the nginx in that folder (a release or a checkout), which is also built, as
# OUTPUT/nginx, so that both match; --asan builds both with AddressSanitizer and with an allocator
# that does not hide errors from it.
#
# usage: build.sh [--nginx NGINX] [--source DIR|TARBALL] [--asan] [--output DIR]
#        (OUTPUT: .build/nginx-module)

set -euo pipefail

module=$(cd "$(dirname "$0")" && pwd)
installed=/usr/share/nginx/src
source=''
output=$module/../../.build/nginx-module
releases=https://nginx.org/download
asan=no
nginx=''
version=''

usage() {
    echo "usage: $0 [--nginx NGINX] [--source DIR|TARBALL] [--asan] [--output DIR]" >&2
    exit 64
}
die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
        --source) source=${2:-} && [ -n "$source" ] && shift ;;
        --nginx) nginx=${2:-} && [ -n "$nginx" ] && shift ;;
        --output) output=${2:-} && shift ;;
        --asan) asan=yes ;;
        *) usage ;;
    esac
    shift || usage
done
[ -n "$output" ] || usage
[ "$asan" = no ] || { [ -n "$source" ] && [ -z "$nginx" ]; } ||
    die '--asan also builds nginx: use --source (apt-get source nginx), not --nginx'
if [ -n "$nginx" ]; then
    nginx=$(PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin command -v "$nginx") || die "no such program: $nginx"
    nginx=$(realpath "$nginx")
    version=$("$nginx" -v 2>&1 | sed -n 's|^nginx version: [^/]*/\([0-9.]*\).*|\1|p')
    [ -n "$version" ] || die "$nginx -v printed no version of nginx"
elif [ -z "$source" ]; then
    source=$installed
    [ -r "$source/conf_flags" ] || die "$source/conf_flags does not exist: install nginx-dev"
fi

# Prints a step's output only if the step fails.
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
if [ -z "$source" ]; then
    source=$scratch/nginx-$version.tar.gz
    curl -fsSL --retry 2 -o "$source" "$releases/nginx-$version.tar.gz" ||
        die "cannot download $releases/nginx-$version.tar.gz: download it elsewhere and use --source"
fi
mkdir "$scratch/nginx"
if [ -d "$source" ]; then
    cp -R "$source/." "$scratch/nginx"
else
    quietly tar -xzf "$source" -C "$scratch/nginx" --strip-components 1
fi
# nginx's configure accepts no path with a space, so the module is built from a copy.
cp -R "$module" "$scratch/module"
cd "$scratch/nginx"
rm -rf objs Makefile
[ -r src/core/nginx.h ] || die "no source of nginx in $source"
configure=./configure
[ -x configure ] || configure=./auto/configure
found=$(sed -n 's/^#define NGINX_VERSION *"\([^"]*\)".*/\1/p' src/core/nginx.h)
[ -z "$version" ] || [ "$found" = "$version" ] ||
    die "$nginx is version $version, but $source is the source of $found: use the source of $version"

# The configure arguments of the installed nginx, one per line, without: paths of libraries and other
# modules on its build machine; options of the compiler and the linker (-pie makes no shared library);
# modules that need further libraries. With --with-compat none of these affects the module.
arguments() {
    "$nginx" -V 2>&1 | sed -n 's/^configure arguments: //p' | xargs printf '%s\n' |
        grep -vE '^--(with-(cc|ld|pcre|zlib|openssl|libatomic|perl)(-opt)?=|add-(dynamic-)?module=)' |
        grep -vE '^--with-(http_(perl|xslt|geoip|image_filter)|stream_geoip|google_perftools)_module' |
        grep -vE '^--with-.*=dynamic$'
}

compile=(-g -O2 -fPIC -Wextra -Wno-unused-parameter)
link=("-Wl,-z,relro" "-Wl,-z,now" -fPIC)
if [ "$source" = "$installed" ] || [ -n "$nginx" ]; then
    # The distribution's hardening; nginx adds -W -Wall -Werror.
    if command -v dpkg-buildflags >/dev/null; then
        read -r -a compile <<<"${compile[*]} $(dpkg-buildflags --get CPPFLAGS)"
    fi
    if [ -n "$nginx" ]; then
        mapfile -t flags < <(arguments)
    else
        # shellcheck source=/dev/null
        . ./conf_flags
        flags=("${NGX_CONF_FLAGS[@]}")
    fi
    quietly "$configure" --with-cc-opt="${compile[*]}" --with-ld-opt="${link[*]}" \
        "${flags[@]}" --add-dynamic-module="$scratch/module"
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
if [ -n "$nginx" ]; then
    {
        printf 'load_module %s;\npid nginx.pid;\nevents {}\n' "$PWD/objs/ngx_http_interim_module.so"
        # Its own user need not exist here.
        [ "$(id -u)" -ne 0 ] || printf 'user root root;\n'
    } >"$scratch/nginx.conf"
    refused=$("$nginx" -t -q -p "$scratch" -e stderr -c "$scratch/nginx.conf" 2>&1) ||
        die "$nginx cannot load the module: $refused"
fi
install -m 644 objs/ngx_http_interim_module.so "$output/ngx_http_interim_module.so"
