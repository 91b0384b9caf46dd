#!/usr/bin/env bash
# parts.sh PART... runs targets of the Makefile one after the other, prints what each took, and ends what one of them left
# running. It stops at the first that fails, and at a Ctrl-C.
set -uo pipefail
cd "$(dirname "$0")/.."
# What a part starts has this in its environment, however it was started.
mark=ELASTIC_PART=$$-$RANDOM
began=$SECONDS status=0 names=() took=()
trap 'status=130' INT TERM

# left lists the processes that parts have started and that still run.
left() { grep -lz "^$mark\$" /proc/[0-9]*/environ 2>/dev/null | sed 's,/proc/\([0-9]*\)/.*,\1,'; }

# clean gives them a while to end by themselves, as they do when what started them is gone, then ends and names them.
clean() {
  for _ in $(seq "${GRACE_TICKS:-150}"); do
    [ -n "$(left)" ] || return 0
    sleep 0.2
  done
  for pid in $(left); do
    echo "$1 left process $pid running, it is ended: $(tr '\0' ' ' <"/proc/$pid/cmdline")" >&2
    kill -KILL "$pid"
  done
  return 1
}

built=
for part in "$@"; do
  printf '\n== %s\n' "$part"
  start=$SECONDS
  env "$mark" "${MAKE:-make}" --no-print-directory $built "$part" || { code=$?; [ "$status" -ne 0 ] || status=$code; }
  clean "$part" || [ "$status" -ne 0 ] || status=1
  names+=("$part") took+=($((SECONDS - start)))
  [ "$status" -eq 0 ] || break
  [ "$part" != build ] || built=BUILT=1
done

printf '\n%-16s seconds\n' part
for i in "${!names[@]}"; do printf '%-16s %7d\n' "${names[i]}" "${took[i]}"; done
printf '%-16s %7d\n' all $((SECONDS - began))
[ "$status" -eq 0 ] || echo "${names[-1]} failed" >&2
exit "$status"
