package kubelet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// followInterval is how often a followed log looks for news.
const followInterval = 200 * time.Millisecond

// newHandler serves what the API server asks of a kubelet: logs. Simulated
// containers have nothing to enter or forward to.
func newHandler(pods corelisters.PodLister) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		serveLogs(w, r, pods)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "this node is simulated: its containers have logs, but nothing to enter, attach or forward to", http.StatusNotImplemented)
	})
	return mux
}

func serveLogs(w http.ResponseWriter, r *http.Request, pods corelisters.PodLister) {
	options, err := readLogOptions(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name, container := r.PathValue("pod"), r.PathValue("container")
	get := func() (*corev1.Pod, error) { return pods.Pods(r.PathValue("namespace")).Get(name) }
	pod, err := get()
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	lines, over := logLines(pod, container, options.previous)
	if lines == nil {
		http.Error(w, fmt.Sprintf("container %q in pod %q is waiting to start", container, name), http.StatusBadRequest)
		return
	}
	out := &logWriter{to: w, options: options}
	out.write(options.first(lines))
	written := len(lines)
	if !options.follow || options.previous {
		return
	}
	followLogs(r.Context(), over, func() bool {
		pod, err := get()
		if errors.IsNotFound(err) {
			return true
		}
		lines, over := logLines(pod, container, false)
		if len(lines) > written {
			out.write(lines[written:])
			written = len(lines)
		}
		return over
	})
}

// followLogs calls more until it says that all is written.
func followLogs(ctx context.Context, over bool, more func() bool) {
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	for !over {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			over = more()
		}
	}
}

type logLine struct {
	at   time.Time
	text string
}

// logLines is what a simulated container can truthfully say: nothing is stored,
// everything follows from the pod. over is true once nothing can be added.
func logLines(pod *corev1.Pod, container string, previous bool) (lines []logLine, over bool) {
	spec, status := findContainer(pod, container)
	if spec == nil || status == nil {
		return nil, false
	}
	state := status.State
	if previous {
		state = status.LastTerminationState
	}
	var began time.Time
	switch {
	case state.Running != nil:
		began = state.Running.StartedAt.Time
	case state.Terminated != nil:
		began = state.Terminated.StartedAt.Time
	default:
		return nil, false
	}
	command := "the image's own command"
	if all := append(append([]string{}, spec.Command...), spec.Args...); len(all) > 0 {
		command = strings.Join(all, " ")
	}
	lines = []logLine{
		{began, fmt.Sprintf("simulated container %s (image %s) started on node %s", container, spec.Image, pod.Spec.NodeName)},
		{began, "would have run: " + command},
	}
	t := state.Terminated
	if t == nil {
		return lines, false
	}
	took := t.FinishedAt.Sub(t.StartedAt.Time)
	return append(lines, logLine{t.FinishedAt.Time, fmt.Sprintf("finished after %s with exit code %d", took, t.ExitCode)}), true
}

func findContainer(pod *corev1.Pod, name string) (*corev1.Container, *corev1.ContainerStatus) {
	var spec *corev1.Container
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				spec = &list[i]
			}
		}
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return spec, &list[i]
			}
		}
	}
	return spec, nil
}

// logOptions are those of PodLogOptions, as the API server writes them into the query.
type logOptions struct {
	follow, previous, timestamps bool
	tail, limit                  int64 // -1 for all
	since                        time.Time
}

func readLogOptions(query url.Values) (logOptions, error) {
	o := logOptions{tail: -1, limit: -1}
	o.follow = query.Get("follow") == "true"
	o.previous = query.Get("previous") == "true"
	o.timestamps = query.Get("timestamps") == "true"
	for name, to := range map[string]*int64{"tailLines": &o.tail, "limitBytes": &o.limit} {
		if text := query.Get(name); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < 0 {
				return o, fmt.Errorf("%s=%q is not a number", name, text)
			}
			*to = n
		}
	}
	if text := query.Get("sinceSeconds"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return o, fmt.Errorf("sinceSeconds=%q is not a number", text)
		}
		o.since = time.Now().Add(-time.Duration(n) * time.Second)
	}
	if text := query.Get("sinceTime"); text != "" {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return o, fmt.Errorf("sinceTime=%q is not a time", text)
		}
		o.since = t
	}
	return o, nil
}

// first are the lines to begin with.
func (o logOptions) first(lines []logLine) []logLine {
	for len(lines) > 0 && lines[0].at.Before(o.since) {
		lines = lines[1:]
	}
	if o.tail >= 0 && int64(len(lines)) > o.tail {
		lines = lines[int64(len(lines))-o.tail:]
	}
	return lines
}

type logWriter struct {
	to      http.ResponseWriter
	options logOptions
	written int64
}

// write sends lines at once; an error means that the client is gone, which
// the request's context says as well.
func (w *logWriter) write(lines []logLine) {
	var text strings.Builder
	for _, line := range lines {
		if w.options.timestamps {
			text.WriteString(line.at.UTC().Format(time.RFC3339Nano) + " ")
		}
		text.WriteString(line.text + "\n")
	}
	out := text.String()
	if limit := w.options.limit; limit >= 0 && w.written+int64(len(out)) > limit {
		out = out[:limit-w.written]
	}
	n, _ := io.WriteString(w.to, out)
	w.written += int64(n)
	if f, ok := w.to.(http.Flusher); ok {
		f.Flush()
	}
}
