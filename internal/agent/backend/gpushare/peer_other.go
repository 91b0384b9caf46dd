//go:build !linux

package gpushare

import (
	"net"

	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/tenantfolder"
)

// Where there are no containers, there are no processes under the library.
func (*Backend) peerOf(*net.UnixConn, *share.Share) (*peer, error) {
	return nil, tenantfolder.ErrNoSocket
}
