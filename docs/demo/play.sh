#!/usr/bin/env bash
# Types a session of commands as a person would, and runs them. To record it:
#   asciinema rec -c docs/demo/play.sh elastic.cast      or      script -c docs/demo/play.sh elastic.typescript
# It needs a cluster with a node label elasticgpu.io/gpu-model=H100-80G, as "elastic up" makes; PACE is seconds per letter.
set -euo pipefail
pace=${PACE:-0.04}

say() {
  printf '$ '
  for ((i = 0; i < ${#1}; i++)); do
    printf '%s' "${1:i:1}"
    sleep "$pace"
  done
  printf '\n'
  eval "$1"
}

trap 'elastic delete first second >/dev/null 2>&1 || true' EXIT
queue=${QUEUE:-demo-$$}
say "elastic queue create $queue --flavor $queue --node-label elasticgpu.io/gpu-model=H100-80G --quota nvidia.com/gpu=4"
say "elastic submit job --name first --image example.com/train:1 --gpus 4 --queue main -a sandbox.elasticai.io/run-for=forever 'python train.py'"
say "elastic wait first --for running"
say "elastic submit job --name second --image example.com/train:1 --gpus 2 --queue main --check 'python train.py'"
say "elastic submit job --name second --image example.com/train:1 --gpus 2 --queue main 'python train.py'"
until elastic explain second | grep -q WaitingForQuota; do sleep 0.1; done # it has just arrived
say "elastic explain second"
say "elastic delete first"
say "elastic wait second --for running"
say "elastic list"
