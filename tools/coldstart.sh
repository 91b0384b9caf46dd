#!/usr/bin/env bash
# coldstart.sh measures what a new user meets: "make up" from a fresh clone in an empty home, with empty module and build
# caches, and once more when everything is built. It prints lines "figure NAME VALUE UNIT" and leaves nothing behind.
# COLD_BEFORE=COMMIT starts that commit first, as cold, and prints how many times as long it took: a machine is not the same
# from one hour to the next.
# It wants both the processors and the network for itself; the load before it is printed with the figures.
set -euo pipefail
cd "$(dirname "$0")/.."
project=$PWD user=$HOME home=
now=$(git rev-parse HEAD) before=${COLD_BEFORE:+$(git rev-parse --verify "$COLD_BEFORE^{commit}")}
# The toolchain is there, as the README asks; all else is to be had.
GOROOT=$(go env GOROOT)
export PATH=$GOROOT/bin:$PATH GOTOOLCHAIN=local
unset GOFLAGS GIVEN_GOFLAGS GOGC GOMEMLIMIT MAKEFLAGS MFLAGS MAKELEVEL

# enter COMMIT makes an empty home with a clone of the project.
enter() {
  home=$(mktemp -d)
  HOME=$user git clone -q --no-hardlinks "$project" "$home/elastic"
  cd "$home/elastic"
  HOME=$user git checkout -q --detach "$1"
  export HOME=$home GOCACHE=$home/cache GOMODCACHE=$home/modules GOPATH=$home/go ELASTIC_HOME=$home/clusters
  echo "load before $(git log -1 --format='%h, %s'): $(uptime | sed 's/.*load average: //')"
}

# leave ends what runs in the home, and removes it.
leave() {
  cd "$project" || true # also where nobody reads what is printed any more
  [ -n "$home" ] || return 0
  [ ! -x "$home/elastic/bin/elastic" ] || "$home/elastic/bin/elastic" down --all >/dev/null || true
  chmod -R u+w "$home" && rm -rf "$home"
  home=
}
trap leave EXIT
trap 'exit 130' INT TERM

# up NAME times "make up", in wall and processor seconds.
up() {
  local user_time system_time TIMEFORMAT="%R %U %S"
  { time make up >"$home/$1.log" 2>&1; } 2>"$home/$1.time" || { cat "$home/$1.log"; exit 1; }
  grep -E 'built,|is ready' "$home/$1.log" || true
  read -r wall user_time system_time <"$home/$1.time"
  cpu=$(awk -v u="$user_time" -v s="$system_time" 'BEGIN {printf "%.1f", u + s}')
  echo "figure up_$1_seconds $wall s"
  echo "figure up_$1_cpu_seconds $cpu s"
}

# times NAME BEFORE NOW prints their ratio.
times() { echo "figure $1 $(awk -v a="$2" -v b="$3" 'BEGIN {printf "%.2f", a / b}') times"; }

if [ -n "$before" ]; then
  enter "$before"
  up cold_before
  before_wall=$wall before_cpu=$cpu
  leave
fi
enter "$now"
up cold
if [ -n "$before" ]; then
  times up_cold_ratio "$before_wall" "$wall"
  times up_cold_cpu_ratio "$before_cpu" "$cpu"
fi
echo "figure modules_mib $(du -sm "$GOMODCACHE" | cut -f1) MiB"
echo "figure binaries_mib $(find bin -maxdepth 1 -type f -printf '%s\n' | awk '{sum += $1} END {printf "%.0f", sum / 1048576}') MiB"
bin/elastic down >/dev/null
up warm
echo "figure sandbox_ready_seconds $(sed -n 's/^Kubernetes is ready .*(\(.*\) s)$/\1/p' "$home/warm.log") s"

# What the cluster takes of this machine, at rest and beside jobs that wait.
tools/cost.sh
