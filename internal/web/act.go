package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/explain"
	"github.com/elastic-ai/elastic/internal/cli/job"
	"github.com/elastic-ai/elastic/internal/cli/queues"
)

// action is something a person wants done.
type action struct {
	Verb      string `json:"verb"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`     // of a Workload or a queue
	Value     string `json:"value"`    // of a priority class, or a queue for a manifest
	Manifest  string `json:"manifest"` // of a job
	Confirm   bool   `json:"confirm"`
}

// outcome says what would happen, or what has.
type outcome struct {
	Says []string `json:"says"`
	// Plans of jobs that would be created.
	Plans []plannedJob `json:"plans,omitempty"`
	Done  bool         `json:"done"`
}

type plannedJob struct {
	Job      string               `json:"job"`
	Headline string               `json:"headline"`
	Because  string               `json:"because,omitempty"`
	Plan     *v1alpha1.PlanStatus `json:"plan"`
}

// verbs are all that can be done. Each says what it does, and does it unless it is a dry run.
var verbs = map[string]func(ctx context.Context, c *cluster.Client, a *action) (*outcome, error){
	"suspend": func(ctx context.Context, c *cluster.Client, a *action) (*outcome, error) {
		return setActive(ctx, c, a, false)
	},
	"resume": func(ctx context.Context, c *cluster.Client, a *action) (*outcome, error) {
		return setActive(ctx, c, a, true)
	},
	"delete":   deleteJob,
	"priority": setPriority,
	"stop-queue": func(ctx context.Context, c *cluster.Client, a *action) (*outcome, error) {
		return setPolicy(ctx, c, a, kueue.Hold)
	},
	"drain-queue": func(ctx context.Context, c *cluster.Client, a *action) (*outcome, error) {
		return setPolicy(ctx, c, a, kueue.HoldAndDrain)
	},
	"resume-queue": func(ctx context.Context, c *cluster.Client, a *action) (*outcome, error) {
		return setPolicy(ctx, c, a, kueue.None)
	},
	"submit": submit,
}

// mostManifest is how long a manifest may be.
const mostManifest = 1 << 20

func (s *Server) act(w http.ResponseWriter, r *http.Request, p person) {
	ctx, cancel := context.WithTimeout(r.Context(), askWithin)
	defer cancel()
	a := &action{}
	err := readBody(w, r, mostManifest, a)
	do := verbs[a.Verb]
	if err == nil && do == nil {
		err = fmt.Errorf("%q is nothing that can be done", a.Verb)
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	out, err := do(ctx, in(p.client, a.Namespace), a)
	if err != nil {
		fail(w, http.StatusUnprocessableEntity, err)
		return
	}
	out.Done = a.Confirm
	reply(w, http.StatusOK, out)
}

// jobNamed is the job of the workload that an action names.
func jobNamed(ctx context.Context, c *cluster.Client, a *action) (*kueue.Workload, string, string, error) {
	wl := &kueue.Workload{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: a.Name}, wl); err != nil {
		return nil, "", "", err
	}
	owner := controllerOf(wl)
	if owner == nil {
		return nil, "", "", errors.New("this workload was made for no job")
	}
	return wl, owner.Name, strings.ToLower(owner.Kind), nil
}

func setActive(ctx context.Context, c *cluster.Client, a *action, active bool) (*outcome, error) {
	wl, name, kind, err := jobNamed(ctx, c, a)
	if err != nil {
		return nil, err
	}
	var options []client.PatchOption
	if !a.Confirm {
		options = append(options, client.DryRunAll)
	}
	if err := job.SetActive(ctx, c, name, kind, active, options...); err != nil {
		return nil, err
	}
	record := jobOf(wl)
	if active {
		return says("%s/%s waits again in queue %s, behind workloads of the same priority that were created before it.", kind, name, record.Local), nil
	}
	out := says("%s/%s is suspended and stays in the cluster; it waits for nothing until it is resumed.", kind, name)
	if record.State == stateRunning {
		out.Says = append(out.Says, fmt.Sprintf("Its %s are stopped, and %s of quota in %s are free for others. What it has not saved is lost.",
			count(int(record.Pods), "pod"), cards(record.Cards), record.Queue))
	}
	return out, nil
}

func deleteJob(ctx context.Context, c *cluster.Client, a *action) (*outcome, error) {
	wl, name, kind, err := jobNamed(ctx, c, a)
	if err != nil {
		return nil, err
	}
	var options []client.DeleteOption
	if !a.Confirm {
		options = append(options, client.DryRunAll)
	}
	if err := job.Delete(ctx, c, name, kind, options...); err != nil {
		return nil, err
	}
	record := jobOf(wl)
	out := says("%s/%s in %s is deleted with its pods and their logs. This cannot be undone.", kind, name, a.Namespace)
	if record.State == stateRunning {
		out.Says = append(out.Says, fmt.Sprintf("It runs: %s are stopped, and %s are free for others.", count(int(record.Pods), "pod"), cards(record.Cards)))
	}
	return out, nil
}

// setPriority gives a job another WorkloadPriorityClass.
func setPriority(ctx context.Context, c *cluster.Client, a *action) (*outcome, error) {
	wl, name, kind, err := jobNamed(ctx, c, a)
	if err != nil {
		return nil, err
	}
	class := &kueue.WorkloadPriorityClass{}
	if err := c.Get(ctx, client.ObjectKey{Name: a.Value}, class); err != nil {
		return nil, err
	}
	found, err := findJob(ctx, c, wl)
	if err != nil {
		return nil, err
	}
	before := found.Object.DeepCopy()
	labels := found.Object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[priorityLabel] = class.Name
	found.Object.SetLabels(labels)
	var options []client.PatchOption
	if !a.Confirm {
		options = append(options, client.DryRunAll)
	}
	if err := c.Patch(ctx, found.Object, client.MergeFrom(before), options...); err != nil {
		return nil, err
	}
	record := jobOf(wl)
	return says("%s/%s gets priority class %s (%d); it has %d now. Workloads of higher priority go first in a queue, and may preempt where the queue allows it.",
		kind, name, class.Name, class.Value, record.Priority), nil
}

// priorityLabel of a job names its WorkloadPriorityClass.
const priorityLabel = "kueue.x-k8s.io/priority-class"

func setPolicy(ctx context.Context, c *cluster.Client, a *action, policy kueue.StopPolicy) (*outcome, error) {
	var options []client.PatchOption
	if !a.Confirm {
		options = append(options, client.DryRunAll)
	}
	cq, err := queues.SetPolicy(ctx, c, a.Name, policy, options...)
	if err != nil {
		return nil, err
	}
	pending, admitted := count(int(cq.Status.PendingWorkloads), "pending workload"), count(int(cq.Status.AdmittedWorkloads), "workload")
	switch policy {
	case kueue.Hold:
		return says("Queue %s admits nothing more; its %s wait until it is resumed. The %s that run go on.", a.Name, pending, admitted), nil
	case kueue.HoldAndDrain:
		return says("Queue %s admits nothing more, and the %s that run are stopped: they lose what they have not saved, and wait again.", a.Name, admitted), nil
	}
	return says("Queue %s admits again; %s are looked at now.", a.Name, pending), nil
}

// submit creates the objects of a manifest, or says what would become of them.
func submit(ctx context.Context, c *cluster.Client, a *action) (*outcome, error) {
	objects, err := deploy.Decode([]byte(a.Manifest))
	if err != nil {
		return nil, fmt.Errorf("this is no manifest: %w", err)
	}
	if len(objects) == 0 {
		return nil, errors.New("the manifest is empty")
	}
	if err := job.Settle(c, objects, a.Value); err != nil {
		return nil, err
	}
	out := &outcome{}
	for _, object := range objects {
		name := strings.ToLower(object.GetKind()) + "/" + object.GetName()
		if a.Confirm {
			if err := c.Create(ctx, object); err != nil {
				return nil, fmt.Errorf("%s: %w", strings.Join(append(out.Says, name), " "), err)
			}
			out.Says = append(out.Says, name+" was created in "+object.GetNamespace()+".")
			continue
		}
		if err := out.consider(ctx, c, object, name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// consider adds what would become of an object: the server checks it, and the queue plans it.
func (out *outcome) consider(ctx context.Context, c *cluster.Client, object *unstructured.Unstructured, name string) error {
	if err := c.Create(ctx, object.DeepCopy(), client.DryRunAll); err != nil {
		return err
	}
	_, plan, err := explain.Consider(ctx, c, object)
	if err != nil {
		return err
	}
	if plan == nil {
		out.Says = append(out.Says, name+" would be created; the queue does not know its kind.")
		return nil
	}
	out.Plans = append(out.Plans, plannedJob{Job: name, Headline: explain.PlanHeadline(name, plan), Because: explain.Because[plan.Reason], Plan: plan})
	return nil
}

func says(format string, args ...any) *outcome {
	return &outcome{Says: []string{fmt.Sprintf(format, args...)}}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func cards(n float64) string {
	if n == 1 {
		return "1 card"
	}
	return fmt.Sprintf("%g cards", n)
}
