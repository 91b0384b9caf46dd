// Package version knows which build this is.
package version

import "runtime/debug"

// number is set by the linker from the release tag.
var number = "v0.1.0-dev"

// String is the version, with the commit where the build recorded one.
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
	return number
}
