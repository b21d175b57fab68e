#!/usr/bin/env bash
# Writes the identity of the build into linked programs: BUILD if set, else the commit of this source, followed by
# -modified if there are uncommitted changes. Programs built from a source without a history get none, and report that.
# usage: identify.sh PROGRAM...
#
# The files keep their size and time, so that the build system does not link them again.

set -euo pipefail
tree=$(cd "$(dirname "$0")/.." && pwd)
export LC_ALL=C

die() {
    echo "identify.sh: $1" >&2
    exit 1
}

identity() {
    local commit
    if [ -n "${BUILD:-}" ]; then
        printf '%s' "$BUILD"
        # A source inside another repository has no history of its own.
    elif [ "$(git -C "$tree" rev-parse --show-cdup 2>/dev/null || echo none)" = '' ] &&
        commit=$(git -C "$tree" rev-parse --short HEAD 2>/dev/null); then
        [ -z "$(git -C "$tree" status --porcelain)" ] || commit=$commit-modified
        printf '%s' "$commit"
    fi
}

build=$(identity)
case $build in
    *[!A-Za-z0-9.+~:_-]*) die "BUILD is '$build': use letters, digits and .+~:_- only" ;;
esac

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for program; do
    # Offset and size of the section that Sources/Base/CLinux/build.c defines.
    place=$(readelf -SW "$program" |
        sed -n 's/^ *\[ *[0-9]*\] \.spoolgate\.build  *PROGBITS  *[0-9a-f]*  *\([0-9a-f]*\)  *\([0-9a-f]*\) .*/\1 \2/p')
    [ -n "$place" ] || die "$program has no section .spoolgate.build"
    offset=$((16#${place% *})) size=$((16#${place#* }))
    [ "${#build}" -lt "$size" ] || die "BUILD is '$build': use at most $((size - 1)) characters"
    { printf '%s' "$build" && head -c "$((size - ${#build}))" /dev/zero; } >"$scratch/text"
    ! cmp -s -i "0:$offset" -n "$size" "$scratch/text" "$program" || continue
    touch -r "$program" "$scratch/time"
    write() { dd if="$scratch/text" of="$1" bs="$size" seek="$offset" oflag=seek_bytes conv=notrunc status=none; }
    # A running program cannot be written to: a copy replaces it, and the next build links it again.
    write "$program" 2>/dev/null || {
        cp -p "$program" "$program.new" && write "$program.new" && mv "$program.new" "$program"
    }
    touch -r "$scratch/time" "$program"
done
