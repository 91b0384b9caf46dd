package gpu

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/request"
)

// kube-scheduler sets a pod that no node can take aside until something changes that it knows of. It
// knows nothing of GPU objects, ElasticGPUs and reservations, and when a pod goes it may see that first,
// ask again and be refused before our watch reports it. So when there is more free capacity, pods that
// were refused get a new label, which has kube-scheduler requeue them; those that a claim refused, when it changes.

// RetryLabel changes when a refused pod should be tried again.
const RetryLabel = "elasticgpu.io/retry"

const (
	// requeuePause gathers what becomes free together; mostRequeued pods are requeued at a time, the
	// others when kube-scheduler gets to them by itself.
	requeuePause = 200 * time.Millisecond
	mostRequeued = 32
	// justNow is how far our cache may be behind kube-scheduler's.
	justNow = 3 * time.Second
)

// refusal of a pod: when, and the claims that it uses.
type refusal struct {
	at     time.Time
	claims []string
}

// refuse remembers that no node could take a pod.
func (s *Shell) refuse(pod *corev1.Pod) {
	r := refusal{at: s.options.Now()}
	for _, use := range request.Uses(pod) {
		r.claims = append(r.claims, use.Claim)
	}
	s.refused[client.ObjectKeyFromObject(pod)] = r
}

// sawClaim requeues the refused pods that use it: the controller of claims labels them as soon as it has bound a claim,
// and kube-scheduler may then ask before our cache has that. Who may change a claim may change these pods, too.
func (s *Shell) sawClaim(claim *egpu.ElasticGPUClaim) {
	used := false
	for key, r := range s.refused {
		if key.Namespace == claim.Namespace && slices.Contains(r.claims, claim.Name) {
			r.at, used = s.options.Now(), true
			s.refused[key] = r
		}
	}
	if used {
		s.requeue(false)
	}
}

// requeue pods: all that were refused, or those refused so lately that the question may have come too
// early.
func (s *Shell) requeue(all bool) {
	if len(s.refused) == 0 || !s.Leads() {
		return
	}
	s.requeueAll = s.requeueAll || all
	if s.requeueing {
		return
	}
	s.requeueing = true
	time.AfterFunc(requeuePause, func() { s.ask(s.requeueNow) })
}

func (s *Shell) requeueNow() {
	since := s.options.Now().Add(-justNow)
	var keys []client.ObjectKey
	for key, r := range s.refused {
		if s.requeueAll || r.at.After(since) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b client.ObjectKey) int {
		return cmp.Or(s.refused[a].at.Compare(s.refused[b].at), cmp.Compare(a.String(), b.String()))
	})
	keys = keys[:min(len(keys), mostRequeued)]
	for _, key := range keys {
		delete(s.refused, key)
	}
	s.requeueing, s.requeueAll = false, false
	s.requeues++
	go s.label(keys, strconv.FormatInt(s.options.Now().Unix(), 36)+"-"+strconv.Itoa(s.requeues))
}

func (s *Shell) label(keys []client.ObjectKey, value string) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{RetryLabel: value}}})
	if err != nil {
		panic(err) // strings in maps
	}
	for _, key := range keys {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		err := s.options.Client.Patch(context.Background(), pod, client.RawPatch(types.MergePatchType, patch))
		if client.IgnoreNotFound(err) != nil {
			s.options.Log.Error(err, "requeueing a refused pod failed", "pod", key.String())
		}
	}
}
