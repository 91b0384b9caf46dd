#!/usr/bin/env bash
# Tests compiler.sh with a compiler that prints what it is given. That what is edited compiles, every build says; what the edited
# lines do has a test in sandbox/internal/controlplane.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/out"
printf '%s\n' '#!/bin/sh' 'echo "$@"' >"$dir/compile"
chmod +x "$dir/compile"

fail() { echo "compiler.sh: $*"; exit 1; }
# compiled PACKAGE FILE... prints which files the compiler reads; MARK= leaves the mark out.
compiled() {
  rm -rf "$dir/out/edited"
  TOOLEXEC_IMPORTPATH=$1 "$here/compiler.sh" "$dir/compile" -o "$dir/out/_pkg_.a" ${MARK--D=edited-1} "${@:2}" | tr ' ' '\n' | grep '\.go$'
}
lines() { diff "$1" "$2" | grep -c '^<'; }

for module in .. ../sandbox ../scheduler; do
  client=$(cd "$here/$module" && go list -m -f '{{.Dir}}' k8s.io/client-go)
  file=$client/tools/cache/controller.go
  [ "$(compiled k8s.io/client-go/tools/cache "$file")" = "$dir/out/edited/controller.go" ] || fail "it does not know $client: see what is to be edited there"
  [ "$(lines "$file" "$dir/out/edited/controller.go")" = 7 ] || fail "it edits something else of $file"
  [ "$(MARK= compiled k8s.io/client-go/tools/cache "$file")" = "$file" ] || fail "it edits packages without the mark"
done

# Of tools/cache nothing else is edited.
[ "$(compiled k8s.io/client-go/tools/cache "$client"/tools/cache/*.go | grep -c /edited/)" = 1 ] || fail "it edits more of tools/cache"

# What Apply takes has a name, in clients and in those for tests.
pod=$client/kubernetes/typed/core/v1/pod.go
compiled k8s.io/client-go/kubernetes/typed/core/v1 "$pod" >/dev/null
grep -q 'Apply(ctx context.Context, pod interface{ GetName() \*string }, ' "$dir/out/edited/pod.go" || fail "Apply takes what it took"
! grep -q ApplyConfiguration "$dir/out/edited/pod.go" || fail "something of the types for Apply is left"

# A version that nobody asks for is an empty package, and one that is asked for is whole.
for package in kubernetes/typed/rbac/v1beta1 kubernetes/typed/rbac/v1beta1/fake informers/rbac/v1beta1 listers/rbac/v1beta1; do
  [ "$(compiled "k8s.io/client-go/$package" "$client/$package"/*.go)" = "$dir/out/edited/empty.go" ] || fail "$package is not empty"
  [ "$(cat "$dir/out/edited/empty.go")" = "package ${package##*/}" ] || fail "$package has another name"
done
[ "$(compiled k8s.io/client-go/listers/rbac/v1 "$client"/listers/rbac/v1/*.go)" = "$(ls "$client"/listers/rbac/v1/*.go)" ] || fail "it edits listers that are used"

# And nothing asks it for anything.
left() { grep -n "$1" "$dir/out/edited/$2" && fail "$2 names a version that nobody asks for" || true; }
compiled k8s.io/client-go/kubernetes "$client/kubernetes/clientset.go" >/dev/null
left 'rbacv1beta1\.\|appsv1beta2\.' clientset.go
grep -q '^	RbacV1beta1() any$' "$dir/out/edited/clientset.go" || fail "the client has lost a method"
compiled k8s.io/client-go/informers "$client/informers/generic.go" >/dev/null
left 'Rbac().V1beta1()' generic.go
compiled k8s.io/client-go/informers/rbac "$client/informers/rbac/interface.go" >/dev/null
left '^[^/]*v1beta1\.' interface.go

# Another version of client-go is left alone.
other=$dir/k8s.io/client-go@v0.36.2/tools/cache
mkdir -p "$other" && cp "$client/tools/cache/controller.go" "$other"
[ "$(compiled k8s.io/client-go/tools/cache "$other/controller.go")" = "$other/controller.go" ] || fail "it edits a version that it does not know"

# vet is told nothing of what was edited, and all of the rest.
cp "$dir/compile" "$dir/vet"
printf '{\n\t"VetxOnly": true,\n\t"VetxOutput": "%s",\n\t"GoFiles": []\n}\n' "$dir/out/vet.out" >"$dir/vet.cfg"
vetted() { TOOLEXEC_IMPORTPATH=$1 "$here/compiler.sh" "$dir/vet" -flag "$dir/vet.cfg"; }
[ -z "$(vetted k8s.io/client-go/kubernetes/typed/core/v1)" ] && [ -f "$dir/out/vet.out" ] && [ ! -s "$dir/out/vet.out" ] || fail "vet reads what was edited"
[ -n "$(vetted k8s.io/api/core/v1)" ] || fail "vet reads nothing"

# Where little memory is free, Go's own settings are used.
printf '%s\n' '#!/bin/sh' 'echo "$GOGC $GOMEMLIMIT"' >"$dir/settings"
chmod +x "$dir/settings"
# settings KIB prints the compiler's settings where so much is free.
settings() {
  printf 'MemTotal: 9000000 kB\nMemFree: 1 kB\nMemAvailable:    %s kB\nBuffers: 1 kB\n' "$1" >"$dir/meminfo"
  env -u GOGC -u GOMEMLIMIT ELASTIC_MEMINFO="$dir/meminfo" "$here/compiler.sh" "$dir/settings"
}
[ "$(settings 2000000)" = " " ] || fail "with little memory it sets $(settings 2000000)"
[ "$(settings 8000000)" = "400 1GiB" ] || fail "with much memory it sets $(settings 8000000)"
[ "$(ELASTIC_MEMINFO=/nowhere env -u GOGC -u GOMEMLIMIT "$here/compiler.sh" "$dir/settings")" = "400 1GiB" ] || fail "on another system it sets nothing"
