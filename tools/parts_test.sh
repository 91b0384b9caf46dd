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
.PHONY: build good bad leaves folder mount slow
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

# A Ctrl-C reaches all processes of the terminal's group, and none that has left it. Where this test itself runs in the
# background the signal is ignored, which children inherit.
set -m # gives it a group of its own
env --default-signal=INT tools/parts.sh slow good >out 2>&1 &
group=$!
until [ -e begun ]; do sleep 0.1; done
kill -INT -- "-$group"
wait "$group" && code=0 || code=$?
[ "$code" = 130 ] && grep -q '^slow interrupted' out || { echo "after a Ctrl-C it ended with $code"; cat out; exit 1; }
grep -Eq 'slow left process [0-9]+ running' out || { echo "after a Ctrl-C it does not name what is left"; cat out; exit 1; }
ended
echo "parts.sh: ok"
