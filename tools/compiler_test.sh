#!/usr/bin/env bash
# Tests compiler.sh with a compiler that prints what it is given. What the edited lines do has a test in
# sandbox/internal/controlplane.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/out" "$dir/other" "$dir/older"
printf '%s\n' '#!/bin/sh' 'echo "$@"' >"$dir/compile"
chmod +x "$dir/compile"

fail() { echo "compiler.sh: $*"; exit 1; }
# compiled FILE FLAG... prints which file the compiler reads.
compiled() { "$here/compiler.sh" "$dir/compile" -o "$dir/out/_pkg_.a" -p cache "${@:2}" "$1" 2>"$dir/said" | sed 's/.* //'; }

for module in .. ../sandbox ../scheduler; do
  file=$(cd "$here/$module" && go list -m -f '{{.Dir}}' k8s.io/client-go)/tools/cache/controller.go
  [ "$(compiled "$file" -D=edited-1)" = "$dir/out/controller.go" ] || fail "it does not edit $file"
  [ "$(diff "$file" "$dir/out/controller.go" | grep -c '^<')" = 7 ] || fail "it edits something else"
  [ ! -s "$dir/said" ] || fail "it says $(cat "$dir/said")"
  [ "$(compiled "$file")" = "$file" ] || fail "it edits packages without the mark"
done

# One line more that would have to be edited: it says so and leaves the file alone. Before 0.37 there was none.
{ cat "$file"; echo 'func (r TypedOther[T]) OnDelete(obj DeletedObject[T]) {'; } >"$dir/other/controller.go"
[ "$(compiled "$dir/other/controller.go" -D=edited-1)" = "$dir/other/controller.go" ] || fail "it edits a file that it does not know"
grep -q 'has 8 lines to edit, not 7' "$dir/said" || fail "it does not say why"
echo 'package cache' >"$dir/older/controller.go"
[ "$(compiled "$dir/older/controller.go" -D=edited-1)" = "$dir/older/controller.go" ] && [ ! -s "$dir/said" ] || fail "it edits an older file, or complains"
