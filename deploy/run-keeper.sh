#!/usr/bin/env bash
# Ends all processes of sessions, regardless of their parents (for deploy/run.sh).
#
# If nginx's master is killed, its workers survive and keep its ports. They are then orphans, and under root
# they have another user; but every process stays in the session in which it was created, and the kernel
# does not reuse a session's number while it has processes.
#
# usage: run-keeper.sh SESSION...    ends them at once
#        run-keeper.sh               reads lines of a name and its current session. The end of input
#                                    means that run.sh has ended in any way: ends the current ones
#
# Environment: GRACE, the seconds between SIGTERM and SIGKILL at the end of input.

set -euo pipefail

# Prints the processes of the given sessions, and those that will become their leaders.
members() {
    local file line fields pid
    for file in /proc/[0-9]*/stat; do
        { read -r line <"$file"; } 2>/dev/null || continue
        pid=${file#/proc/} pid=${pid%/stat}
        # After the program's name in parentheses: state, parent, process group, session.
        read -ra fields <<<"${line##*) }"
        case ${fields[0]} in
            Z | X) continue ;;
        esac
        case " $* " in
            *" ${fields[3]:-none} "* | *" $pid "*) printf '%s ' "$pid" ;;
        esac
    done
}

# Ends the sessions, until no process remains, or only processes that cannot be ended.
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
