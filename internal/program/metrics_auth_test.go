package program

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
)

func TestMetricsAreServedPlainlyOnLoopbackAlone(t *testing.T) {
	for address, secure := range map[string]bool{
		":8080": true, "0.0.0.0:8080": true, "10.1.2.3:8080": true, "[::]:8080": true, "metrics.example.com:8080": true,
		"127.0.0.1:8080": false, "[::1]:0": false, "localhost:8080": false, "0": false,
	} {
		m := v1alpha1.Metrics{Endpoint: v1alpha1.Endpoint{BindAddress: address}}
		if got := metricsServer(m, func(*tls.Config) {}); got.SecureServing != secure || (got.FilterProvider != nil) != secure || (len(got.TLSOpts) == 1) != secure {
			t.Errorf("%s: secure is %v, want %v", address, got.SecureServing, secure)
		}
		m.Insecure = true
		if metricsServer(m).SecureServing {
			t.Errorf("%s: insecure was asked for", address)
		}
	}
}

func TestOnlyReadersReadMetrics(t *testing.T) {
	asked, down := 0, false
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
			asked++
			if down {
				return errors.New("no answer")
			}
			switch review := obj.(type) {
			case *authenticationv1.TokenReview:
				review.Status.Authenticated = review.Spec.Token != "forged"
				review.Status.User.Username = review.Spec.Token
			case *authorizationv1.SubjectAccessReview:
				review.Status.Allowed = review.Spec.User == "prometheus" && review.Spec.NonResourceAttributes.Path == "/metrics"
			}
			return nil
		},
	})
	now := time.Now()
	readers := &readers{client: c, now: func() time.Time { return now }, verdicts: map[[sha256.Size]byte]verdict{}}
	served := readers.guard(logr.Discard(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	get := func(authorization, path string) int {
		request := httptest.NewRequest(http.MethodGet, path, nil)
		if authorization != "" {
			request.Header.Set("Authorization", authorization)
		}
		answer := httptest.NewRecorder()
		served.ServeHTTP(answer, request)
		return answer.Code
	}
	for _, tc := range []struct {
		name, authorization, path string
		want                      int
	}{
		{"no token", "", "/metrics", http.StatusUnauthorized},
		{"an empty token", "Bearer ", "/metrics", http.StatusUnauthorized},
		{"a password", "Basic cHJvbWV0aGV1cw==", "/metrics", http.StatusUnauthorized},
		{"a forged token", "Bearer forged", "/metrics", http.StatusUnauthorized},
		{"somebody", "Bearer somebody", "/metrics", http.StatusForbidden},
		{"a reader", "Bearer prometheus", "/metrics", http.StatusOK},
		{"a reader, of something else", "Bearer prometheus", "/debug", http.StatusForbidden},
	} {
		if got := get(tc.authorization, tc.path); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
	down = true
	before := asked
	if got := get("Bearer prometheus", "/metrics"); got != http.StatusOK || asked != before {
		t.Errorf("a verdict is remembered: %d after %d questions", got, asked-before)
	}
	now = now.Add(verdictHolds)
	if got := get("Bearer prometheus", "/metrics"); got != http.StatusServiceUnavailable {
		t.Errorf("a verdict ends, and nobody can be asked: %d", got)
	}
	down = false
	for i := range 3 * mostVerdicts {
		get("Bearer x"+string(rune(i)), "/metrics")
	}
	if len(readers.verdicts) > mostVerdicts {
		t.Errorf("%d verdicts are remembered", len(readers.verdicts))
	}
}
