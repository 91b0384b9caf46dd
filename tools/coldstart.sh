#!/usr/bin/env bash
# coldstart.sh measures what a new user meets: "make up" from a fresh clone in an empty home, with empty module and build
# caches, and once more when everything is built. It prints lines "figure NAME VALUE UNIT" and leaves nothing behind.
# It wants both the processors and the network for itself; the load before it is printed with the figures.
set -euo pipefail
cd "$(dirname "$0")/.."
home=$(mktemp -d)
end() {
  [ ! -x "$home/elastic/bin/elastic" ] || "$home/elastic/bin/elastic" down --all >/dev/null || true
  chmod -R u+w "$home" && rm -rf "$home"
}
trap end EXIT
trap 'exit 130' INT TERM

git clone -q --no-hardlinks . "$home/elastic"
# The toolchain is there, as the README asks; all else is to be had.
GOROOT=$(go env GOROOT)
export PATH=$GOROOT/bin:$PATH GOTOOLCHAIN=local
export HOME=$home GOCACHE=$home/cache GOMODCACHE=$home/modules GOPATH=$home/go ELASTIC_HOME=$home/clusters
unset GOFLAGS GIVEN_GOFLAGS GOGC GOMEMLIMIT MAKEFLAGS MFLAGS MAKELEVEL
cd "$home/elastic"
echo "load before: $(uptime | sed 's/.*load average/load average/')"

# up NAME times "make up", in wall and processor seconds.
up() {
  TIMEFORMAT="%R %U %S"
  { time make up >"$home/$1.log" 2>&1; } 2>"$home/$1.time" || { cat "$home/$1.log"; exit 1; }
  grep -E 'built,|is ready' "$home/$1.log"
  read -r wall user system <"$home/$1.time"
  echo "figure up_$1_seconds $wall s"
  echo "figure up_$1_cpu_seconds $(awk -v u="$user" -v s="$system" 'BEGIN {printf "%.1f", u + s}') s"
}

up cold
echo "figure modules_mib $(du -sm "$GOMODCACHE" | cut -f1) MiB"
echo "figure binaries_mib $(find bin -maxdepth 1 -type f -printf '%s\n' | awk '{sum += $1} END {printf "%.0f", sum / 1048576}') MiB"
bin/elastic down >/dev/null
up warm
echo "figure sandbox_ready_seconds $(sed -n 's/^Kubernetes is ready .*(\(.*\) s)$/\1/p' "$home/warm.log") s"

# What the cluster takes of this machine, at rest and beside jobs that wait.
tools/cost.sh
