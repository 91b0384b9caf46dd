#!/bin/sh
# Says why this machine cannot be a real node, or nothing if it can.
if [ "$(uname)" != Linux ] || [ "$(id -u)" != 0 ]; then
	echo "it takes Linux and root"
	exit
fi
for tool in unshare ip pkg-config; do
	command -v "$tool" >/dev/null || { echo "it takes $tool"; exit; }
done
if ! pkg-config --exists libseccomp && ! command -v apt-get >/dev/null; then
	echo "it takes libseccomp's headers"
elif ! unshare -mn ip link add elastic-probe type bridge 2>/dev/null; then
	echo "mounts, networks or bridges of its own are not allowed here"
else
	for root in /sys/fs/cgroup/memory /sys/fs/cgroup; do
		[ -e "$root/cgroup.procs" ] && mkdir "$root/elastic-probe" 2>/dev/null && rmdir "$root/elastic-probe" && exit
	done
	echo "cgroups cannot be made here"
fi
