package extender

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
)

// Server is a Handler on an address; hand it to a manager.
type Server struct {
	Address string
	Handler http.Handler
	// TLS is nil for plain HTTP.
	TLS *tls.Config
	Log logr.Logger
}

// NeedLeaderElection is false: every replica answers, followers by passing on.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends.
func (s *Server) Start(ctx context.Context) error {
	listener, err := net.Listen("tcp", s.Address)
	if err != nil {
		return fmt.Errorf("serving the extender: %w", err)
	}
	if s.TLS != nil {
		listener = tls.NewListener(listener, s.TLS)
	}
	server := &http.Server{Handler: s.Handler, ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		// A bind under way is completed.
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		_ = server.Shutdown(grace)
	}()
	s.Log.Info("serving the extender", "address", listener.Addr().String(), "tls", s.TLS != nil)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-stopped
	return nil
}
