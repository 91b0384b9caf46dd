package extender

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/elastic-ai/elastic/internal/certs"
)

// Over TLS the server answers, and a request under way is answered after it was asked to stop.
func TestServerOverTLSEndsWithItsLastAnswer(t *testing.T) {
	bundle, err := certs.Make([]string{"127.0.0.1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(bundle.Certificate, bundle.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle.CA)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()

	ctx, stop := context.WithCancel(t.Context())
	asked := make(chan struct{})
	server := &Server{
		Address: address, Log: logr.Discard(), TLS: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/bind" {
				close(asked)
				<-ctx.Done()
			}
			_, _ = io.WriteString(w, "answer")
		}),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	get := func(path string) (string, error) {
		response, err := client.Get("https://" + address + path)
		if err != nil {
			return "", err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}
	err = wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		body, err := get("/")
		return err == nil && body == "answer", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-asked
		stop()
	}()
	if body, err := get("/bind"); err != nil || body != "answer" {
		t.Errorf("a request under way: %q, %v", body, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}
