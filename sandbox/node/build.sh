#!/bin/sh
# Builds what a real node runs into a folder: kubelet, containerd and its shim, runc, the pod network's programs, pause.
# Linux only. Takes a C compiler, and for runc libseccomp's headers: where they are missing they are taken from Debian's
# package, which is unpacked and not installed.
set -eu
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")"

if ! pkg-config --exists libseccomp; then
	headers=$out/libseccomp-dev
	if [ ! -d "$headers" ]; then
		mkdir -p "$headers.new" && cd "$headers.new"
		apt-get -q download libseccomp-dev || { apt-get -q update && apt-get -q download libseccomp-dev; }
		dpkg -x libseccomp-dev_*.deb .
		rm -f usr/lib/*/libseccomp.so # the archive is linked in
		cd - >/dev/null && mv "$headers.new" "$headers"
	fi
	PKG_CONFIG_LIBDIR=$(echo "$headers"/usr/lib/*/pkgconfig)
	export PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR="$headers"
	# Go's cache does not mind what pkg-config answers; this it minds, so a folder elsewhere is a build of its own.
	seccomp=$(pkg-config --libs-only-L libseccomp)
fi

# PROGRESS is go build that says how far it is, if it is there.
build() {
	what=$1
	shift
	if [ -n "${PROGRESS:-}" ]; then "$PROGRESS" -say "a node's $what" "$@"; else go build "$@"; fi
}

CGO_LDFLAGS="${CGO_LDFLAGS:--O2 -g} ${seccomp:-}" build runc -tags seccomp -ldflags "-s -w" -o "$out/" github.com/opencontainers/runc
build "containerd and network" -ldflags "-s -w" -o "$out/" \
	github.com/containerd/containerd/v2/cmd/containerd github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2 \
	github.com/containerd/containerd/v2/cmd/ctr \
	github.com/containernetworking/plugins/plugins/main/bridge github.com/containernetworking/plugins/plugins/main/loopback \
	github.com/containernetworking/plugins/plugins/ipam/host-local
CGO_ENABLED=0 go build -ldflags "-s -w" -o "$out/" ./pause
cd .. && build kubelet -ldflags "$(cat ldflags)" -o "$out/" k8s.io/kubernetes/cmd/kubelet
