package local

import (
	"net/http"

	"k8s.io/client-go/rest"
)

// bePatient has a client ask again what the API server could not do: the store of a busy machine answers some requests too late
// ("etcdserver: request timed out"), and nothing is wrong that a second would not mend. client-go asks ten times.
func bePatient(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return patience{next} })
}

type patience struct{ http.RoundTripper }

func (p patience) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := p.RoundTripper.RoundTrip(request)
	if err == nil && response.StatusCode >= http.StatusInternalServerError && response.Header.Get("Retry-After") == "" {
		response.Header.Set("Retry-After", "1")
	}
	return response, err
}
