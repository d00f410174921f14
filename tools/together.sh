#!/usr/bin/env bash
# Runs commands side by side, each of which keeps only one processor busy. Prints what each has said when all have ended.
set -u
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
calls=() failed=0
for command in "$@"; do
  "$command" >"$logs/${#calls[@]}" 2>&1 &
  calls+=($!)
done
for call in "${!calls[@]}"; do
  status=0
  wait "${calls[$call]}" || status=$?
  cat "$logs/$call"
  [ "$status" = 0 ] || { failed=1; echo "FAILED ${*:call+1:1} ($status)"; }
done
exit "$failed"
