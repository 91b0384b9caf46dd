#!/usr/bin/env bash
# coldstart.sh measures what a new user meets: "make up" from a fresh clone in an empty home, with empty module and build
# caches, and once more when everything is built. It prints lines "figure NAME VALUE UNIT", and what "make up" says on stderr
# meanwhile, and leaves nothing behind.
# COLD_BEFORE=COMMIT starts that commit first, as cold, with the same figures (NAME_before) and how many times as much it took
# (NAME_ratio): a machine is not the same from one hour to the next.
# It wants both the processors and the network for itself; the load before it is printed with the figures.
set -euo pipefail
cd "$(dirname "$0")/.."
project=$PWD user=$HOME home= shows=
declare -A figures
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
  [ -z "$shows" ] || kill "$shows" 2>/dev/null || true
  [ -n "$home" ] || return 0
  [ ! -x "$home/elastic/bin/elastic" ] || "$home/elastic/bin/elastic" down --all >/dev/null || true
  chmod -R u+w "$home" && rm -rf "$home"
  home=
}
trap leave EXIT
trap 'exit 130' INT TERM

# figure NAME VALUE UNIT prints it, and stores it for ratios.
figure() {
  figures[$1]=$2
  echo "figure $1 $2 $3"
}

# ratio FIGURE NAME prints how many times as much it was before.
ratio() {
  awk -v a="${figures[$1_before]:-}" -v b="${figures[$1]:-}" -v name="$2" 'BEGIN {if (a > 0 && b > 0) printf "figure %s %.2f times\n", name, a / b}'
}

# up NAME SUFFIX times "make up", in wall and processor seconds. What it prints goes to a file, which is shown: "elastic up" goes on
# in the background, and would hold a pipe open.
up() {
  local user_time system_time TIMEFORMAT="%R %U %S" code=0 log=$home/$1.log
  echo "make up of $(git log -1 --format=%h), $([ "$1" = cold ] && echo "from nothing: 5 to 15 minutes" || echo "with everything built: seconds")" >&2
  : >"$log"
  tail -f "$log" >&2 & shows=$!
  { time make up >>"$log" 2>&1; } 2>"$home/$1.time" || code=$?
  sleep 1.2 # until tail has shown the rest
  kill "$shows" && shows=
  [ "$code" = 0 ] || exit 1
  grep -E 'built,|is ready' "$log" || true
  read -r wall user_time system_time <"$home/$1.time"
  figure "up_$1_seconds$2" "$wall" s
  figure "up_$1_cpu_seconds$2" "$(awk -v u="$user_time" -v s="$system_time" 'BEGIN {printf "%.1f", u + s}')" s
}

# rss prints the resident memory of the sandbox that runs in the home.
rss() {
  local exe pid
  for exe in /proc/[0-9]*/exe; do
    [ "$(readlink "$exe" 2>/dev/null)" = "$home/elastic/bin/elastic-sandbox" ] || continue
    pid=${exe%/exe}
    awk '/^VmRSS/ {printf "%.0f", $2 / 1024}' "$pid/status"
    return
  done
  return 1
}

# measure COMMIT SUFFIX starts it from nothing and once more; its cluster goes on running.
measure() {
  enter "$1"
  up cold "$2"
  figure "modules_mib$2" "$(du -sm "$GOMODCACHE" | cut -f1)" MiB
  figure "binaries_mib$2" "$(find bin -maxdepth 1 -type f -printf '%s\n' | awk '{sum += $1} END {printf "%.0f", sum / 1048576}')" MiB
  bin/elastic down >/dev/null
  up warm "$2"
  figure "sandbox_ready_seconds$2" "$(sed -n 's/^Kubernetes is ready .*(\(.*\) s)$/\1/p' "$home/warm.log")" s
  figure "sandbox_rss_mib$2" "$(rss)" MiB
}

if [ -n "$before" ]; then
  measure "$before" _before
  leave
fi
measure "$now" ""
if [ -n "$before" ]; then
  ratio up_cold_seconds up_cold_ratio
  ratio up_cold_cpu_seconds up_cold_cpu_ratio
  ratio up_warm_seconds up_warm_ratio
  ratio binaries_mib binaries_ratio
  ratio sandbox_ready_seconds sandbox_ready_ratio
  ratio sandbox_rss_mib sandbox_rss_ratio
fi

# What the cluster takes of this machine, at rest and beside jobs that wait. The sandbox's memory at rest was measured.
echo "what the cluster takes, at rest and beside 1,000 jobs that wait: a minute or two" >&2
tools/cost.sh | grep -v '^figure sandbox_rss_mib '
