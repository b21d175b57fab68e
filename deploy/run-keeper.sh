#!/usr/bin/env bash
# Ends the processes of sessions, all of them, whoever their parents were (for deploy/run.sh).
#
# nginx's workers outlive a master that is killed, and keep its ports. They are nobody's children
# then, and under root another user's; but every process stays in the session it was born in, and the
# kernel gives a session's number to nobody else while one process of it is left.
#
# usage: run-keeper.sh SESSION...    ends them at once
#        run-keeper.sh               reads lines of a name and its present session. At the end of
#                                    input, run.sh is gone, however it went: ends the present ones
#
# Environment: GRACE, the seconds between SIGTERM and SIGKILL at the end of input.

set -euo pipefail

# The processes of the sessions given, and those that are about to become their leaders.
members() {
    local file line fields pid
    for file in /proc/[0-9]*/stat; do
        { read -r line <"$file"; } 2>/dev/null || continue
        pid=${file#/proc/} pid=${pid%/stat}
        # After the program's name in brackets: state, parent, process group, session.
        read -ra fields <<<"${line##*) }"
        case ${fields[0]} in
            Z | X) continue ;;
        esac
        case " $* " in
            *" ${fields[3]:-none} "* | *" $pid "*) printf '%s ' "$pid" ;;
        esac
    done
}

# Ends when none is left, or none that can be ended.
end() { # seconds of grace, session...
    local kill_at=$((SECONDS + $1)) left told=''
    shift
    while left=$(members "$@") && [ -n "$left" ] && [ "$SECONDS" -lt $((kill_at + 10)) ]; do
        # shellcheck disable=SC2086 # a list of processes
        if [ "$SECONDS" -ge "$kill_at" ]; then
            kill -KILL $left 2>/dev/null || true
        elif [ -z "$told" ]; then
            kill -TERM $left 2>/dev/null || true
            told=yes
        fi
        sleep 0.1
    done
}

if [ $# -gt 0 ]; then
    end 0 "$@"
    exit
fi

trap '' HUP INT TERM
declare -A session=()
while read -r name number; do session[$name]=$number; done
[ ${#session[@]} -eq 0 ] || end "${GRACE:-3}" "${session[@]}"
rm -f spoolgate.sock admin.sock spoolgate.pid run.pid
