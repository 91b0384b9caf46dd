#!/bin/sh
# Prints the browser that tests the page, after fetching what is missing where that is possible, or fails and prints why not.
missing=""
command -v node >/dev/null && command -v npm >/dev/null || missing=" nodejs npm"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
[ -n "$browser" ] || missing="$missing chromium"
if [ -n "$missing" ]; then
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		# shellcheck disable=SC2086 # a list of packages
		DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >/dev/null 2>&1 ||
			{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing; } >/dev/null 2>&1
	fi
	browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
	if [ -z "$browser" ] || ! command -v npm >/dev/null; then
		echo "it takes$missing"
		exit 1
	fi
fi
echo "$browser"
