#!/usr/bin/env bash
# parts.sh PART... runs targets of the Makefile one after the other, prints what each took and the seconds that processors
# worked for it (daemons that nobody waited for are not in them), ends what one of them left running, takes away what one left
# mounted, and names folders that one left lying about. It stops at the first that fails, and at a Ctrl-C, TERM or HUP, which the
# part gets at once. Lines that say what failed come once more at the end, where they are found. A part that this machine cannot run writes why into a file of its name in the folder ELASTIC_SKIPPED, and that
# is printed at the end; with CI=true, where all can be run, it is a failure.
set -uo pipefail
cd "$(dirname "$0")/.."
# What a part starts has this in its environment, however it was started.
mark=ELASTIC_PART=$$-$RANDOM
began=$SECONDS status=0 names=() ended=failed took=() worked=() notes=() running='' signal=''
own=$(mktemp -d)
skipped=$own/skipped said=$own/said
mkdir "$skipped"
export ELASTIC_SKIPPED=$skipped
trap 'rm -rf "$own"' EXIT

# A part has a process group of its own, so that a signal reaches all of it at once and nobody else; with a session of its own
# that takes no terminal. Without setsid the terminal's Ctrl-C reaches it as it reaches this, and make passes on the others.
apart=()
! command -v setsid >/dev/null || apart=(setsid)

# interrupt SIGNAL CODE ends the part that runs, and what comes after it.
interrupt() {
  signal=$1 status=$2 ended=interrupted
  [ -z "$running" ] || pass_on "$1"
}
pass_on() { kill -s "$1" -- "-$running" 2>/dev/null || kill -s "$1" "$running" 2>/dev/null; }
trap 'interrupt HUP 129' HUP
trap 'interrupt INT 130' INT
trap 'interrupt TERM 143' TERM

# run PART runs it in the background, since bash takes no signal while it waits for what is in front. What bash starts there has INT
# and QUIT switched off, which is taken back.
run() {
  local code ticks=0 copier= out=1 err=2
  if [ ! -t 1 ]; then # a terminal stays one for the part
    exec {out}> >(exec tee -i "$said")
    copier=$! err=$out
  fi
  (trap - INT QUIT && exec "${apart[@]}" env "$mark" "${MAKE:-make}" --no-print-directory $built "$1") >&"$out" 2>&"$err" &
  running=$!
  [ -z "$signal" ] || pass_on "$signal"
  wait "$running" && code=0 || code=$?
  # A signal ends the waiting before it ends the part.
  while kill -0 "$running" 2>/dev/null; do
    [ $((ticks += 1)) -lt "${GRACE_TICKS:-150}" ] || pass_on KILL
    sleep 0.2
  done
  running=
  if [ -n "$copier" ]; then
    exec {out}>&-
    for ((ticks = 0; ticks < 20; ticks++)); do # what the part left running may have its output open
      kill -0 "$copier" 2>/dev/null || break
      sleep 0.1
    done
  fi
  return "$code"
}

# failures prints the lines of the last part that say what failed: logs that follow them are long.
failures() {
  [ -s "$said" ] || return 0
  awk '/^ *--- FAIL|^ *[^ :]+_test\.go:[0-9]+: |^panic: |^FAIL[[:space:]]|\*\*\* |WARNING: DATA RACE/ && ++n <= 40 {print "> " substr($0, 1, 300)}' "$said"
}

# skips PART prints what of it did not run here, and why.
skips() {
  local file
  for file in "$skipped"/*; do
    [ -e "$file" ] || continue
    [ "${file##*/}" = "$1" ] || printf '%s ' "${file##*/}"
    printf 'skipped: %s\n' "$(paste -sd, "$file")"
    rm "$file"
  done | paste -sd';'
}

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
  run "$part" || { code=$?; [ "$status" -ne 0 ] || status=$code; }
  clean "$part" || [ "$status" -ne 0 ] || status=1
  names+=("$part") took+=($((SECONDS - start))) worked+=($(($(spent) - busy)))
  notes+=("$(skips "$part")")
  if [ -n "${notes[-1]}" ] && [ "${CI:-}" = true ]; then
    echo "in CI all is to run: $part ${notes[-1]}" >&2
    [ "$status" -ne 0 ] || status=1
  fi
  echo "== $part took ${took[-1]} s, of processors ${worked[-1]} s"
  [ "$status" -eq 0 ] || break
  [ "$part" != build ] || built=BUILT=1
done

widest=$(printf '%s\n' "${names[@]}" | awk '{if (length > n) n = length} END {print n + 0}')
row="%-${widest}s %7s %10s  %s\n"
{
  printf "\n$row" part seconds processors ''
  for i in "${!names[@]}"; do printf "$row" "${names[i]}" "${took[i]}" "${worked[i]}" "${notes[i]}"; done
  printf "$row" all $((SECONDS - began)) "$(spent)" ''
} | sed 's/ *$//'
if [ "$status" -ne 0 ]; then
  [ "$ended" = interrupted ] || failures >&2
  echo "${names[-1]} $ended" >&2
elif [ -n "$(printf %s "${notes[@]}")" ]; then
  echo "all checks passed that this machine can run"
else
  echo "all checks passed"
fi
exit "$status"
