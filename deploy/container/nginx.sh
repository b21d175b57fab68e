#!/bin/bash
# The entry point of nginx's image: writes copies of nginx's files with settings from the environment below /tmp, and
# runs nginx with them. With `health`: succeeds if the container's nginx responds.
#
# SPOOLGATE_ORIGIN   the origin that clients use, such as https://uploads.example.org. Required.
# SPOOLGATE_PATH     the path of uploads, which begins and ends with a slash; default: /files/
# SPOOLGATE_ROUTE    the gateway's route; default: default
# SPOOLGATE_LOGIN    a file of users and passwords (htpasswd), which nginx then requires; default: no login
# SPOOLGATE_PROXIES  networks of proxies whose X-Forwarded-For is trusted, separated by spaces; default: none
# SPOOLGATE_INTERIM  off: no interim responses, for a proxy that mistakes a 104 for the final response; default: on
#
# Your own file mounted over /etc/nginx/snippets/spoolgate.conf or /etc/nginx/nginx.conf is copied in the same way: only
# lines that are as shipped change.

set -euo pipefail

snippet=/etc/nginx/snippets/spoolgate.conf
made=/tmp/nginx

die() {
    printf 'nginx: %s\n' "$*" >&2
    exit 78
}

# The values are not quoted in nginx's files.
check() { # variable, pattern, description
    [[ ${!1} =~ ^$2$ ]] || die "$1 is not $3: ${!1}"
}

if [ "${1:-}" = health ]; then
    exec 3<>/dev/tcp/127.0.0.1/8081
    printf 'GET /health HTTP/1.0\r\n\r\n' >&3
    read -r _ status _ <&3
    [ "$status" = 200 ]
    exit
fi

SPOOLGATE_ORIGIN=${SPOOLGATE_ORIGIN:-}
SPOOLGATE_PATH=${SPOOLGATE_PATH:-/files/}
SPOOLGATE_ROUTE=${SPOOLGATE_ROUTE:-default}
SPOOLGATE_LOGIN=${SPOOLGATE_LOGIN:-}
SPOOLGATE_PROXIES=${SPOOLGATE_PROXIES:-}
SPOOLGATE_INTERIM=${SPOOLGATE_INTERIM:-on}
check SPOOLGATE_PATH '/([A-Za-z0-9._~-]+/)*' 'a path that begins and ends with a slash'
check SPOOLGATE_ROUTE '[A-Za-z0-9._-]+' 'the name of a route'
check SPOOLGATE_LOGIN '(/[A-Za-z0-9._/-]+)?' 'the absolute path of a file'
check SPOOLGATE_PROXIES '[0-9a-fA-F.:/ ]*' 'a list of addresses and networks'
check SPOOLGATE_INTERIM '(on|off)' 'on or off'

edits=(
    -e "s|/files/|$SPOOLGATE_PATH|"
    -e "s|^location = /files |location = ${SPOOLGATE_PATH%/} |"
    -e "s|SPOOLGATE_ROUTE   default;|SPOOLGATE_ROUTE   $SPOOLGATE_ROUTE;|"
)
# The root has no form without the slash.
[ "$SPOOLGATE_PATH" != / ] || edits=(-e '/^location = \/files /,/^}/d' "${edits[@]}")
if grep -q 'SPOOLGATE_ORIGIN  [$]scheme' "$snippet"; then
    [ -n "$SPOOLGATE_ORIGIN" ] ||
        die 'SPOOLGATE_ORIGIN is not set: set it to the origin that clients use, such as https://uploads.example.org'
    check SPOOLGATE_ORIGIN 'https?://[]A-Za-z0-9.:[-]+' 'an origin such as https://uploads.example.org'
    edits+=(-e "s|SPOOLGATE_ORIGIN  \$scheme[^;]*;|SPOOLGATE_ORIGIN  $SPOOLGATE_ORIGIN;|")
fi
if [ -n "$SPOOLGATE_LOGIN" ]; then
    [ -r "$SPOOLGATE_LOGIN" ] || die "cannot read SPOOLGATE_LOGIN: $SPOOLGATE_LOGIN"
    edits+=(-e '/# run: login$/s|#||' -e "s|/etc/nginx/uploads.htpasswd|$SPOOLGATE_LOGIN|")
fi

rm -rf "$made"
mkdir -p "$made"
[ "$SPOOLGATE_INTERIM" = on ] || {
    sed '/^include .*\/modules\//d' /usr/share/spoolgate/nginx/location.conf >"$made/location.conf"
    edits+=(-e "s|/usr/share/spoolgate/nginx/location\\*|$made/location*|")
}
sed "${edits[@]}" "$snippet" >"$made/uploads.conf"
[ "$SPOOLGATE_PATH" = / ] || printf 'location / {\n    return 404;\n}\n' >>"$made/uploads.conf"
for network in $SPOOLGATE_PROXIES; do
    printf 'set_real_ip_from %s;\n' "$network"
done >"$made/http.conf"
[ -z "$SPOOLGATE_PROXIES" ] ||
    printf 'real_ip_header X-Forwarded-For;\nreal_ip_recursive on;\n' >>"$made/http.conf"
no_ipv6=()
grep -q . /proc/net/if_inet6 2>/dev/null || no_ipv6=(-e '/^ *listen \[::\]:/d')
sed -e "s|include snippets/spoolgate\\*.conf;|include $made/uploads.conf;|" "${no_ipv6[@]}" /etc/nginx/nginx.conf \
    >"$made/nginx.conf"

exec nginx -e stderr -c "$made/nginx.conf" -g 'daemon off;' "$@"
