package gpu

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/elastic-ai/elastic/internal/placement"
	"github.com/elastic-ai/elastic/internal/placement/policy"
)

// Hook is a scheduling policy behind a webhook: it is sent the pod and the nodes that can take it, and
// answers with scores.
type Hook struct {
	url    string
	client http.Client
}

// HookRequest is what a Hook is sent.
type HookRequest struct {
	Pod   *corev1.Pod  `json:"pod"`
	Nodes []NodeStatus `json:"nodes"`
}

// HookResponse is what it answers. Nodes it does not name get the lowest score.
type HookResponse struct {
	Nodes []HookNode `json:"nodes"`
}

// HookNode is its opinion of one node.
type HookNode struct {
	Name string `json:"name"`
	// Score from 0 to 10, higher is better.
	Score int64 `json:"score"`
	// Cards by index, the first is taken first; empty leaves it to the cluster's policy.
	Cards []int `json:"cards,omitempty"`
}

// NewHook makes a Hook for an https URL, or an http one on this machine or network. An empty CA bundle
// means the system's.
func NewHook(url string, caBundle []byte, timeout time.Duration) (*Hook, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	if len(caBundle) > 0 {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(caBundle) {
			return nil, errors.New("its caBundle holds no certificate in PEM")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return &Hook{url: url, client: http.Client{Transport: transport, Timeout: cmp.Or(timeout, 2*time.Second)}}, nil
}

// mostAnswer bytes of a hook's answer: 50,000 nodes with 16 cards are some 6 MiB.
const mostAnswer = 32 << 20

func (h *Hook) ask(ctx context.Context, pod *corev1.Pod, nodes []placement.NodeStatus) (map[string]HookNode, error) {
	body, err := json.Marshal(HookRequest{Pod: pod, Nodes: StatusOf(nodes)})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := h.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %.200s", h.url, response.Status, data)
	}
	answer := HookResponse{}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, fmt.Errorf("%s: %w", h.url, err)
	}
	opinions := make(map[string]HookNode, len(answer.Nodes))
	for _, n := range answer.Nodes {
		if n.Score < 0 || n.Score > placement.MaxScore {
			return nil, fmt.Errorf("%s: node %s has score %d: want 0 to %d", h.url, n.Name, n.Score, placement.MaxScore)
		}
		opinions[n.Name] = n
	}
	return opinions, nil
}

// opinions of the pod's hook on nodes; nil where it has none, or where the hook fails: then the
// cluster's policy decides, for a pod must not wait for a policy.
func (s *Shell) opinions(ctx context.Context, w *podRequest, names []string) map[string]HookNode {
	hook := s.options.Hooks[w.ask.Policy]
	if hook == nil {
		return nil
	}
	var nodes []placement.NodeStatus
	err := s.do(ctx, func() {
		for _, name := range names {
			if status, known := s.engine.NodeStatus(name); known {
				nodes = append(nodes, status)
			}
		}
	})
	if err != nil {
		return nil
	}
	opinions, err := hook.ask(ctx, w.pod, nodes)
	if err != nil {
		s.options.Log.Error(err, "the policy's webhook failed, the cluster's policy decides", "policy", w.ask.Policy, "pod", w.ask.Key)
		return nil
	}
	for name, opinion := range opinions {
		opinion.Cards = positions(nodes, name, opinion.Cards)
		opinions[name] = opinion
	}
	return opinions
}

// positions of cards on their node, from the indexes that people see.
func positions(nodes []placement.NodeStatus, name string, indexes []int) []int {
	at := slices.IndexFunc(nodes, func(n placement.NodeStatus) bool { return n.Name == name })
	if at < 0 {
		return nil
	}
	var list []int
	for _, index := range indexes {
		if i := slices.IndexFunc(nodes[at].Cards, func(c placement.CardStatus) bool { return c.Index == index }); i >= 0 {
			list = append(list, i)
		}
	}
	return list
}

// chosen is the ask with the hook's order of cards on the node, if it has one.
func (s *Shell) chosen(ctx context.Context, w *podRequest, node string) placement.Pod {
	ask := w.withoutClaims()
	if opinion := s.opinions(ctx, w, []string{node})[node]; len(opinion.Cards) > 0 {
		ask.Policy = policy.Order(opinion.Cards)
	}
	return ask
}
