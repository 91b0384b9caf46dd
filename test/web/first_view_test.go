package web

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/elastic-ai/elastic/internal/web"
)

// BenchmarkNewPerson is what a new person waits for the server: it reads a large cluster with their rights and sends all of it,
// compressed. What the API server takes to send it is in it, what the browser does is not.
func BenchmarkNewPerson(b *testing.B) {
	api := httptest.NewServer(newAPI())
	b.Cleanup(api.Close) // after the context of the watches
	server := httptest.NewServer(web.New(b.Context(), web.Options{Access: web.NewInCluster(&rest.Config{Host: api.URL}, nil), Cluster: "large"}))
	b.Cleanup(server.CloseClientConnections)
	b.ReportAllocs()
	before, people := heap(), 0
	for ; b.Loop(); people++ {
		if lines := firstView(b, server.URL, fmt.Sprint("person-", people)); lines < (manyNodes+manyWorkloads)/300 {
			b.Fatalf("%d lines are not all", lines)
		}
	}
	b.ReportMetric(float64(heap()-before)/float64(people)/(1<<20), "MiB/person")
}

// heap is what is in use.
func heap() uint64 {
	runtime.GC()
	var of runtime.MemStats
	runtime.ReadMemStats(&of)
	return of.HeapAlloc
}

// firstView reads a stream until it says that this is all.
func firstView(b *testing.B, server, person string) (lines int) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, server+"/api/stream", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+person)
	r.Header.Set("Accept-Encoding", "gzip")
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	plain, err := gzip.NewReader(answer.Body)
	if err != nil {
		b.Fatal(err)
	}
	for all := bufio.NewReaderSize(plain, 1<<20); ; lines++ {
		line, err := all.ReadString('\n')
		if err != nil {
			b.Fatal(err)
		}
		if strings.HasPrefix(line, "event: ready") {
			return lines
		}
	}
}
