// Package version knows which build this is.
package version

import (
	"runtime/debug"
	"strings"
)

const development = "v0.1.0-dev"

// number is set by the linker from the release tag.
var number = development

// String is the version, with the commit where the build recorded one; that of the module where "go install" took one.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return number
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" && len(setting.Value) >= 12 {
			return number + "+" + setting.Value[:12]
		}
	}
	if installed := info.Main.Version; number == development && strings.HasPrefix(installed, "v") {
		return installed
	}
	return number
}
