#!/bin/sh
# Prints the browser that tests the page, after fetching what is missing where that is possible, or fails and prints why not.
missing=""
command -v node >/dev/null && command -v npm >/dev/null || missing=" nodejs npm"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
[ -n "$browser" ] || missing="$missing chromium"
if [ -n "$missing" ]; then
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		# Its list of packages may be missing or too old.
		# shellcheck disable=SC2016 # the inner shell has the packages
		DEBIAN_FRONTEND=noninteractive "$(dirname "$0")/../tools/waiting.sh" "apt-get fetches$missing: one to three minutes" sh -c '
			{ apt-get install -y -q --no-install-recommends "$@" ||
				{ apt-get update -q && apt-get install -y -q --no-install-recommends "$@"; }; } >/dev/null 2>&1' sh $missing
	fi
	browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
	if [ -z "$browser" ] || ! command -v npm >/dev/null; then
		echo "it takes$missing"
		exit 1
	fi
fi
echo "$browser"
