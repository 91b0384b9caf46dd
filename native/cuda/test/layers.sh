#!/bin/sh
# layers.sh OBJECTS SOURCE...: sources are named from the bottom up, and a file uses only files named before it, by symbols
# (as nm sees them in its object under OBJECTS) and by includes. So there is no circle and no arrow up.
set -eu
objects=$1
shift
for source in "$@"; do
	name=$(basename "$source" .c)
	echo "file $name"
	nm "$objects/${source%.c}.o" | awk '$2 ~ /^[TDBRVCWi]$/ {print "defines", $3} $1 == "U" {print "uses", $2}'
	for text in "$source" $(ls "$name.h" 2>/dev/null); do
		sed -n 's/^#include "\(.*\)\.h".*/includes \1/p' "$text"
	done
done | awk '
$1 == "file" { at = $2; place[at] = ++files; next }
$1 == "defines" { home[$2] = at; next }
{ arrow[++arrows] = at; kind[arrows] = $1; to[arrows] = $2 }
END {
	for (i = 1; i <= arrows; i++) {
		target = kind[i] == "uses" ? home[to[i]] : to[i]
		if (!(target in place) || target == arrow[i] || place[target] < place[arrow[i]])
			continue
		printf "FAIL layers: %s.c %s %s, which is above it%s\n", arrow[i], kind[i], to[i], kind[i] == "uses" ? " in " target ".c" : ""
		bad = 1
	}
	if (!bad) print "layers: ok"
	exit bad
}'
