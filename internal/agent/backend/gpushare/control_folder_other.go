//go:build !linux

package gpushare

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"time"

	"github.com/elastic-ai/elastic/internal/agent/share"
)

// Where there are no containers, there are no processes under the library.
type controlFolder struct{}

var errNoSocket = errors.New("it is not a socket")

func openControl(string) (*controlFolder, error)                           { return nil, fs.ErrNotExist }
func (*controlFolder) close()                                              {}
func (*controlFolder) names() ([]string, error)                            { return nil, nil }
func (*controlFolder) dial(context.Context, string) (*net.UnixConn, error) { return nil, errNoSocket }
func (*controlFolder) removeAbandoned(string)                              {}

type peer struct {
	pid int
	age time.Duration
}

func (*Backend) peerOf(*net.UnixConn, *share.Share) (*peer, error) { return nil, errNoSocket }
