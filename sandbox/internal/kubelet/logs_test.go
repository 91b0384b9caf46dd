package kubelet

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

func logServer(t *testing.T, pods ...*corev1.Pod) (cache.Indexer, *httptest.Server) {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, pod := range pods {
		if err := indexer.Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(newHandler(corelisters.NewPodLister(indexer)))
	t.Cleanup(server.Close)
	return indexer, server
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestLogs(t *testing.T) {
	pod := newPod(corev1.RestartPolicyNever, map[string]string{RunForAnnotation: "3s", ExitCodeAnnotation: "2"})
	pod.Spec.Containers[0].Command = []string{"train", "--epochs", "3"}
	_, server := logServer(t, pod)
	url := server.URL + "/containerLogs/n/p/main"

	if code, body := get(t, url); code != http.StatusBadRequest || !strings.Contains(body, "waiting to start") {
		t.Errorf("before the start: %d %q", code, body)
	}
	play(t, pod, 0)
	first := "simulated container main (image i) started on node node\nwould have run: train --epochs 3\n"
	if code, body := get(t, url); code != http.StatusOK || body != first {
		t.Errorf("while it runs: %d %q", code, body)
	}
	play(t, pod, 3*time.Second)
	last := "finished after 3s with exit code 2\n"
	for query, want := range map[string]string{
		"":                                first + last,
		"?follow=true":                    first + last, // nothing can follow, so it ends
		"?tailLines=1":                    last,
		"?tailLines=0":                    "",
		"?limitBytes=9":                   "simulated",
		"?tailLines=1&timestamps=true":    "2026-01-02T03:04:08Z " + last,
		"?sinceTime=2026-01-02T03:04:06Z": last,
	} {
		if code, body := get(t, url+query); code != http.StatusOK || body != want {
			t.Errorf("%s: %d %q, want %q", query, code, body, want)
		}
	}
	for path, want := range map[string]int{
		"/containerLogs/n/nobody/main":        http.StatusNotFound,
		"/containerLogs/n/p/main?tailLines=x": http.StatusBadRequest,
		"/exec/n/p/main":                      http.StatusNotImplemented,
	} {
		if code, body := get(t, server.URL+path); code != want {
			t.Errorf("%s: %d %q, want %d", path, code, body, want)
		}
	}
}

func TestFollowedLogEndsWithThePod(t *testing.T) {
	pod := newPod(corev1.RestartPolicyNever, map[string]string{RunForAnnotation: "3s"})
	play(t, pod, 0)
	indexer, server := logServer(t, pod)
	response, err := http.Get(server.URL + "/containerLogs/n/p/other?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	ended := pod.DeepCopy()
	play(t, ended, 3*time.Second)
	if err := indexer.Update(ended); err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body) // returns only when the log is over
	if err != nil || !strings.HasSuffix(string(body), "finished after 3s with exit code 0\n") || strings.Count(string(body), "\n") != 3 {
		t.Errorf("got %q, %v", body, err)
	}
}

func TestFollowEndsWithItsReader(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	followLogs(ctx, false, func() bool { return false }) // would never return otherwise
}
