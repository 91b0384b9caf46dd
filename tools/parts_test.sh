#!/usr/bin/env bash
# Tests parts.sh with parts that pass, fail, leave something running, and are interrupted.
set -euo pipefail
[ -d /proc/self ] || { echo "parts.sh: it finds what is left running by /proc alone"; exit 0; }
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/tools" && cp "$here/parts.sh" "$dir/tools"
printf '%s\n' '.PHONY: build good bad leaves slow' 'build good:' '	@echo "$@ built=$(BUILT)"' 'bad:' '	@false' \
  'leaves:' '	@(setsid sleep 1000 >/dev/null 2>&1 & echo $$! >left)' 'slow:' '	@touch begun; exec sleep 1000' >"$dir/Makefile"
cd "$dir"
export GRACE_TICKS=1

# says CODE TEXT PART... runs parts, which must end so and say so.
says() {
  local code=$1 text=$2 got=0
  shift 2
  tools/parts.sh "$@" >out 2>&1 || got=$?
  [ "$got" = "$code" ] && grep -Eq "$text" out || { echo "parts.sh $*: ended with $got, not $code, or does not say $text"; cat out; exit 1; }
}

says 0 '^good built=1$' build good
says 0 '^all +[0-9]+$' build good
says 2 '^bad failed$' bad good
! grep -q '^== good' out || { echo "it goes on after a part that failed"; exit 1; }
says 1 'leaves left process [0-9]+ running' leaves
# Where no init collects it, it stays as a zombie.
runs() { grep -qE '^State:[[:space:]]+[^ZX]' "/proc/$(cat left)/status" 2>/dev/null; }
for _ in $(seq 50); do runs || break; sleep 0.1; done
! runs || { echo "what a part left still runs"; cat out; exit 1; }

# A Ctrl-C reaches all processes of the terminal's group. Where this test itself runs in the background the signal is
# ignored, which children inherit.
set -m # gives it a group of its own
env --default-signal=INT tools/parts.sh slow good >out 2>&1 &
group=$!
until [ -e begun ]; do sleep 0.1; done
kill -INT -- "-$group"
wait "$group" && code=0 || code=$?
[ "$code" = 130 ] && grep -q '^slow failed' out || { echo "after a Ctrl-C it ended with $code"; cat out; exit 1; }
echo "parts.sh: ok"
