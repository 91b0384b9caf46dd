#!/bin/sh
# Puts the Python client of Kubernetes into a folder, from Debian's packages, which are unpacked and not installed.
# Prints why not, where that cannot be.
set -eu
command -v python3 >/dev/null || { echo "there is no python3"; exit 0; }
command -v apt-get >/dev/null && command -v dpkg >/dev/null || { echo "this is no Debian, which has the package"; exit 0; }
[ ! -d "$1" ] || exit 0
mkdir -p "$1.new"
cd "$1.new"
packages="python3-kubernetes python3-yaml python3-six python3-dateutil python3-urllib3 python3-requests python3-certifi python3-chardet
	python3-charset-normalizer python3-idna python3-google-auth python3-cachetools python3-pyasn1 python3-pyasn1-modules python3-rsa
	python3-oauthlib python3-requests-oauthlib python3-websocket"
# shellcheck disable=SC2086 # a list of words
apt-get -q download $packages >&2 || { apt-get -q update >&2 && apt-get -q download $packages >&2; }
for package in *.deb; do dpkg -x "$package" .; done
rm ./*.deb
cd .. && mv "$1.new" "$1"
