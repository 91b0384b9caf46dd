#!/usr/bin/env bash
# parts.sh PART... runs targets of the Makefile one after the other, prints what each took and the seconds that processors
# worked for it (daemons that nobody waited for are not in them), ends what one of them left running, takes away what one left
# mounted, and names folders that one left lying about. It stops at the first that fails, and at a Ctrl-C.
set -uo pipefail
cd "$(dirname "$0")/.."
# What a part starts has this in its environment, however it was started.
mark=ELASTIC_PART=$$-$RANDOM
began=$SECONDS status=0 names=() ended=failed took=() worked=()
trap 'status=130 ended=interrupted' INT TERM

# left lists the processes that parts have started and that still run.
left() { grep -lz "^$mark\$" /proc/[0-9]*/environ 2>/dev/null | sed 's,/proc/\([0-9]*\)/.*,\1,'; }

# things lists what a part may leave beside processes, of what bears our name or lies in our folders.
temporary=${TMPDIR:-/tmp}
things() {
  {
    # The folder in which ports are reserved stays.
    find "$temporary" -maxdepth 1 -type d -name 'elastic-*' ! -name 'elastic-ports-*' -user "$(id -u)" | sed 's/^/folder /'
    find /sys/class/net -name 'elastic*' | sed 's,.*/,network link ,'
    find /sys/fs/cgroup -maxdepth 2 -type d -name 'elastic-*' | sed 's/^/cgroup /'
    awk -v a="$temporary/" -v b="$PWD/" 'index($2, a) == 1 || index($2, b) == 1 || /elastic/ {print "mount " $2}' /proc/self/mounts
  } 2>/dev/null | sort -u
}

# used says whether a thing is another's, who runs tests at the same time: all of ours has ended by then.
used() {
  local name=${1##* }
  case $1 in
  "network link "*) grep -rqs --include=cgroup.procs . /sys/fs/cgroup/{,*/}"elastic-${name#elastic}" ;;
  "cgroup "*) grep -rqs --include=cgroup.procs . "$name" ;;
  *) grep -qzsF -f - /proc/[0-9]*/{cmdline,environ} <<<"$name" ;;
  esac
}

# remain lists the things that are there since the part began.
remain() {
  local thing
  comm -13 <(printf '%s\n' "$before") <(things) | while read -r thing; do used "$thing" || echo "$thing"; done
}

# gone COMMAND TICKS waits until a command lists nothing.
gone() {
  local tick
  for tick in $(seq "$2"); do
    [ -n "$($1)" ] || return 0
    sleep 0.2
  done
  return 1
}

# remove takes a thing away that nobody uses. Folders stay: a test that fails keeps its logs, and whose one is is not sure.
remove() {
  local name=${1##* }
  case $1 in
  "mount "*) umount -l "$name" ;;
  "network link "*) ip link delete "$name" ;;
  "cgroup "*) find "$name" -depth -type d -exec rmdir {} + ;;
  esac
}

# clean gives processes a while to end by themselves, as they do when what started them is gone, then ends and names them, and
# what else is left. A folder alone is no failure.
clean() {
  local pid code=0 things thing
  if ! gone left "${GRACE_TICKS:-150}"; then
    code=1
    for pid in $(left); do
      echo "$1 left process $pid running, it is ended: $(tr '\0' ' ' <"/proc/$pid/cmdline")" >&2
      kill -KILL "$pid"
    done
  fi
  if ! gone remain "${GRACE_TICKS:-25}"; then
    things=$(remain)
    [ -z "$things" ] || sed "s/^/$1 left /" <<<"$things" >&2
    ! grep -qE '^(mount|network link|cgroup) ' <<<"$things" || code=1
    # The innermost mounts first.
    sort -r <<<"$things" | while read -r thing; do remove "$thing" || echo "it is still there: $thing" >&2; done
  fi
  return $code
}

# spent prints the seconds that the processors worked for what has ended so far.
spent() {
  local of=()
  read -ra of 2>/dev/null </proc/$$/stat
  echo $(((${of[15]:-0} + ${of[16]:-0}) / $(getconf CLK_TCK)))
}

built=
for part in "$@"; do
  printf '\n== %s\n' "$part"
  start=$SECONDS busy=$(spent)
  before=$(things)
  env "$mark" "${MAKE:-make}" --no-print-directory $built "$part" || { code=$?; [ "$status" -ne 0 ] || status=$code; }
  clean "$part" || [ "$status" -ne 0 ] || status=1
  names+=("$part") took+=($((SECONDS - start))) worked+=($(($(spent) - busy)))
  echo "== $part took ${took[-1]} s, of processors ${worked[-1]} s"
  [ "$status" -eq 0 ] || break
  [ "$part" != build ] || built=BUILT=1
done

row='%-32s %7s %10s\n'
printf "\n$row" part seconds processors
for i in "${!names[@]}"; do printf "$row" "${names[i]}" "${took[i]}" "${worked[i]}"; done
printf "$row" all $((SECONDS - began)) "$(spent)"
[ "$status" -eq 0 ] || echo "${names[-1]} $ended" >&2
exit "$status"
