package local

import (
	"bytes"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// AskAgain has a client send again what nothing is wrong with that seconds would not mend: the store was too late ("etcdserver: request timed
// out"), or a webhook was, or its program is just starting again. Of neither is anything written. client-go sends it ten times.
func AskAgain(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return askingAgain{next} })
}

type askingAgain struct{ http.RoundTripper }

func (a askingAgain) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := a.RoundTripper.RoundTrip(request)
	if err != nil || response.StatusCode < http.StatusInternalServerError {
		return response, err
	}
	why, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(why))
	has := func(words string) bool { return bytes.Contains(why, []byte(words)) }
	switch webhook := has("failed calling webhook"); {
	case has("etcdserver: "), webhook && has("context deadline exceeded"):
		response.Header.Set("Retry-After", "1")
	case webhook && (has("connection refused") || has("connection reset by peer")):
		response.Header.Set("Retry-After", "2") // until a program is ready again
	}
	return response, err
}

// unlessLate is nil for an answer that came too late, for one who will ask again.
func unlessLate(err error) error {
	if apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) {
		return nil
	}
	return err
}
