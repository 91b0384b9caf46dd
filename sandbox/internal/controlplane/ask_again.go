package controlplane

import "net/http"

// askingAgain has client-go ask again, a second later and up to ten times, what the API server could not do: the store of a busy
// machine answers some requests too late.
type askingAgain struct{ http.RoundTripper }

func (a askingAgain) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := a.RoundTripper.RoundTrip(request)
	if err == nil && response.StatusCode >= http.StatusInternalServerError && response.Header.Get("Retry-After") == "" {
		response.Header.Set("Retry-After", "1")
	}
	return response, err
}
