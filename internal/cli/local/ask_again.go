package local

import (
	"net/http"

	"k8s.io/client-go/rest"
)

// askAgain has a client ask again what the API server could not do: the store of a busy machine answers some requests too late
// ("etcdserver: request timed out"), and nothing is wrong that a second would not mend. client-go asks ten times.
func askAgain(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return askingAgain{next} })
}

type askingAgain struct{ http.RoundTripper }

func (a askingAgain) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := a.RoundTripper.RoundTrip(request)
	if err == nil && response.StatusCode >= http.StatusInternalServerError && response.Header.Get("Retry-After") == "" {
		response.Header.Set("Retry-After", "1")
	}
	return response, err
}
