#!/bin/sh
# The library as a preloaded file, as it is shipped and as a container meets it.
set -eu
cd "$(dirname "$0")/.."
T=build/test
export LD_LIBRARY_PATH="$PWD/$T"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/etc/elastic-gpu/turns" "$root/run/elastic-gpu" "$root/run/elastic-gpu-requests"
card=GPU-11111111-1111-1111-1111-111111111120
truncate -s 6208 "$root/etc/elastic-gpu/turns/$card"
truncate -s 10304 "$root/run/elastic-gpu-requests/$card"
printf 'elastic-gpu 1\ncontainer test\ndevice * memory 1000000000\n' > "$root/etc/elastic-gpu/limits"
export ELASTICGPU_ROOT="$root" STUB_CARD="$root/card"
fail() { echo "FAIL preload: $*"; exit 1; }

LD_PRELOAD="$PWD/$T/libelasticgpu.so" $T/preload 1000000000 fork || fail "a function was found past the library"

# Programs that have nothing to do with GPUs run as before, and leave nothing behind.
before=$(ls "$root/run/elastic-gpu")
[ "$(LD_PRELOAD="$PWD/$T/libelasticgpu.so" sh -c 'echo fine | cat')" = fine ] || fail "a shell script"
[ "$(ls "$root/run/elastic-gpu")" = "$before" ] || fail "a program without CUDA left files"

# As shipped: no variable of the environment moves its paths or switches it off.
out=$(env ELASTICGPU_ROOT="$root" ELASTIC_GPU_DISABLE=1 LD_PRELOAD="$PWD/build/libelasticgpu.so" $T/preload 1000000000 2>&1) && fail "a variable chose the limits"
case "$out" in *"/etc/elastic-gpu/limits"*"no GPU is granted"*) ;; *) fail "not refused: $out" ;; esac
if strings -a build/libelasticgpu.so 2>/dev/null | grep -q ELASTICGPU_ROOT; then fail "the shipped library reads a root"; fi

# It loads wherever a driver of this decade does: no symbol newer than glibc 2.17, nothing but libc.
newest=$(objdump -T build/libelasticgpu.so | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
[ "$(printf '%s\nGLIBC_2.17\n' "$newest" | sort -V | tail -1)" = GLIBC_2.17 ] || fail "needs $newest"
objdump -p build/libelasticgpu.so | awk '/NEEDED/ && $2 !~ /^(libc|libdl|libpthread)\.so/ {bad = 1} END {exit bad}' || fail "needs another library"

# Every row of the table is a function the tests' driver has: nothing is intercepted that no test can reach.
objdump -T $T/libcuda.so.1 $T/libnvidia-ml.so.1 | awk '{print $NF}' | sort -u > "$root/have"
awk '!/^#/ && NF {print $1; if ($3 != "-") print $1 "_" $3}' entries.tab | sort -u > "$root/want"
missing=$(comm -13 "$root/have" "$root/want")
[ -z "$missing" ] || fail "not in the tests' driver: $missing"
echo "preload: ok"
