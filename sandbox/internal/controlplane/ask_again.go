package controlplane

import (
	"bytes"
	"io"
	"net/http"
)

// askingAgain has client-go send again, a second later and up to ten times, what the store of a busy machine was too late for.
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
