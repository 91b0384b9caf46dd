#!/usr/bin/env bash
# cost.sh measures what the local cluster that runs takes of this machine: at rest, and beside JOBS (1000) jobs that wait.
# It prints lines "figure NAME VALUE UNIT". Without a cluster it starts one in a folder of its own, and ends it.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-1000} rest=${REST:-20} own=
end() {
  [ -z "$own" ] || { bin/elastic down >/dev/null || true; rm -rf "$own"; }
}
trap end EXIT
trap 'exit 130' INT TERM
kubectl() { bin/elastic kubectl "$@"; }

export ELASTIC_HOME=${ELASTIC_HOME:-$HOME/.elastic}
# The process that holds the cluster.
holder() { sed -n 's/^  "pid": \([0-9]*\),$/\1/p' "$ELASTIC_HOME/elastic/state.json" 2>/dev/null; }
if ! kill -0 "$(holder)" 2>/dev/null; then
  own=$(mktemp -d)
  ELASTIC_HOME=$own
  bin/elastic up --detach >"$own/up.log" 2>&1 || { cat "$own/up.log"; exit 1; }
fi

# processes are the holder and all it has started, as lines "PID NAME".
pid=$(holder)
processes() {
  for p in $pid $(pgrep -P "$pid"); do
    echo "$p $(basename "$(readlink "/proc/$p/exe")")"
  done
}

# memory SUFFIX prints the resident memory of each program and of all.
memory() {
  local total=0 p name mib
  while read -r p name; do
    mib=$(awk '/^VmRSS/ {printf "%.0f", $2 / 1024}' "/proc/$p/status")
    total=$((total + mib))
    case $name in
      elastic-sandbox) echo "figure sandbox_rss_mib$1 $mib MiB" ;;
      elastic-queue) echo "figure queue_rss_mib$1 $mib MiB" ;;
      elastic-gpu-scheduler) echo "figure gpu_scheduler_rss_mib$1 $mib MiB" ;;
      elastic-gpu-agent) echo "figure gpu_agent_rss_mib$1 $mib MiB" ;;
    esac
  done < <(processes)
  echo "figure cluster_rss_mib$1 $total MiB"
}

# ticks [NAME] is the processor time of all, or of the program NAME, in hundredths of a second.
ticks() {
  local total=0 p name
  while read -r p name; do
    [ "${1:-$name}" = "$name" ] || continue
    total=$((total + $(awk '{print $14 + $15}' "/proc/$p/stat")))
  done < <(processes)
  echo "$total"
}

# used NAME TICKS prints processor time.
used() { echo "figure $1_cpu_seconds $(awk -v t="$2" 'BEGIN {printf "%.1f", t / 100}') s"; }

# at_rest SUFFIX prints what of one core all programs use while nothing happens.
at_rest() {
  local before
  before=$(ticks)
  sleep "$rest"
  echo "figure cluster_rest_cpu_percent$1 $((($(ticks) - before) / rest)) %"
}

# many NAME COUNT PODS prints jobs of pods that have one card each and run until they are deleted.
many() {
  local i
  for i in $(seq "$2"); do
    cat <<END
{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "$1-$i", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
 "spec": {"parallelism": $3, "completions": $3, "template": {"metadata": {"annotations": {"sandbox.elasticai.io/run-for": "forever"}},
  "spec": {"restartPolicy": "Never", "containers": [{"name": "train", "image": "example.com/train:1",
   "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}}}
END
  done
}

# until_queue FIELD VALUE waits until the queue's status says so.
until_queue() {
  kubectl wait --for="jsonpath={.status.$1}=$2" --timeout=5m clusterqueue/cluster-queue >/dev/null
}

memory ""
at_rest ""
cards=$(kubectl get clusterqueue cluster-queue -o 'jsonpath={.spec.resourceGroups[*].flavors[0].resources[?(@.name=="nvidia.com/gpu")].nominalQuota}')
many all 1 "$cards" | kubectl create -f - >/dev/null
until_queue admittedWorkloads 1

before=$(ticks) queue=$(ticks elastic-queue) began=$SECONDS
many waits "$jobs" 1 | kubectl create -f - >/dev/null
until_queue pendingWorkloads "$jobs"
echo "figure waiting_jobs $jobs jobs"
echo "figure waiting_seconds $((SECONDS - began)) s"
used waiting_queue $(($(ticks elastic-queue) - queue))
used waiting_cluster $(($(ticks) - before))
sleep "$rest"
memory _waiting
at_rest _waiting
