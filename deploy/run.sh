#!/usr/bin/env bash
# Runs the gateway and a separate nginx in the foreground until Ctrl-C or SIGTERM (`make run`).
#
# All its files are under STATE: sockets, spool, logs, pid files, certificates. It installs nothing and
# needs no root. Invariant: after it has ended, even by SIGKILL, no process that it started remains,
# because run-keeper.sh ends them. Any other process that dies, including the keeper, is restarted.
#
# Environment: PORT, TLS_PORT, STATE, DROP, UPSTREAM, UPSTREAM_CA, NAMES, SPOOLGATE (the binary),
# MODULE (ngx_http_interim_module.so; if nginx cannot load it, only the 104 is missing), ADDRESS (an address
# to listen on in addition to 127.0.0.1 and [::1]; * or 0.0.0.0: all interfaces).

set -euo pipefail
umask 022

here=$(cd "$(dirname "$0")/.." && pwd)
PORT=${PORT:-8080}
TLS_PORT=${TLS_PORT:-8443}
STATE=${STATE:-.run}
DROP=${DROP:-$STATE/delivered}
UPSTREAM=${UPSTREAM:-}
UPSTREAM_CA=${UPSTREAM_CA:-}
NAMES=${NAMES:-}
ADDRESS=${ADDRESS:-}
SPOOLGATE=${SPOOLGATE:-$here/.build/release/spoolgate}
MODULE=${MODULE:-$here/.build/nginx-module/ngx_http_interim_module.so}
PATH=$PATH:/usr/sbin:/sbin
# shellcheck source=deploy/run-example.sh
. "$here/deploy/run-example.sh"

say() { printf 'run: %s\n' "$*"; }
die() {
    printf 'run: %s\n' "$*" >&2
    exit 1
}

absolute() {
    case $1 in
        /*) printf '%s' "$1" ;;
        *) printf '%s/%s' "$PWD" "${1#./}" ;;
    esac
}

check_port() { # name, number
    case $2 in
        '' | *[!0-9]*) die "$1 is not a port number: $2" ;;
    esac
    if [ "$2" -lt 1 ] || [ "$2" -gt 65535 ]; then die "$1 is not a port number: $2"; fi
    # The kernel's table of listening sockets (state 0A), which needs no tool.
    if cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
        awk -v port="$(printf ':%04X' "$2")" \
            '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 }
             END { exit !found }'; then
        die "port $2 is in use by another program: set $1 to another port"
    fi
}

# A YAML double-quoted scalar.
quoted() { printf '"%s"' "$(printf '%s' "$1" | sed 's/[\\"]/\\&/g')"; }

write_settings() {
    local upstream=${UPSTREAM:-directory:$DROP}
    {
        printf '# Written by deploy/run.sh at each start; all settings: deploy/spoolgate.yaml.\n'
        # STATE as the working directory, so that the socket's path is short enough (107 bytes) with any
        # STATE.
        printf 'listen: unix:/proc/self/cwd/spoolgate.sock\n'
        if [ -n "$worker_group" ]; then printf 'socket-group: %s\n' "$worker_group"; fi
        printf 'spool:\n  directory: %s\n' "$(quoted "$STATE/spool")"
        printf 'timeouts:\n  drain: 10s\n'
        printf 'routes:\n  default:\n    upstream: %s\n' "$(quoted "$upstream")"
        if [ -n "$UPSTREAM_CA" ]; then
            printf '    tls:\n      ca: %s\n' "$(quoted "$UPSTREAM_CA")"
        fi
    } >"$STATE/spoolgate.yaml"
}

# Chooses nginx's addresses: `four` and `six` precede the port in each line for IPv4 and for IPv6. `reach` tells people
# which machines can connect.
choose_addresses() {
    local address=$ADDRESS loopback6=''
    address=${address#[}
    address=${address%]}
    ! grep -q '^0\{31\}1 ' /proc/net/if_inet6 2>/dev/null || loopback6='[::1]'
    four=127.0.0.1: six=${loopback6:+$loopback6:} is_open=''
    reach="127.0.0.1${loopback6:+ and [::1]}: this machine only (to allow others, set ADDRESS=*)"
    case $address in
        '' | localhost | 127.0.0.1 | ::1) ;;
        '*' | 0.0.0.0 | ::)
            is_open=all four='*:' six=''
            reach='all interfaces: any machine that can connect may upload'
            ! grep -q . /proc/net/if_inet6 2>/dev/null || six='[::]:'
            ;;
        *[!0-9A-Fa-f:.]*) die "ADDRESS is not an address: $ADDRESS" ;;
        *:*) is_open=$address six="$six [$address]:" ;;
        *) is_open=$address four="$four $address:" ;;
    esac
    [ "${is_open:-all}" = all ] ||
        reach="127.0.0.1${loopback6:+, [::1]} and $address: any machine that can connect to $address may upload"
}

# Prints nginx's server names; those of the machine only if other machines can connect.
server_names() {
    local name names=''
    case $is_open in
        '') ;;
        all) names="$(hostname 2>/dev/null || :) $(hostname -I 2>/dev/null || :)" ;;
        *) names="$(hostname 2>/dev/null || :) $is_open" ;;
    esac
    printf 'localhost 127.0.0.1 [::1]'
    for name in $names $NAMES; do
        case $name in
            localhost | 127.0.0.1 | *[!A-Za-z0-9.:_*-]*) ;;
            *:*) printf ' [%s]' "$name" ;;
            *) printf ' %s' "$name" ;;
        esac
    done
}

# Tests whether the installed nginx loads the module, from the prefix, as nginx.conf does. Only the nginx for which it
# was built can load it.
try_module() {
    local reason
    has_module=''
    if [ ! -r "$MODULE" ]; then
        reason="$MODULE does not exist (run make module for the reason)"
    elif ! install -D -m 644 "$MODULE" modules/ngx_http_interim_module.so; then
        reason="cannot copy the module to $STATE/modules"
    else
        printf 'load_module modules/%s;\npid nginx.pid;\nevents {}\n' \
            ngx_http_interim_module.so >nginx/module.conf
        if reason=$(nginx -t -q -p "$STATE" -e stderr -c nginx/module.conf 2>&1); then
            has_module=yes
            return
        fi
        reason=$(printf '%s\n' "$reason" | sed -n '1s/^.*#[0-9]*: //p')
    fi
    say "no interim responses (104), so clients cannot resume a one-request upload: $reason"
}

# Writes each marked listen line once for each address, with the address and the port.
listen_lines() { # mark, port
    awk -v mark="# run: $1\$" -v port="$2" -v four="$four" -v six="$six" '
        $0 !~ mark { print; next }
        {
            count = split(/\[::\]:/ ? six : four, before, " ")
            for (i = 1; i <= count; i++) {
                line = $0
                sub(/listen [^ ;]*/, "listen " before[i] port, line)
                print line
            }
        }'
}

# Writes the shipped nginx files with the marked lines filled in. All paths become relative (to the prefix, to
# the file, the socket's to the working directory), so that they need no quoting, are short enough, and the
# workers' user needs no permission on the directories above STATE.
write_nginx() {
    local user='' module='' delivered='' name
    [ -z "$worker_user" ] ||
        user="s|^#user [^;]*;\(.*# run: user\)|user $worker_user $worker_group;\1|"
    # Only if it is below the prefix, where nginx's workers may read it.
    [ -n "$UPSTREAM" ] || [ "$DROP" != "$STATE/delivered" ] ||
        delivered='/# run: delivered$/{s|#||;s|/var[^;]*;|/proc/self/cwd/delivered/;|;}'
    rm -rf nginx/modules nginx/demo
    mkdir -p nginx/snippets nginx/modules/upstream
    cp -R "$here/nginx/demo" nginx/
    [ -z "$has_module" ] || {
        module='/# run: module$/s|#||'
        cp "$here/nginx/module/interim.conf" nginx/modules/
        cp "$here/nginx/module/keepalive.conf" nginx/modules/upstream/
    }
    for name in nginx.conf snippets/spoolgate.conf {admin,demo,http,location,params,pass,server}.conf; do
        sed -e "$user" \
            -e "$module" \
            -e "$delivered" \
            -e "/# run: names\$/s|server_name [^;]*;|server_name $(server_names);|" \
            -e "/# run: certificate\$/s|/[^;]*;|../tls/certificate.pem;|" \
            -e "/# run: key\$/s|/[^;]*;|../tls/key.pem;|" \
            -e "/# run: demo\$/s|/usr[^;]*;|/proc/self/cwd/nginx/demo/;|" \
            -e "/# run: page\$/s|#||" \
            -e "/# run: admin\$/s|#||" \
            -e "/# run: admin-socket\$/s|unix:[^;]*;|unix:admin.sock;|" \
            -e "/# run: socket\$/s|unix:[^;]*;|unix:spoolgate.sock;|" \
            -e "s|/usr/share/spoolgate/nginx/||" \
            -e "s|/etc/nginx/conf.d/spoolgate\*|http*|" \
            "$here/nginx/$name" |
            listen_lines port "$PORT" | listen_lines tls-port "$TLS_PORT" >"$STATE/nginx/$name"
    done
}

# Creates an authority that can certify only this machine's own names, and nginx's certificate, signed by it: browsers
# do not accept an authority as a server. certificate.pem contains both, for curl; browsers import authority.pem.
make_certificate() {
    local tls=$STATE/tls
    # Kept while it is valid for another day, because clients may be configured to trust it.
    ! openssl verify -CAfile "$tls/authority.pem" -attime "$(($(date +%s) + 86400))" \
        "$tls/certificate.pem" >/dev/null 2>&1 || return 0
    cat >"$tls/openssl.cnf" <<'END'
[req]
distinguished_name = name
prompt = no
[name]
CN = localhost
[authority]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
nameConstraints = critical, permitted;DNS:localhost, permitted;IP:127.0.0.1/255.255.255.255, permitted;IP:::1/ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost, IP:127.0.0.1, IP:::1
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
END
    (
        umask 077
        exec 2>"$STATE/log/openssl.log"
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 825 \
            -config "$tls/openssl.cnf" -extensions authority \
            -subj "/O=spoolgate, make run/CN=$(date -u +%FT%TZ)" \
            -keyout "$tls/authority.key" -out "$tls/authority.new" &&
            openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
                -config "$tls/openssl.cnf" -keyout "$tls/key.pem" -out "$tls/request.pem" &&
            openssl x509 -req -in "$tls/request.pem" -days 825 -set_serial "0x$(openssl rand -hex 16)" \
                -CA "$tls/authority.new" -CAkey "$tls/authority.key" \
                -extfile "$tls/openssl.cnf" -extensions server -out "$tls/certificate.new" &&
            cat "$tls/authority.new" >>"$tls/certificate.new"
    ) || die "openssl could not create a certificate: $(tail -n 3 "$STATE/log/openssl.log")"
    # The authority's key is not needed again.
    rm "$tls/authority.key" "$tls/request.pem" "$tls/openssl.cnf"
    chmod 644 "$tls/authority.new" "$tls/certificate.new"
    mv "$tls/authority.new" "$tls/authority.pem"
    mv "$tls/certificate.new" "$tls/certificate.pem"
}

# Starts the keeper, which holds the lock until all processes have ended, and reads from a pipe. This script has
# its writing end, descriptor 8, so that the end of input means that this script has ended.
start_keeper() {
    exec 8>&-
    exec 8> >(exec setsid "$here/deploy/run-keeper.sh" >>"$STATE/log/run.log" 2>&1)
    keeper=$!
    # In a separate process: the keeper may have died again, and SIGPIPE would end this script.
    (printf 'gateway %s\nnginx %s\n' "${gateway:-none}" "${nginx:-none}" >&8) || true
}

# Runs a command in STATE as the leader of a session that is reported to the keeper first. It gets SIGTERM when
# this script dies, but no Ctrl-C of the terminal (stop ends it).
lead() { # name, log, command...
    local name=$1 log=$2
    shift 2
    exec >>"$log" 2>&1
    printf '%s %s\n' "$name" "$BASHPID" >&8
    exec setsid setpriv --pdeathsig TERM "$@" 8>&- 9>&-
}

start_gateway() {
    rm -f "$STATE/spoolgate.sock" "$STATE/admin.sock"
    lead gateway "$STATE/log/spoolgate.log" "$SPOOLGATE" serve --config spoolgate.yaml &
    gateway=$!
    gateway_since=$SECONDS
    echo "$gateway" >"$STATE/spoolgate.pid"
}

start_nginx() {
    lead nginx "$STATE/log/error.log" \
        nginx -p "$STATE" -e log/error.log -c nginx/nginx.conf -g 'daemon off;' &
    nginx=$!
    nginx_since=$SECONDS
}

# A signal ends wait, but not sleep. bash's own messages about killed processes are dropped, because restart
# reports them.
pause() {
    setpriv --pdeathsig KILL sleep "$1" 8>&- 9>&- &
    napping=$!
    wait "$napping" || true
    kill "$napping" || true
    napping=''
} 2>/dev/null

alive() { kill -0 "$1" 2>/dev/null; }

# Whether a process is dead, or dies within two seconds: a killed process may still exist briefly.
is_gone() {
    local deadline=$((SECONDS + 2))
    while alive "$1"; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        pause 0.1
    done
}

# Waits until the command succeeds; fails if the process dies or after ten seconds.
await() { # process, command...
    local process=$1 deadline=$((SECONDS + 10))
    shift
    until "$@"; do
        alive "$process" && [ "$SECONDS" -lt "$deadline" ] || return 1
        pause 0.1
    done
    alive "$process"
}

nginx_responds() { curl -s -o /dev/null --max-time 2 "http://127.0.0.1:$PORT/"; }

stop() {
    trap '' HUP
    trap 'kill -KILL $gateway $nginx 2>/dev/null || true' INT TERM
    local process told=$((1 - ending))
    for process in $nginx $gateway; do
        kill -TERM "$process" 2>/dev/null || true
    done
    [ -z "$napping" ] || kill "$napping" 2>/dev/null || true
    for process in $nginx $gateway; do
        while alive "$process"; do
            [ "$told" -ne 0 ] || say 'stopping (press Ctrl-C again to stop at once)'
            told=1
            wait "$process" || true
        done
    done
    # Ends the remaining processes of both sessions, if any.
    exec 8>&-
    wait "$keeper" || true
}

# If a process ended within ten seconds, the pause before its next start doubles. Its remaining processes are
# ended first, because nginx's workers would keep the ports.
restart() { # name, start function, start time, process
    local lived=$((SECONDS - $3)) status=0
    wait "$4" || status=$?
    "$here/deploy/run-keeper.sh" "$4"
    if [ "$lived" -ge 10 ]; then backoff=1; else backoff=$((backoff < 16 ? backoff * 2 : 16)); fi
    say "$1 ended (status $status); restarting it in $backoff s; logs: $STATE/log"
    pause "$backoff"
    [ "$ending" -ne 0 ] || "$2"
}

STATE=$(absolute "$STATE")
DROP=$(absolute "$DROP")
[ -z "$UPSTREAM_CA" ] || UPSTREAM_CA=$(absolute "$UPSTREAM_CA")
SPOOLGATE=$(absolute "$SPOOLGATE")
MODULE=$(absolute "$MODULE")
[ -x "$SPOOLGATE" ] || die "$SPOOLGATE does not exist or is not executable: run make build"
[ -z "$UPSTREAM_CA" ] || [ -r "$UPSTREAM_CA" ] || die "cannot read UPSTREAM_CA: $UPSTREAM_CA"
for tool in nginx openssl curl setpriv setsid flock awk; do
    command -v "$tool" >/dev/null || die "$tool is missing: run deploy/install-dependencies.sh run"
done

{ mkdir -p "$STATE" && cd "$STATE"; } || die "cannot create the directory $STATE"
mkdir -p log nginx tls
chmod 700 tls
exec 9>lock
# If a run was killed, its keeper holds the lock for some more seconds.
flock -n 9 || { is_gone "$(cat run.pid 2>/dev/null)" && flock -w 10 9; } ||
    die "another run uses $STATE (process $(cat run.pid 2>/dev/null)): stop it, or set STATE to another directory"
echo $$ >run.pid

choose_addresses
check_port PORT "$PORT"
check_port TLS_PORT "$TLS_PORT"
[ "$PORT" -ne "$TLS_PORT" ] || die "PORT and TLS_PORT are the same: $PORT"
[ -n "$UPSTREAM" ] || mkdir -p "$DROP" || die "cannot create the directory $DROP"

# If root starts nginx, its workers have another user, who needs access to the socket.
worker_user='' worker_group=''
if [ "$(id -u)" -eq 0 ]; then
    worker_user=nobody
    ! id www-data >/dev/null 2>&1 || worker_user=www-data
    worker_group=$(id -gn "$worker_user")
fi

write_settings
try_module
write_nginx
make_certificate

gateway='' nginx='' keeper='' napping='' backoff=1 ending=0
trap 'ending=1' INT TERM HUP
start_keeper
trap stop EXIT

start_gateway
await "$gateway" test -S "$STATE/spoolgate.sock" ||
    die "the gateway did not start: $(tail -n 5 "$STATE/log/spoolgate.log")"
start_nginx
await "$nginx" nginx_responds || die "nginx did not start: $(tail -n 5 "$STATE/log/error.log")"
[ "$ending" -ne 0 ] || print_session

while [ "$ending" -eq 0 ]; do
    if ! alive "$keeper"; then
        start_keeper
    elif ! alive "$gateway"; then
        restart 'the gateway' start_gateway "$gateway_since" "$gateway"
    elif ! alive "$nginx"; then
        restart nginx start_nginx "$nginx_since" "$nginx"
    else
        pause 1
    fi
done
