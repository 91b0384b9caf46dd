package extender

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/gpu"
	"github.com/elastic-ai/elastic/internal/placement"
	"github.com/elastic-ai/elastic/internal/version"
)

// Scheduler answers for the cluster; *gpu.Shell does. A *gpu.Refused from any method is about the pod,
// not about one node.
type Scheduler interface {
	Filter(ctx context.Context, pod *corev1.Pod, nodes []string) ([]placement.Verdict, error)
	Score(ctx context.Context, pod *corev1.Pod, nodes []string) ([]int64, error)
	Preempt(ctx context.Context, pod *corev1.Pod, victims map[string][]types.UID) (map[string]bool, error)
	Bind(ctx context.Context, pod client.ObjectKey, uid types.UID, node string) error
	Status(ctx context.Context) ([]placement.NodeStatus, error)
}

var _ Scheduler = (*gpu.Shell)(nil)

// Handler serves the extender's routes for a scheduler.
type Handler struct {
	scheduler Scheduler
	metrics   *Metrics
	log       logr.Logger
	mux       *http.ServeMux
}

// NewHandler makes a Handler.
func NewHandler(scheduler Scheduler, metrics *Metrics, log logr.Logger) *Handler {
	h := &Handler{scheduler: scheduler, metrics: metrics, log: log, mux: http.NewServeMux()}
	h.mux.Handle("POST /scheduler/filter", verb(h, "filter", h.filter))
	h.mux.Handle("POST /scheduler/priorities", verb(h, "priorities", h.priorities))
	h.mux.Handle("POST /scheduler/preempt", verb(h, "preempt", h.preempt))
	h.mux.Handle("POST /scheduler/bind", verb(h, "bind", h.bind))
	h.mux.HandleFunc("GET /scheduler/status", h.status)
	h.mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]string{"version": version.String()})
	})
	return h
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// mostBytes of a request: a pod is at most 1.5 MiB in etcd, and 50,000 node names are some 3 MiB.
const mostBytes = 8 << 20

// poolBytes is the largest buffer that is used again: a few large requests do not stay in memory.
const poolBytes = 1 << 20

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func putBack(buffer *bytes.Buffer) {
	if buffer.Cap() <= poolBytes {
		buffers.Put(buffer)
	}
}

// verb decodes the request, answers and encodes the answer.
func verb[A, R any](h *Handler, name string, answer func(context.Context, *A) R) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		defer func() { h.metrics.seconds.WithLabelValues(name).Observe(time.Since(start).Seconds()) }()
		buffer := buffers.Get().(*bytes.Buffer)
		defer putBack(buffer)
		buffer.Reset()
		if _, err := buffer.ReadFrom(http.MaxBytesReader(w, r.Body, mostBytes)); err != nil {
			status := http.StatusBadRequest
			if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
				status = http.StatusRequestEntityTooLarge
				err = fmt.Errorf("a request has at most %d bytes: set nodeCacheCapable in kube-scheduler's configuration, so that it sends names of nodes", large.Limit)
			}
			http.Error(w, err.Error(), status)
			return
		}
		args := new(A)
		if err := json.Unmarshal(buffer.Bytes(), args); err != nil {
			http.Error(w, fmt.Sprintf("reading the request: %v", err), http.StatusBadRequest)
			return
		}
		reply(w, answer(r.Context(), args))
	})
}

// reply with a length, so that the connection is used again.
func reply(w http.ResponseWriter, answer any) {
	buffer := buffers.Get().(*bytes.Buffer)
	defer putBack(buffer)
	buffer.Reset()
	var err error
	if large, ok := answer.(interface{ writeTo(*bytes.Buffer) error }); ok {
		err = large.writeTo(buffer)
	} else {
		err = json.NewEncoder(buffer).Encode(answer)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(buffer.Len()))
	_, _ = w.Write(buffer.Bytes()) // the client may have gone
}

func (h *Handler) filter(ctx context.Context, args *filterArgs) *filterResult {
	if args.Pod == nil {
		return &filterResult{Error: "the request has no pod"}
	}
	names := args.names()
	verdicts, err := h.scheduler.Filter(ctx, args.Pod, names)
	var refused *gpu.Refused
	switch {
	case errors.As(err, &refused):
		result := &filterResult{NodeNames: &[]string{}, FailedAndUnresolvableNodes: make(map[string]string, len(names))}
		for _, name := range names {
			result.FailedAndUnresolvableNodes[name] = refused.Reason
		}
		return result
	case err != nil:
		return &filterResult{Error: err.Error()}
	}
	return filtered(args, verdicts)
}

func filtered(args *filterArgs, verdicts []placement.Verdict) *filterResult {
	var fit []string
	if args.NodeNames != nil {
		fit = (*args.NodeNames)[:0] // the request's list becomes the answer's
	}
	if fit == nil {
		fit = []string{}
	}
	result := &filterResult{NodeNames: &fit}
	for _, v := range verdicts {
		switch {
		case v.Reason == placement.Fits:
			fit = append(fit, v.Node)
		case v.Reason.HelpedByPreemption():
			if result.FailedNodes == nil {
				result.FailedNodes = map[string]string{}
			}
			result.FailedNodes[v.Node] = v.Reason.String()
		default:
			if result.FailedAndUnresolvableNodes == nil {
				result.FailedAndUnresolvableNodes = map[string]string{}
			}
			result.FailedAndUnresolvableNodes[v.Node] = v.Reason.String()
		}
	}
	if args.NodeNames == nil && args.Nodes != nil {
		result.Nodes = &corev1.NodeList{}
		for i, v := range verdicts {
			if v.Reason == placement.Fits {
				result.Nodes.Items = append(result.Nodes.Items, args.Nodes.Items[i])
			}
		}
	}
	return result
}

func (h *Handler) priorities(ctx context.Context, args *filterArgs) priorities {
	names := args.names()
	result := make(priorities, len(names))
	for i, name := range names {
		result[i].Host = name
	}
	if args.Pod == nil {
		return result
	}
	scores, err := h.scheduler.Score(ctx, args.Pod, names)
	if err != nil {
		h.log.Error(err, "scoring nodes failed, all are alike", "pod", args.Pod.Namespace+"/"+args.Pod.Name)
		return result
	}
	for i, score := range scores {
		result[i].Score = score
	}
	return result
}

func (h *Handler) preempt(ctx context.Context, args *preemptArgs) *preemptResult {
	result := &preemptResult{NodeNameToMetaVictims: map[string]*metaVictims{}}
	if args.Pod == nil {
		return result
	}
	all := args.meta()
	uids := make(map[string][]types.UID, len(all))
	for node, v := range all {
		uids[node] = []types.UID{}
		for _, pod := range v.Pods {
			uids[node] = append(uids[node], pod.UID)
		}
	}
	fits, err := h.scheduler.Preempt(ctx, args.Pod, uids)
	if err != nil {
		// Without an answer no pod is preempted.
		h.log.Error(err, "looking at victims failed", "pod", args.Pod.Namespace+"/"+args.Pod.Name)
		return result
	}
	for node, v := range all {
		if fits[node] {
			result.NodeNameToMetaVictims[node] = v
		}
	}
	return result
}

func (h *Handler) bind(ctx context.Context, args *bindArgs) *bindResult {
	key := client.ObjectKey{Namespace: args.PodNamespace, Name: args.PodName}
	if args.PodUID == "" || args.Node == "" || key.Name == "" || key.Namespace == "" {
		return &bindResult{Error: "the request names no pod by namespace, name and UID, or no node"}
	}
	if err := h.scheduler.Bind(ctx, key, args.PodUID, args.Node); err != nil {
		h.metrics.binds.WithLabelValues("failed").Inc()
		h.log.Info("binding failed", "pod", key.String(), "node", args.Node, "error", err.Error())
		return &bindResult{Error: err.Error()}
	}
	h.metrics.binds.WithLabelValues("bound").Inc()
	h.log.V(1).Info("bound", "pod", key.String(), "node", args.Node)
	return &bindResult{}
}

func (h *Handler) status(w http.ResponseWriter, r *http.Request) {
	status, err := h.scheduler.Status(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	reply(w, gpu.StatusOf(status))
}
