#!/usr/bin/env bash
# tools/bounded.sh CPU WALL LOG COMMAND...
# Runs a command with its output on the terminal and in LOG. When it and all that it has started have used CPU seconds of
# processors, or WALL seconds have gone by, all of them are killed, and the exit code is 124. The last line of LOG.cpu is
# the number of seconds of processors. With BOUNDED_IDLE the command gets the time that others leave processors idle.
set -u
cpu=$1 wall=$2 log=$3
shift 3
ticks=$(getconf CLK_TCK)
: >"$log"

# Prints the clock ticks of a process and its descendants, and then their numbers. What has ended counts in its parent.
family() {
  cat /proc/[0-9]*/stat 2>/dev/null | awk -v root="$1" '
    { number = $1
      sub(/.*\) /, "")
      parent[number] = $2
      ticks[number] = $12 + $13 + $14 + $15 }
    END {
      for (number in parent) {
        above = number
        while (above != root && above in parent) above = parent[above]
        if (above == root) { sum += ticks[number]; members = members " " number }
      }
      print sum + 0, members
    }'
}

end_all() {
  local members
  # Again, because a process may start another between the look and the kill.
  for _ in 1 2 3; do
    read -r _ members < <(family "$child")
    # shellcheck disable=SC2086 # the numbers are several words
    [ -z "$members" ] || kill -KILL $members 2>/dev/null
  done
}

# A session is a group of its own for the scheduler, which looks at the niceness of the group first.
[ -z "${BOUNDED_IDLE:-}" ] ||
  set -- bash -c '{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec nice -n 19 "$@"' bash "$@"
setsid "$@" >"$log" 2>&1 </dev/null &
child=$!
tail -n +1 -f --pid="$child" "$log" &
shown=$!
trap 'end_all; exit 130' INT TERM

why='' used=0 pause=0.1
while kill -0 "$child" 2>/dev/null; do
  read -r used _ < <(family "$child")
  used=$((used / ticks))
  if [ "$used" -gt "$cpu" ]; then
    why="it has used more than $cpu s of processors"
  elif [ "$SECONDS" -gt "$wall" ]; then
    why="it has taken more than $wall s"
  fi
  # The shell would tell of each process that was killed.
  [ -z "$why" ] || { exec 2>/dev/null; end_all; break; }
  sleep "$pause"
  [ "$SECONDS" -lt 5 ] || pause=2
done
wait "$child"
status=$?
wait "$shown"
if [ -n "$why" ]; then
  echo "ENDED: $why" | tee -a "$log"
  status=124
else
  # Those that were waited for are counted to the hundredth.
  times >"$log.cpu"
  used=$(awk 'NR == 2 { gsub(/[ms]/, " "); printf "%d", $1 * 60 + $2 + $3 * 60 + $4 + 0.5 }' "$log.cpu")
fi
echo "$used" >"$log.cpu"
exit "$status"
