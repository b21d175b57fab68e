#!/usr/bin/env bash
# Checks the files that are shipped with the program: units, man pages, nginx files, settings, scripts.
#
# It changes nothing outside a temporary directory and starts no service. All checks run, and the exit
# code is 0 if all of them pass. A check whose tool is missing fails.

set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
PATH=$PATH:/usr/sbin:/sbin

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
failures=0

check() { # name, command...
    local name=$1 output
    shift
    if ! command -v "$1" >/dev/null && ! declare -F "$1" >/dev/null; then
        output="$1 is missing: deploy/install-dependencies.sh test"
    elif output=$("$@" 2>&1) && { [ -z "$output" ] || [ "${silent:-no}" = no ]; }; then
        printf 'ok    %s\n' "$name"
        return
    fi
    printf 'FAIL  %s\n%s\n' "$name" "$output"
    failures=$((failures + 1))
}

# systemd-analyze requires existing programs in the units, and full unit names.
units="$scratch/units"
mkdir "$units"
for unit in deploy/*.service deploy/*.socket deploy/*.timer; do
    sed 's|/usr/bin/spoolgate|/usr/bin/env|' "$unit" >"$units/${unit##*/}"
done
verify() { systemd-analyze verify --man=no --recursive-errors=no "$@"; }
security() { systemd-analyze security --offline=true --no-pager --threshold="$1" "$2"; }
for unit in "$units"/*; do
    silent=yes check "unit ${unit##*/} is valid" verify "$unit"
done
# The exposure that systemd computes, times ten; lower the limits, never raise them.
check 'spoolgate.service exposes at most 1.2' security 12 "$units/spoolgate.service"
check 'spoolgate-purge.service exposes at most 0.8' security 8 "$units/spoolgate-purge.service"
# It would hide the kernel's boot ID, and the daemon does not start without that.
shows_boot() { ! grep -n '^ProcSubset=pid' "$units"/*.service; }
check 'no unit hides the boot ID from the daemon' shows_boot
# systemd mounts each path separately; without hard links between two mounts, uploads would be copied.
one_path() { [ "$(sed -n 's/^ReadWritePaths=//p' "$units/spoolgate.service" | wc -w)" -eq 1 ]; }
check 'the spool and the directory of delivered uploads are below one path' one_path
users() { systemd-sysusers --dry-run --root="$scratch" "$PWD/deploy/spoolgate.sysusers"; }
check 'sysusers file is valid' users
tmpfiles() { # creates the files, below the scratch directory
    mkdir -p "$scratch/etc" &&
        printf 'root:x:0:0::/:/bin/sh\nspoolgate:x:999:999::/:/bin/sh\n' >"$scratch/etc/passwd" &&
        printf 'root:x:0:\nspoolgate:x:999:\n' >"$scratch/etc/group" &&
        systemd-tmpfiles --create --root="$scratch" "$PWD/deploy/spoolgate.tmpfiles" &&
        [ "$(stat -c %a:%u "$scratch/var/spool/spoolgate")" = 700:999 ]
}
if [ "$(id -u)" -eq 0 ]; then
    check 'tmpfiles file creates the spool' tmpfiles
else
    printf 'skip  tmpfiles file creates the spool (only root can change the owner of files)\n'
fi

for page in deploy/man/*.[0-9]; do
    silent=yes check "man page ${page##*/} is clean" mandoc -T lint -W warning "$page"
done

# nginx.conf unchanged, except for the certificate, which another package supplies, and the directory of
# included files; then with the module and its files.
nginx="$scratch/nginx"
mkdir -p "$nginx/log" "$nginx/modules/upstream"
cp -R nginx/*.conf nginx/snippets "$nginx/"
sed -i -e 's|/usr/share/spoolgate/nginx/||' -e 's|/etc/nginx/conf.d/spoolgate\*|http*|' \
    "$nginx"/*.conf "$nginx"/snippets/*.conf
certificate() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 \
        -subj /CN=localhost -keyout "$nginx/key.pem" -out "$nginx/certificate.pem"
}
check 'a certificate for nginx can be created' certificate
sed -i -e '/# run: certificate$/s|/[^;]*;|certificate.pem;|' \
    -e '/# run: key$/s|/[^;]*;|key.pem;|' "$nginx/nginx.conf"
check_nginx() {
    nginx -t -q -p "$nginx" -e log/error.log -c "$nginx/nginx.conf" -g 'error_log stderr notice;'
}
silent=yes check 'nginx accepts nginx.conf' check_nginx
check_page() {
    sed -i '/# run: page$/s|#||' "$nginx/snippets/spoolgate.conf" && check_nginx
}
silent=yes check 'nginx accepts nginx.conf with the page' check_page
check_admin() {
    sed -i '/# run: admin$/s|#||' "$nginx/snippets/spoolgate.conf" && check_nginx
}
silent=yes check "nginx accepts nginx.conf with the operator's location" check_admin
check_auth() {
    sed -i '/# run: auth\>/s|#||' "$nginx/snippets/spoolgate.conf" && check_nginx
}
silent=yes check 'nginx accepts nginx.conf with auth_request' check_auth
check_delivered() {
    sed -i '/# run: delivered$/s|#||' "$nginx/nginx.conf" &&
        grep -q '^ *location ^~ /delivered/ ' "$nginx/nginx.conf" && check_nginx
}
silent=yes check 'nginx accepts nginx.conf with the delivered uploads' check_delivered
check_module() {
    cp .build/nginx-module/ngx_http_interim_module.so nginx/module/interim.conf "$nginx/modules/" &&
        cp nginx/module/keepalive.conf "$nginx/modules/upstream/" &&
        sed -i '/# run: module$/s|#||' "$nginx/nginx.conf" &&
        grep -q '^load_module ' "$nginx/nginx.conf" && check_nginx
}
silent=yes check 'nginx accepts nginx.conf with the module (make module)' check_module

# Lines that operators copy to their own files must not prevent nginx from starting after a package is removed, and
# regular-expression locations must not match their files.
texts=(README.md docs/*.md nginx/*.conf nginx/snippets/*.conf deploy/container/*.conf)
lasting() {
    ! grep -nE 'include +/usr/share/spoolgate/[^*;]*;' "${texts[@]}" &&
        ! grep -nE '^ *(spool_receive|interim_responses) ' "${texts[@]}"
}
silent=yes check "operators' files do not depend on packages" lasting
first() { ! grep -nE '^ *location +/[^ ]+ +\{' "${texts[@]}" nginx/module/README.md; }
silent=yes check 'locations by path take precedence over regular expressions' first

# It is for macOS and cannot be compiled here.
silent=yes check 'URLSessionProof.swift parses' swiftc -frontend -parse Tests/Apple/URLSessionProof.swift

# The page's module: types, the examples of its README, and the size that the README states.
types() {
    tsc --noEmit --strict --target es2022 --module es2022 --moduleResolution node --lib es2022,dom,dom.iterable "$@"
}
module_types() { types --allowJs --checkJs nginx/demo/resumable-upload.js nginx/demo/page.js; }
examples() {
    mkdir -p "$scratch/examples" && cp nginx/demo/resumable-upload.d.ts "$scratch/examples" &&
        awk -v to="$scratch/examples/" '/^```js$/ { file = to "example" ++n ".ts"; next }
            /^```/ { file = "" } file { print > file } END { exit n == 0 }' nginx/demo/README.md &&
        types "$scratch"/examples/*.ts
}
minified() { # 7.4 kB; "7.3 kB minified" in its README
    local size
    size=$(esbuild --minify --format=esm <nginx/demo/resumable-upload.js | gzip -9c | wc -c) &&
        { [ "$size" -le 7400 ] || { echo "$size bytes" && false; }; }
}
if command -v tsc >/dev/null; then
    silent=yes check 'the types of the page and its module are strict' module_types
    silent=yes check "TypeScript accepts the examples of the module's README" examples
else
    printf "skip  the types of the page's module (deploy/install-dependencies.sh test)\\n"
fi
if command -v esbuild >/dev/null; then
    silent=yes check "the page's module is at most 7.4 kB" minified
else
    printf "skip  the size of the page's module (deploy/install-dependencies.sh test)\\n"
fi

# Each other web server checks its file by the command in that file, with the marked lines replaced; none is started.
accepts() { # file
    local replaced=$scratch/${1##*/} words
    mkdir -p "$scratch/uploads" "$scratch/empty" &&
        sed -e 's|^.*# run: ||' -e "s|STATE/|$scratch/|g; s|PORT|8080|g" "$1" >"$replaced" &&
        read -r -a words < <(sed -n 's/^# check: //p' "$1") &&
        [ "${#words[@]}" -gt 0 ] && "${words[@]/#FILE/$replaced}"
}
for file in deploy/web-servers/*; do
    silent=yes check "the web server accepts ${file##*/}" accepts "$file"
done

silent=yes check 'shellcheck finds no problem in the scripts' shellcheck -x deploy/*.sh deploy/container/*.sh \
    deploy/debian/*.p* nginx/module/*.sh nginx/module/debian/postrm Tests/*.sh Tests/Lab/Power/guest/{ask,init} .ci/run

# With Kubernetes' own schemas, which contain each property (Tests/Lab/Container/requirements.txt).
validator=.build/kubernetes/bin/kubernetes-validate
if [ -x "$validator" ]; then
    check 'Kubernetes accepts the manifest' "$validator" --strict --quiet deploy/kubernetes/*.yaml
else
    printf 'skip  Kubernetes accepts the manifest (deploy/install-dependencies.sh test)\n'
fi

# The example has the defaults, except for the upstream: `check` must report that it is missing. With an upstream, and
# the other two paths moved, it must list only these three.
spoolgate=''
for built in .build/{release,debug}/spoolgate; do
    if [ -x "$built" ] && { [ -z "$spoolgate" ] || [ "$built" -nt "$spoolgate" ]; }; then spoolgate=$built; fi
done
example() {
    local said
    mkdir -p "$scratch/delivered" &&
        sed -e "s|/run/spoolgate/|$scratch/|" -e "s|/var/spool/spoolgate\$|$scratch/spool|" \
            deploy/spoolgate.yaml >"$scratch/unnamed.yaml" &&
        sed -e "s|#upstream: .*|upstream: directory:$scratch/delivered|" \
            "$scratch/unnamed.yaml" >"$scratch/example.yaml" || return
    said=$("$spoolgate" check --quiet --config "$scratch/unnamed.yaml" 2>&1)
    [ $? -eq 78 ] &&
        [[ $said = "spoolgate: $scratch/unnamed.yaml: routes.default.upstream: not set; "* ]] &&
        [ "$(printf '%s\n' "$said" | wc -l)" -eq 1 ] &&
        said=$("$spoolgate" check --config "$scratch/example.yaml" 2>/dev/null) &&
        [ "$(printf '%s\n' "$said" | sed -n 's/^  \([^:]*\):.*/\1/p' | sort | tr '\n' ' ')" = \
            'listen routes.default.upstream spool.directory ' ]
    local status=$?
    [ "$status" -eq 0 ] || printf '%s\n' "$said"
    return "$status"
}
if [ -n "$spoolgate" ]; then
    check 'the example settings are the defaults and set no upstream' example
else
    printf 'skip  the example settings are the defaults and set no upstream (no program built yet)\n'
fi

[ "$failures" -eq 0 ] || {
    printf '%d checks failed\n' "$failures"
    exit 1
}
