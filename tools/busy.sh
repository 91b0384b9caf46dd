#!/usr/bin/env bash
# busy.sh has the local cluster start and run on a machine that has other work to do: LOOPS (15) busy loops, first so, and then with
# 2 GiB of memory for all of the cluster's processes together (MEMORY, in MiB). It prints lines "figure NAME VALUE UNIT", and fails where
# the first job does not finish, a program ended, a leader lost its lease, or the memory was not enough. The cluster is one of its
# own, and STAY (180) are the seconds for which it then runs; it and the loops are ended, also at a Ctrl-C.
set -euo pipefail
cd "$(dirname "$0")/.."
loops=${LOOPS:-15} stay=${STAY:-180} memory=${MEMORY:-2048}
home=$(mktemp -d) pids=() waited='' group=''
export ELASTIC_HOME=$home ELASTIC_NAME=busy

end() {
  [ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true
  [ -z "$waited" ] || kill "$waited" 2>/dev/null || true
  leave || true
  rm -rf "$home"
}
# leave ends the cluster, and removes its group of processes.
leave() {
  bin/elastic down >/dev/null 2>&1 || true
  [ -z "$group" ] || [ ! -e "$group/cgroup.procs" ] || until rmdir "$group" 2>/dev/null; do
    [ $((tries += 1)) -lt 50 ] || { echo "$group is still there" >&2; break; }
    sleep 0.2
  done
  group=
  rm -rf "${home:?}"/*
}
tries=0
trap end EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# later COMMAND... waits for it so that a signal is taken at once.
later() {
  local code=0
  "$@" &
  waited=$!
  wait "$waited" || code=$?
  waited=
  return "$code"
}

# limit makes a group of processes that has so much memory together: a cgroup where this is root, else a scope of systemd's.
# It fails where neither is possible.
limit() {
  local root
  for root in /sys/fs/cgroup/memory /sys/fs/cgroup; do
    [ "$(id -u)" = 0 ] && [ -w "$root/cgroup.procs" ] || continue
    group=$root/elastic-busy-$$
    mkdir "$group" 2>/dev/null || continue
    [ -e "$group/memory.limit_in_bytes" ] || [ -e "$group/memory.max" ] || echo +memory 2>/dev/null >"$root/cgroup.subtree_control" || true
    echo $((memory << 20)) 2>/dev/null >"$group/memory.limit_in_bytes" && return
    echo $((memory << 20)) 2>/dev/null >"$group/memory.max" && { echo 0 2>/dev/null >"$group/memory.swap.max" || true; } && return
    rmdir "$group"
  done
  group=
  scope=elastic-busy-$$
  systemd-run --user --scope --quiet true 2>/dev/null
}

# up starts the cluster, in the group where there is one, and waits until its first job has finished.
up() {
  if [ -n "$group" ]; then
    later bash -c 'echo $$ >"$1/cgroup.procs" && exec bin/elastic up --detach' up "$group"
  elif [ "$1" = small ]; then
    later systemd-run --user --scope --quiet --unit="$scope" -p "MemoryMax=${memory}M" -p MemorySwapMax=0 bin/elastic up --detach
  else
    later bin/elastic up --detach
  fi
}

# peak is the most memory that the group had at once, in MiB, with what the kernel has read of files for it.
peak() {
  local at=$group file
  [ -n "$at" ] || at=/sys/fs/cgroup$(systemctl --user show -P ControlGroup "$scope.scope")
  for file in memory.max_usage_in_bytes memory.peak; do
    [ ! -e "$at/$file" ] || { awk '{printf "%d", $1 / 1048576}' "$at/$file"; return; }
  done
  echo 0
}
# killed is how many processes the kernel ended since the memory was not enough.
killed() {
  local at=$group
  [ -n "$at" ] || at=/sys/fs/cgroup$(systemctl --user show -P ControlGroup "$scope.scope")
  cat "$at/memory.oom_control" "$at/memory.events" 2>/dev/null | awk '$1 == "oom_kill" {n = $2} END {print n + 0}'
}

# leases lists who leads, and how often that was another; nodes have leases that nobody competes for.
leases() {
  bin/elastic kubectl get leases -A -o 'jsonpath={range .items[?(@.metadata.namespace!="kube-node-lease")]}{.metadata.namespace}/{.metadata.name} {.spec.holderIdentity} {.spec.leaseTransitions}{"\n"}{end}' | sort
}
# processes are those of the cluster.
processes() { grep -iE '"(sandbox)?pid":' "$home/busy/state.json" | tr -d ' ,'; }

# try NAME starts the cluster and has it run for a while.
try() {
  local name=$1 log=$home/busy/log/up.log began=$SECONDS first lost restarts
  echo "elastic up, $2: a minute or two" >&2
  up "$name" >&2 || { echo "it did not start" >&2; return 1; }
  first=$((SECONDS - began))
  echo "figure ${name}_ready_seconds $(sed -n 's/^Elastic is ready (\([0-9.]*\) s in all)$/\1/p' "$log") s"
  echo "figure ${name}_first_job_seconds $first s"
  leases >"$home/leases" && [ -s "$home/leases" ] || { echo "it has no leases" >&2; return 1; }
  processes >"$home/processes"
  echo "it runs for $stay seconds, at a load of $(cut -d' ' -f1 /proc/loadavg 2>/dev/null || uptime)" >&2
  later sleep "$stay"
  lost=$(leases | comm -23 "$home/leases" - | wc -l)
  restarts=$(grep -c 'starting it again' "$log" || true)
  processes | cmp -s "$home/processes" - || [ "$restarts" -gt 0 ] || restarts=1
  echo "figure ${name}_leases $(wc -l <"$home/leases") leases"
  echo "figure ${name}_leases_lost $lost leases"
  echo "figure ${name}_programs_ended $restarts programs"
  if [ "$name" = small ]; then
    echo "figure ${name}_peak_mib $(peak) MiB"
    echo "figure ${name}_killed $(killed) processes"
    [ "$(killed)" = 0 ] || return 1
  fi
  if [ "$lost" != 0 ] || [ "$restarts" != 0 ]; then
    grep 'starting it again' "$log" >&2 || true
    leases | diff "$home/leases" - >&2 || true
    return 1
  fi
}

[ -x bin/elastic ] || { echo "build first: make build-first" >&2; exit 1; }
# Each ends by itself, should nobody be there to end it.
for _ in $(seq "$loops"); do
  (trap - EXIT; SECONDS=0; while [ "$SECONDS" -lt $((2 * stay + 1200)) ]; do :; done) &
  pids+=($!)
done
echo "figure busy_loops $loops loops"
status=0
try busy "beside $loops busy loops" || status=1
leave
if limit; then
  try small "beside them, with $memory MiB of memory" || status=1
else
  echo "no limit of memory is possible here: it takes root and cgroups, or systemd for users" >&2
fi
[ "$status" = 0 ] && echo "a busy and a small machine do" || echo "see above what a busy or small machine does not do" >&2
exit "$status"
