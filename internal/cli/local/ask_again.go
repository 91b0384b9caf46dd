package local

import (
	"bytes"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// AskAgain has a client send again what nothing is wrong with that seconds would not mend: the store was too late ("etcdserver: request timed
// out"), the API server itself, or a webhook, as AskWebhooksAgain says. What the first two were too late for may have been written all the
// same, so this is for objects whose names are given.
func AskAgain(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return askingAgain{RoundTripper: next, store: true} })
}

// AskWebhooksAgain has a client send again what a webhook did not answer in time, or refused as its program is just starting again. Webhooks
// are asked before anything is written. client-go sends it ten times.
func AskWebhooksAgain(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return askingAgain{RoundTripper: next} })
}

type askingAgain struct {
	http.RoundTripper
	store bool // what the store and the API server were too late for, too
}

func (a askingAgain) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := a.RoundTripper.RoundTrip(request)
	if err != nil || response.StatusCode < http.StatusInternalServerError {
		return response, err
	}
	why, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(why))
	has := func(words string) bool { return bytes.Contains(why, []byte(words)) }
	switch webhook := has("failed calling webhook"); {
	case a.store && (has("etcdserver: ") || has("request did not complete within requested timeout")), webhook && has("context deadline exceeded"):
		response.Header.Set("Retry-After", "1")
	case webhook && (has("connection refused") || has("connection reset by peer")):
		response.Header.Set("Retry-After", "2") // until a program is ready again
	}
	return response, nil
}

// unlessLate is nil for an answer that came too late, for one who will ask again.
func unlessLate(err error) error {
	if apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) {
		return nil
	}
	return err
}
