package extender

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

// Server is a Handler on an address; hand it to a manager.
type Server struct {
	Address string
	Handler http.Handler
	// TLS is nil for plain HTTP.
	TLS *tls.Config
	// ReadTimeout of a request; 0 is ten seconds.
	ReadTimeout time.Duration
	Log         logr.Logger
}

const (
	// readTimeout is for a whole request; kube-scheduler sends one at once.
	readTimeout = 10 * time.Second
	// writeTimeout outlives a bind whose API server is slow.
	writeTimeout    = 2*15*time.Second + readTimeout
	idleTimeout     = 2 * time.Minute
	mostHeaderBytes = 16 << 10
)

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
	server := &http.Server{
		Handler: s.Handler, ReadHeaderTimeout: cmp.Or(s.ReadTimeout, readTimeout), ReadTimeout: cmp.Or(s.ReadTimeout, readTimeout),
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: mostHeaderBytes,
		ErrorLog: log.New(refusals{s.Log.V(1)}, "", 0), // strangers who are turned away fill no log
	}
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

// refusals are connections that the server could not make use of.
type refusals struct{ logr.Logger }

func (r refusals) Write(line []byte) (int, error) {
	r.Info("a connection failed", "error", strings.TrimSpace(string(line)))
	return len(line), nil
}
