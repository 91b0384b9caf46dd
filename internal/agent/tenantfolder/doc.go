// Package tenantfolder opens what is in a folder that a tenant's container writes to. It may hold links, files and
// folders in place of what is expected there, and change while it is read: so it is opened once, everything in it
// from there and by no link, and a socket is connected to as the file it is, not by its name, which may have become
// another's.
package tenantfolder

import "errors"

// ErrNoSocket is said of what is named as a socket and is none.
var ErrNoSocket = errors.New("it is not a socket")
