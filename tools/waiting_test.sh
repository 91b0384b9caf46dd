#!/usr/bin/env bash
# Tests waiting.sh with a command that takes three seconds, and one that fails.
set -euo pipefail
cd "$(dirname "$0")"
out=$(mktemp)
trap 'rm -f "$out"' EXIT
fail() { echo "waiting.sh: $*"; cat "$out"; exit 1; }

[ "$(WAITING_EVERY=1 ./waiting.sh "it sleeps: 3 seconds" bash -c 'sleep 3; echo result' 2>"$out")" = result ] || fail "what the command prints is not all there is on stdout"
[ "$(head -n 1 "$out")" = "it sleeps: 3 seconds" ] || fail "it does not say first what it does"
grep -qx '  \.\.\. 1 s' "$out" || fail "it does not say how long it has run"
code=0
./waiting.sh "it fails" bash -c 'exit 7' 2>"$out" || code=$?
[ "$code" = 7 ] || fail "the command ended with 7, it with $code"
echo "waiting.sh: ok"
