#!/usr/bin/env bash
# Tests parts.sh with parts that pass, fail, leave something running, mounted or lying about, and are interrupted.
set -euo pipefail
[ -d /proc/self ] || { echo "parts.sh: it finds what is left running by /proc alone"; exit 0; }
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
end() {
  ! mountpoint -q "$dir/mounted" || umount "$dir/mounted"
  rm -rf "$dir"
}
trap end EXIT
mkdir "$dir/tools" "$dir/tmp" "$dir/mounted" && cp "$here/parts.sh" "$dir/tools"
cat >"$dir/Makefile" <<'END'
.PHONY: build good bad leaves folder mount slow skips both tests stubborn
build good:
	@echo "$@ built=$(BUILT)"
bad:
	@false
leaves:
	@(setsid sleep 1000 >/dev/null 2>&1 & echo $$! >left)
folder:
	@mkdir "$$TMPDIR/elastic-left"
mount:
	@mount -t tmpfs elastic-parts mounted
skips both:
	@echo "no browser" >>"$$ELASTIC_SKIPPED/skips"
tests:
	@echo "--- FAIL: TestOne"; echo "    one_test.go:7: it is not"; seq 1000; exit 1
stubborn:
	@echo $$PPID >left; trap '' TERM; touch begun; while :; do sleep 0.1; done
slow:
	@(setsid sleep 1000 >/dev/null 2>&1 & echo $$! >left); touch begun; exec sleep 1000
END
cd "$dir"
export GRACE_TICKS=1 TMPDIR=$dir/tmp

# says CODE TEXT PART... runs parts, which must end so and say so.
says() {
  local code=$1 text=$2 got=0
  shift 2
  tools/parts.sh "$@" >out 2>&1 || got=$?
  [ "$got" = "$code" ] && grep -Eq "$text" out || { echo "parts.sh $*: ended with $got, not $code, or does not say $text"; cat out; exit 1; }
}

# ended waits until what a part has started is no more. Where no init collects it, it stays as a zombie.
runs() { grep -qE '^State:[[:space:]]+[^ZX]' "/proc/$(cat left)/status" 2>/dev/null; }
ended() {
  for _ in $(seq 50); do runs || return 0; sleep 0.1; done
  echo "what a part left still runs"; cat out; exit 1
}

says 0 '^good built=1$' build good
says 0 '^all +[0-9]+ +[0-9]+$' build good
says 2 '^tests failed$' good tests
[ "$(tail -4 out | head -2)" = "> --- FAIL: TestOne
>     one_test.go:7: it is not" ] || { echo "it does not end with what failed"; tail out; exit 1; }
says 2 '^bad failed$' bad good
! grep -q '^== good' out || { echo "it goes on after a part that failed"; exit 1; }
says 1 'leaves left process [0-9]+ running' leaves
ended

says 0 'folder left folder .*/tmp/elastic-left$' folder
says 0 '^good' good
! grep -q ' left ' out || { echo "it names what was there before"; exit 1; }
rmdir tmp/elastic-left
# Of a process that no part has started.
env ELASTIC_HOME="$TMPDIR/elastic-left" sleep 1000 &
says 0 '^folder ' folder
! grep -q ' left ' out || { echo "it names what another process uses"; exit 1; }
kill $!
if [ "$(id -u)" = 0 ] && mount -t tmpfs elastic-parts mounted 2>/dev/null; then
  umount mounted
  says 1 'mount left mount .*/mounted$' mount
  ! mountpoint -q mounted || { echo "it leaves mounted what a part left so"; exit 1; }
else
  echo "parts.sh: no mounts here"
fi

# What did not run is named, and why; in CI that is a failure.
unset CI
says 0 '^skips +[0-9]+ +[0-9]+  skipped: no browser$' skips good
grep -q '^all checks passed that this machine can run$' out || { echo "it says that all has passed"; cat out; exit 1; }
says 0 '^both +[0-9]+ +[0-9]+  skips skipped: no browser$' both
says 0 '^all checks passed$' build good
CI=true says 1 '^skips failed$' skips good
CI=true says 0 '^all checks passed$' good

# interrupted SIGNAL CODE TO PART sends a signal TO parts.sh alone, or to its group, while a part runs.
set -m # gives it a group of its own
interrupted() {
  local code=0 process
  rm -f begun
  # Where this test itself runs in the background the signal is ignored, which children inherit.
  env --default-signal="$1" tools/parts.sh "$4" good >out 2>&1 &
  process=$!
  until [ -e begun ]; do sleep 0.1; done
  if [ "$3" = group ]; then kill -s "$1" -- "-$process"; else kill -s "$1" "$process"; fi
  wait "$process" || code=$?
  [ "$code" = "$2" ] && grep -q "^$4 interrupted" out || { echo "after $1 it ended with $code"; cat out; exit 1; }
  ! grep -q '^== good' out || { echo "it goes on after $1"; cat out; exit 1; }
  ended
}
# A Ctrl-C reaches all processes of the terminal's group; others end what they have started. What has left the group is ended, too.
for signal in "INT 130 group" "TERM 143 process" "HUP 129 process"; do
  interrupted $signal slow
  grep -Eq 'slow left process [0-9]+ running' out || { echo "after $signal it does not name what is left"; cat out; exit 1; }
done
interrupted TERM 143 process stubborn
echo "parts.sh: ok"
