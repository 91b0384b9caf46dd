package gpushare

import (
	"regexp"
	"slices"
	"time"

	"github.com/elastic-ai/elastic/internal/agent/tenantfolder"
)

// openControl opens the folder with the sockets of a share's processes, in the one that its container writes to.
func openControl(run string) (*tenantfolder.Folder, error) {
	return tenantfolder.Open(run, "control")
}

var socketName = regexp.MustCompile(`^[0-9]{1,10}\.sock$`)

// sockets by name, at most so many.
func sockets(folder *tenantfolder.Folder) ([]string, error) {
	all, err := folder.Names(2 * maxSockets)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(name string) bool { return !socketName.MatchString(name) })
	slices.Sort(all)
	return all[:min(len(all), maxSockets)], nil
}

// peer is the process at the other end of a connection.
type peer struct {
	pid int
	age time.Duration
}
