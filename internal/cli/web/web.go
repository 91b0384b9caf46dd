// Package web has the command that serves the page on this computer, with the person's own rights.
//
// Words: docs/design/glossary.md.
package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/internal/web"
)

// usualPort is tried first, so that links to views stay the same.
const usualPort = 7457

const usualCurrency = "USD"

// serving holds the flags.
type serving struct {
	port     int
	browser  bool
	prices   []string
	currency string
	// prometheus is the URL of one that has the queue's metrics.
	prometheus string
}

// Command is "elastic web".
func Command() *cobra.Command {
	flags, s := &cluster.Flags{}, &serving{}
	cmd := &cobra.Command{
		Use: "web", Short: "Show the cluster on a page in the browser, live",
		Long: `Serve a page on this computer that shows nodes, cards, queues and jobs as they
change, why each job waits, and lets you act on them. It reads and writes with the
rights of your kubeconfig; nothing is installed in the cluster. It ends with Ctrl-C.`,
		Example: "  elastic web\n  elastic web --port 8080 --browser=false\n  elastic web --price H100-80G=2.50 --price A100-40G=1.20",
		Args:    cobra.NoArgs,
		RunE: flags.RunE(func(cmd *cobra.Command, c *cluster.Client, _ []string) error {
			return s.run(cmd, c)
		}),
	}
	cmd.Flags().IntVar(&s.port, "port", usualPort, "port on 127.0.0.1; 0, or one that is taken, is any free one")
	cmd.Flags().BoolVar(&s.browser, "browser", true, "open the page in the browser, from a terminal")
	cmd.Flags().StringArrayVar(&s.prices, "price", nil, "what one card costs for an hour, MODEL=AMOUNT (repeatable)")
	cmd.Flags().StringVar(&s.currency, "currency", usualCurrency, "currency of the prices")
	cmd.Flags().StringVar(&s.prometheus, "prometheus", "", "URL of a Prometheus with elastic-queue's metrics, for more than the last six hours")
	flags.AddTo(cmd)
	return cmd
}

func (s *serving) run(cmd *cobra.Command, c *cluster.Client) error {
	link, serve, err := s.open(cmd.Context(), c)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "The page is at %s\nIt has your rights in %s: give the link to nobody. Ctrl-C ends it.\n", link, c.REST.Host)
	if s.browser && term.IsTerminal(int(os.Stdout.Fd())) {
		show(link)
	}
	return serve()
}

// OfLocal serves the page of the local cluster that has this kubeconfig, until ctx ends, and returns its link. It reads nothing
// before somebody opens it.
func OfLocal(ctx context.Context, kubeconfig string) (string, error) {
	c, err := (&cluster.Flags{Kubeconfig: kubeconfig}).Connect()
	if err != nil {
		return "", err
	}
	link, serve, err := (&serving{port: usualPort, currency: usualCurrency}).open(ctx, c)
	if err != nil {
		return "", err
	}
	go func() { _ = serve() }() // it ends with ctx; a listener on loopback has no other end
	return link, nil
}

// open a port for the page, and return its link and what serves it until ctx ends.
func (s *serving) open(ctx context.Context, c *cluster.Client) (link string, serve func() error, err error) {
	klog.SetOutput(discard{}) // the page says what cannot be read
	klog.LogToStderr(false)
	prices, err := s.readPrices()
	if err != nil {
		return "", nil, err
	}
	prometheus, err := web.NewPrometheus(s.prometheus)
	if err != nil {
		return "", nil, err
	}
	key, err := readKey()
	if err != nil {
		return "", nil, err
	}
	listener, err := s.listen()
	if err != nil {
		return "", nil, err
	}
	address := listener.Addr().String()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", nil, errors.Join(err, listener.Close())
	}
	access := web.NewKubeconfig(c, key, port)
	server := &http.Server{
		Handler:           web.New(ctx, web.Options{Access: access, Pinned: true, Cluster: c.REST.Host, Prices: prices, Currency: s.currency, Prometheus: prometheus}),
		ReadHeaderTimeout: 10 * time.Second,
	}
	return fmt.Sprintf("http://%s/open?key=%s", address, key), func() error {
		ended := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer ended()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, nil
}

// readKey is the key of this person's links, made once: tabs that are open find a server that was
// started again, and bookmarks last.
func readKey() (string, error) {
	home, err := local.Home()
	if err != nil {
		return "", err
	}
	file := filepath.Join(home, "web.key")
	data, err := os.ReadFile(file)
	if err == nil && len(data) >= 32 {
		return string(data), nil
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return "", err
	}
	key := web.NewKey()
	return key, os.WriteFile(file, []byte(key), 0o600)
}

// listen on the port, or on any where it is taken.
func (s *serving) listen() (net.Listener, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)))
	if err != nil && s.port == usualPort {
		return net.Listen("tcp", "127.0.0.1:0")
	}
	return listener, err
}

func (s *serving) readPrices() (map[string]float64, error) {
	prices := map[string]float64{}
	for _, pair := range s.prices {
		model, text, _ := strings.Cut(pair, "=")
		amount, err := strconv.ParseFloat(text, 64)
		if err != nil || amount < 0 || model == "" {
			return nil, fmt.Errorf("--price %q: write MODEL=AMOUNT, as in H100-80G=2.50", pair)
		}
		prices[model] = amount
	}
	return prices, nil
}

// show opens a link in the browser. Without a browser there is still the link.
func show(link string) {
	opener := "xdg-open"
	if runtime.GOOS == "darwin" {
		opener = "open"
	}
	if cmd := exec.Command(opener, link); cmd.Start() == nil {
		go func() { _ = cmd.Wait() }()
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
