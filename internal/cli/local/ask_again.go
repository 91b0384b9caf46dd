package local

import (
	"bytes"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// AskAgain has a client send again what a busy machine was too late for: the store ("etcdserver: request timed out"), or a webhook that did
// not answer in time. Nothing is wrong that a second would not mend. client-go sends it ten times.
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
	if bytes.Contains(why, []byte("etcdserver: ")) || bytes.Contains(why, []byte("failed calling webhook")) && bytes.Contains(why, []byte("context deadline exceeded")) {
		response.Header.Set("Retry-After", "1")
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
