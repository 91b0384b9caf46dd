package local

import (
	"bytes"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

// AskAgain has a client send again what the store of a busy machine was too late for ("etcdserver: request timed out"): nothing
// is wrong that a second would not mend. client-go sends it ten times.
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
	if bytes.Contains(why, []byte("etcdserver: ")) {
		response.Header.Set("Retry-After", "1")
	}
	return response, err
}
