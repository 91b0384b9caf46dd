package program

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
)

// metricsServer serves metrics to those who may read them: names of queues, pods and namespaces are in
// them. Where it is TLS, limits are those of its versions and ciphers.
func metricsServer(m v1alpha1.Metrics, limits ...func(*tls.Config)) server.Options {
	options := server.Options{BindAddress: m.BindAddress}
	if m.Insecure || m.BindAddress == "0" || isLoopback(m.BindAddress) {
		return options
	}
	options.SecureServing, options.CertDir, options.TLSOpts = true, m.CertDir, limits
	options.FilterProvider = onlyReaders
	return options
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// onlyReaders lets requests through whose bearer token may get the path, as the API server says. The
// library's own filter does the same with the API server's code, a third of a program's size.
func onlyReaders(config *rest.Config, httpClient *http.Client) (server.Filter, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(authenticationv1.AddToScheme(scheme), authorizationv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme, HTTPClient: httpClient})
	if err != nil {
		return nil, err
	}
	readers := &readers{client: c, now: time.Now, verdicts: map[[sha256.Size]byte]verdict{}}
	return func(log logr.Logger, next http.Handler) (http.Handler, error) { return readers.guard(log, next), nil }, nil
}

// readers remembers verdicts for a while: a scraper asks four times a minute, and strangers must not
// have every request become two of the API server's.
type readers struct {
	client client.Client
	now    func() time.Time

	mu       sync.Mutex
	verdicts map[[sha256.Size]byte]verdict
}

type verdict struct {
	status int
	until  time.Time
}

const (
	verdictHolds = time.Minute
	mostVerdicts = 1000
	reviewWithin = 10 * time.Second
)

func (r *readers) guard(log logr.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		token, isBearer := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
		if !isBearer || token == "" {
			http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
			return
		}
		status, err := r.verdict(request.Context(), token, request.URL.Path)
		if err != nil {
			log.Error(err, "asking the API server who reads metrics failed")
			http.Error(w, "the API server could not be asked", http.StatusServiceUnavailable)
			return
		}
		if status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		next.ServeHTTP(w, request)
	})
}

func (r *readers) verdict(ctx context.Context, token, path string) (int, error) {
	key := sha256.Sum256([]byte(path + "\n" + token))
	r.mu.Lock()
	known, found := r.verdicts[key]
	r.mu.Unlock()
	if found && r.now().Before(known.until) {
		return known.status, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewWithin)
	defer cancel()
	status, err := r.review(ctx, token, path)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.verdicts) >= mostVerdicts {
		clear(r.verdicts)
	}
	r.verdicts[key] = verdict{status, r.now().Add(verdictHolds)}
	return status, nil
}

// review asks the API server whose token it is, and what that one may do.
func (r *readers) review(ctx context.Context, token, path string) (int, error) {
	who := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := r.client.Create(ctx, who); err != nil {
		return 0, err
	}
	if !who.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := who.Status.User
	may := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups,
		Extra:                 map[string]authorizationv1.ExtraValue{},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}}
	for name, values := range user.Extra {
		may.Spec.Extra[name] = authorizationv1.ExtraValue(values)
	}
	if err := r.client.Create(ctx, may); err != nil {
		return 0, err
	}
	if !may.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
