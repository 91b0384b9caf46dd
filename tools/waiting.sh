#!/usr/bin/env bash
# waiting.sh WORDS COMMAND... runs a command that is silent for long. It says first what that does and how long it takes, and then
# every 15 seconds for how long it has run, all on stderr.
set -uo pipefail
every=${WAITING_EVERY:-15}
echo "$1" >&2
shift
# In short pauses, since the last one outlives what was waited for.
(
  seconds=0
  while sleep 1 && kill -0 $$ 2>/dev/null; do
    seconds=$((seconds + 1))
    [ $((seconds % every)) != 0 ] || echo "  ... $seconds s" >&2
  done
) >/dev/null &
ticks=$!
trap 'kill "$ticks" 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
"$@"
