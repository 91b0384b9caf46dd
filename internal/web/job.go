package web

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/explain"
	"github.com/elastic-ai/elastic/internal/cli/job"
)

// askWithin is how long a question may take.
const askWithin = 20 * time.Second

// jobView is all there is to say about a job.
type jobView struct {
	Record   jobRecord       `json:"record"`
	Headline string          `json:"headline"`
	Because  string          `json:"because,omitempty"`
	Answer   *explain.Answer `json:"answer,omitempty"`
	Info     *job.Info       `json:"info,omitempty"`
	Asks     []ask           `json:"asks"`
	Timeline []moment        `json:"timeline"`
	// Problems are parts that could not be read.
	Problems []string `json:"problems,omitempty"`
}

// ask is what one pod set of a job asks for.
type ask struct {
	Name     string            `json:"name"`
	Count    int32             `json:"count"`
	Requests map[string]string `json:"requests"` // of one pod
}

// moment is something that happened to a job.
type moment struct {
	At      time.Time `json:"at"`
	What    string    `json:"what"`
	Message string    `json:"message,omitempty"`
	About   string    `json:"about,omitempty"`
	Warning bool      `json:"warning,omitempty"`
	Count   int32     `json:"count,omitempty"`
}

// in is a client for one namespace.
func in(c *cluster.Client, namespace string) *cluster.Client {
	at := *c
	at.Namespace = namespace
	return &at
}

func (s *Server) job(w http.ResponseWriter, r *http.Request, p person) {
	ctx, cancel := context.WithTimeout(r.Context(), askWithin)
	defer cancel()
	view, err := describeJob(ctx, in(p.client, r.PathValue("namespace")), r.PathValue("workload"))
	if err != nil {
		fail(w, http.StatusBadGateway, err)
		return
	}
	reply(w, http.StatusOK, view)
}

func describeJob(ctx context.Context, c *cluster.Client, workload string) (*jobView, error) {
	wl := &kueue.Workload{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: workload}, wl); err != nil {
		return nil, err
	}
	view := &jobView{Record: jobOf(wl), Asks: asks(wl)}
	var events []corev1.Event
	var pods []*corev1.Pod
	found, err := findJob(ctx, c, wl)
	if err == nil {
		pods = found.Pods
		var info job.Info
		if info, err = found.Describe(ctx, c, time.Now()); err == nil {
			view.Info = &info
			view.Answer, err = explain.About(ctx, c, found, &info)
		}
		var eventsErr error
		if events, eventsErr = found.Events(ctx, c); eventsErr != nil {
			view.Problems = append(view.Problems, eventsErr.Error())
		}
	}
	if err != nil {
		view.Problems = append(view.Problems, err.Error())
		view.Answer = &explain.Answer{Job: "workload/" + wl.Name, Namespace: wl.Namespace, Status: view.Record.State, Workload: wl.Name}
		if view.Answer.Standing, err = job.Ask(ctx, c, wl); err != nil {
			view.Problems = append(view.Problems, err.Error())
		}
	}
	view.complete()
	view.Timeline = timeline(wl, pods, events)
	return view, nil
}

// complete adds the words that the command line has for it.
func (v *jobView) complete() {
	v.Headline = explain.Headline(v.Answer)
	if x := v.Answer.Standing; x != nil {
		v.Because = explain.Because[x.Reason]
		x.Suggestions = explain.Suggestions(v.Answer)
		v.Record.Queue = cmp.Or(v.Record.Queue, x.ClusterQueue)
	}
}

func findJob(ctx context.Context, c *cluster.Client, wl *kueue.Workload) (*job.Job, error) {
	owner := controllerOf(wl)
	if owner == nil {
		return nil, errors.New("this workload was made for no job")
	}
	found, err := job.Get(ctx, c, owner.Name, strings.ToLower(owner.Kind))
	if err != nil {
		return nil, err
	}
	found.Workload = wl
	return found, nil
}

func asks(wl *kueue.Workload) []ask {
	list := []ask{}
	for i := range wl.Spec.PodSets {
		set := &wl.Spec.PodSets[i]
		a := ask{Name: string(set.Name), Count: set.Count, Requests: map[string]string{}}
		total := corev1.ResourceList{}
		for _, container := range set.Template.Spec.Containers {
			each := maps.Clone(container.Resources.Limits) // a limit without a request is both
			if each == nil {
				each = corev1.ResourceList{}
			}
			maps.Copy(each, container.Resources.Requests)
			for name, quantity := range each {
				sum := total[name]
				sum.Add(quantity)
				total[name] = sum
			}
		}
		for name, quantity := range total {
			a.Requests[string(name)] = quantity.String()
		}
		list = append(list, a)
	}
	return list
}

// mostMoments of a timeline, the newest.
const mostMoments = 200

// timeline is a job's life by its conditions, where its pods' memory is, and events, newest first.
func timeline(wl *kueue.Workload, pods []*corev1.Pod, events []corev1.Event) []moment {
	all := []moment{{At: wl.CreationTimestamp.Time, What: "Created", About: "workload"}}
	for _, c := range wl.Status.Conditions {
		m := moment{At: c.LastTransitionTime.Time, What: c.Type, Message: c.Message, About: "workload"}
		switch {
		case c.Type == kueue.WorkloadQuotaReserved && c.Status != metav1.ConditionTrue:
			m.What = cmp.Or(c.Reason, "Waiting")
		case c.Status != metav1.ConditionTrue, strings.HasPrefix(c.Type, "elasticai.io/") && strings.IndexAny(c.Message, "{[") == 0:
			continue // what elastic-queue notes for itself tells nobody anything
		case c.Type == kueue.WorkloadEvicted || c.Type == kueue.WorkloadPreempted:
			m.What, m.Warning = c.Type+" ("+c.Reason+")", true
		}
		all = append(all, m)
	}
	for _, pod := range pods {
		if c := egpu.SwapCondition(pod); c != nil {
			all = append(all, moment{
				At: c.LastTransitionTime.Time, What: c.Reason, Message: c.Message, About: "pod/" + pod.Name,
				Warning: c.Reason == egpu.ReasonCannotMoveOut || c.Reason == egpu.ReasonCannotMoveIn,
			})
		}
	}
	conditions := slices.Clone(all)
	for i := range events {
		e := &events[i]
		// The condition and the event of one change say the same.
		if slices.ContainsFunc(conditions, func(m moment) bool {
			return m.Message == strings.TrimSpace(e.Message) && m.At.Sub(explain.When(e)).Abs() < 2*time.Second
		}) {
			continue
		}
		all = append(all, moment{
			At: explain.When(e), What: e.Reason, Message: strings.TrimSpace(e.Message), Warning: e.Type == corev1.EventTypeWarning,
			About: strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name, Count: e.Count,
		})
	}
	slices.SortStableFunc(all, func(a, b moment) int { return a.At.Compare(b.At) })
	slices.Reverse(all)
	return all[:min(mostMoments, len(all))]
}

// followFor is how long a server for many people follows a log: the right to read it is asked for when it begins, never after.
const followFor = 15 * time.Minute

// logs of a pod, as they come.
func (s *Server) logs(w http.ResponseWriter, r *http.Request, p person) {
	const tail = 500
	release, err := s.held.hold(p.key)
	if err != nil {
		fail(w, http.StatusTooManyRequests, err)
		return
	}
	defer release()
	ctx := r.Context()
	if !s.options.Pinned {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, followFor)
		defer cancel()
	}
	options := &corev1.PodLogOptions{Container: r.URL.Query().Get("container"), TailLines: ptr.To(int64(tail)), Follow: r.URL.Query().Get("follow") != ""}
	from, err := p.client.Core.CoreV1().Pods(r.PathValue("namespace")).GetLogs(r.PathValue("pod"), options).Stream(ctx)
	if err != nil {
		fail(w, http.StatusBadGateway, err)
		return
	}
	defer func() { _ = from.Close() }()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Accel-Buffering", "no")
	control := http.NewResponseController(w)
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			_ = control.SetWriteDeadline(time.Now().Add(s.sendWithin))
			if _, err := w.Write(buffer[:n]); err != nil {
				return
			}
			_ = control.Flush()
			_ = control.SetWriteDeadline(time.Time{}) // a log may be silent for long
		}
		if err != nil {
			switch {
			case errors.Is(err, io.EOF) || r.Context().Err() != nil:
			case ctx.Err() != nil:
				_, _ = io.WriteString(w, "\nThis was followed for "+followFor.String()+". Open the log again.\n")
			default:
				_, _ = io.WriteString(w, "\n"+err.Error()+"\n")
			}
			return
		}
	}
}
