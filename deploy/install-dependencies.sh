#!/usr/bin/env bash
# Installs missing Debian or Ubuntu packages, and only those: if none is missing, it needs no root and no
# network, and prints nothing. It requires bash, git and Swift, but not make, sudo and a compiler.
#
# usage: install-dependencies.sh build | run | test | deb | drill | cluster | hosts | stall | power | container
#        (run, test and deb include build, test includes run; drill is for a machine in a container, cluster
#        for several nodes with their own Ceph, hosts for the same on QEMU guests, stall for a stalling disk,
#        power for a QEMU guest with power failures, container for images that podman builds and runs)

set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

# package:program, where the program shows that the package is installed; without a program, dpkg decides.
# For a|b the first is installed. The fourth line has the libraries of Swift's own programs, the third the
# tools with which they link.
build='libfcgi-dev libssl-dev libcurl4-openssl-dev libyaml-dev pkg-config:pkg-config
       git:git ca-certificates make:make
       gcc:gcc binutils:ld libc6-dev g++:g++
       libsqlite3-0 libncurses6 libxml2'
run='nginx:nginx openssl:openssl curl:curl util-linux:setpriv util-linux:flock mawk|gawk:awk'
test='nginx-dev php-fpm mandoc:mandoc systemd:systemd-analyze lighttpd:lighttpd python3-h2
      nghttp2-client:nghttp strace:strace valgrind:valgrind shellcheck:shellcheck'
deb='build-essential debhelper:dh dpkg-dev:dpkg-buildpackage nginx-dev lintian:lintian'
drill='systemd-container:systemd-nspawn debootstrap:debootstrap util-linux:nsenter
       python3:python3 make:make'
cluster='ceph-mon:ceph-mon ceph-mgr:ceph-mgr ceph-osd:ceph-osd ceph-mds:ceph-mds ceph-fuse:ceph-fuse
         ceph-common:ceph nginx:nginx util-linux:unshare python3:python3'
hosts='qemu-system-x86:qemu-system-x86_64 busybox-static cpio:cpio gcc:gcc libc6-dev binutils:strip
       e2fsprogs:mkfs.ext4 iproute2:ip'
stall='fuse-overlayfs:fuse-overlayfs e2fsprogs:mkfs.ext4 mount:losetup nginx:nginx nginx-dev gcc:gcc libc6-dev make:make
       util-linux:unshare util-linux:setpriv python3:python3'
power='qemu-system-x86:qemu-system-x86_64 busybox-static cpio:cpio nginx:nginx gcc:gcc libc6-dev
       binutils:strip openssl:openssl e2fsprogs:mkfs.ext4 xfsprogs:mkfs.xfs btrfs-progs:mkfs.btrfs
       python3:python3'
container='podman:podman buildah:buildah crun:crun netavark aardvark-dns iptables:iptables catatonit
           uidmap:newuidmap debootstrap:debootstrap curl:curl git:git iproute2:ip util-linux:unshare
           util-linux:setpriv python3:python3'

# Optional packages, which may be unavailable. For `make run`: nginx's source, for the module, which is missing with a
# foreign nginx or without root. For the tests: browsers of three engines (on Ubuntu, Chromium and Firefox are only
# snaps, which these names do not install), tools for Python packages (tus clients, Django), programs of recipes, and
# checkers for the types and the size of the page's module. For power failures: HTTP/2, and the compression of Ubuntu's
# kernel modules. Services that this script installs are disabled: the tests start the programs themselves, and caddy's
# service would use port 80.
optional='' idle=''
case ${1:-} in
    build) wanted=$build ;;
    run) wanted="$build $run" optional='nginx-dev' ;;
    test)
        wanted="$build $run $test"
        optional='chromium-driver firefox-esr webkit2gtk-driver xvfb python3-venv apache2-bin caddy haproxy
                  clamav-daemon clamdscan ruby node-typescript esbuild'
        idle='caddy haproxy clamav-daemon clamav-freshclam'
        ;;
    deb) wanted="$build $deb" ;;
    drill) wanted=$drill ;;
    cluster) wanted=$cluster ;;
    hosts) wanted="$cluster $hosts" ;;
    stall) wanted=$stall ;;
    power) wanted=$power optional='python3-h2 zstd' ;;
    container) wanted=$container optional='runc python3-yaml podman-compose python3-venv' ;;
    *)
        echo "usage: $0 build | run | test | deb | drill | cluster | hosts | stall | power | container" >&2
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

# Adds optional packages that can be installed; apt-get checks this without root and network.
add_optional() {
    local package
    for package in $optional; do
        case " $missing " in
            *" $package "*) continue ;;
        esac
        installed "$package" || ! apt-get -s --no-remove install "$package" >/dev/null 2>&1 ||
            missing="$missing $package"
    done
}

# Not fatal: under sudo, PATH differs from the one that make uses.
look_for_swift() {
    case $wanted in
        *libfcgi-dev*) ;;
        *) return 0 ;;
    esac
    command -v swift >/dev/null || {
        echo "swift is not in PATH ($PATH); building requires 6.2 or later:" \
            "https://www.swift.org/install/linux/" >&2
    }
}

# Installs Python programs for the tests below .build; without them those tests are skipped.
add_python() { # directory, list of packages, description
    local root pins programs
    root=$(cd "$(dirname "$0")/.." && pwd)
    pins=$root/$2 programs=$root/.build/$1
    if cmp -s "$pins" "$programs/requirements.txt"; then return 0; fi
    mkdir -p "$root/.build"
    # The list is copied last: its presence means that the installation is complete.
    { python3 -m venv --clear "$programs" &&
        "$programs/bin/python" -m pip install --disable-pip-version-check --only-binary :all: \
            --retries 1 --timeout 20 --requirement "$pins" &&
        cp "$pins" "$programs/"; } >"$programs.log" 2>&1 ||
        echo "$3 cannot be installed, so their tests are skipped: $(tail -n 1 "$programs.log")" >&2
}

add_python_programs() {
    case $1 in
        test) add_python tus-clients Tests/TusClients/requirements.txt 'tuspy and aiotus' ;;
    esac
    case $1 in
        test | container) add_python kubernetes Tests/Lab/Container/requirements.txt "Kubernetes' schemas" ;;
    esac
}

as_root=''
if [ "$(id -u)" -ne 0 ]; then as_root=$(command -v sudo || echo none); fi
if [ -z "$missing" ]; then
    [ "$as_root" = none ] || add_optional
    [ -n "$missing" ] || {
        add_python_programs "$1"
        look_for_swift
        exit 0
    }
fi

command -v apt-get >/dev/null || {
    echo "missing packages, and no apt-get to install them:$missing" >&2
    exit 1
}
[ "$as_root" != none ] || {
    printf '%s\n' "missing:$missing" \
        'sudo is missing. Run this as root, then try again:' \
        "    apt-get update && apt-get install -y --no-install-recommends$missing" >&2
    exit 1
}

$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update
add_optional
echo "installing:$missing"
case "$missing " in
    *' nginx '*)
        echo "the package nginx starts a service on port 80, which make run does not use;" \
            "to disable it: systemctl disable --now nginx"
        ;;
esac
new=''
for service in $idle; do
    installed "$service" || new="$new $service"
done
# shellcheck disable=SC2086 # a list of words
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $missing
for service in $new; do
    if installed "$service" && command -v systemctl >/dev/null; then
        # A service with a socket is stopped with it. Without systemd no service was started.
        $as_root systemctl disable "$service" >/dev/null 2>&1 || :
        $as_root systemctl stop "$service.socket" "$service" >/dev/null 2>&1 || :
        echo "disabled, because only tests need it: $service.service"
    fi
done
add_python_programs "$1"
look_for_swift
