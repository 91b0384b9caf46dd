// Package doctor looks for what is misconfigured: queues without a LocalQueue,
// flavors that match no node, workloads that can never start, cards that are
// broken, parts that are not installed or do not answer.
//
// Words: docs/design/glossary.md.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/internal/cli/output"
	"github.com/elastic-ai/elastic/internal/cli/queues"
	"github.com/elastic-ai/elastic/internal/version"
)

// Finding is something to look at.
type Finding struct {
	Level string `json:"level"` // ok, warning or problem
	What  string `json:"what"`
	// Do is what would mend it.
	Do string `json:"do,omitempty"`
	// Object is what it is about, as kubectl names it.
	Object string `json:"object,omitempty"`
}

// The levels.
const (
	OK      = "ok"
	Warning = "warning"
	Problem = "problem"
)

// errFound makes the exit code 1.
var errFound = errors.New("there are problems")

// Command is "elastic doctor".
func Command() *cobra.Command {
	flags := &cluster.Flags{}
	var printer output.Printer
	var onlyMachine bool
	examine := flags.RunE(func(cmd *cobra.Command, c *cluster.Client, _ []string) error {
		progress := output.To(cmd.ErrOrStderr()).Start("examining the cluster", len(checks))
		var found []Finding
		for _, check := range checks {
			list, err := check(cmd.Context(), c)
			if err != nil {
				list = append(list, Finding{Problem, err.Error(), "ask for the permission to read it, or mend the connection", ""})
			}
			found = append(found, list...)
			progress.Step()
		}
		progress.End()
		return show(cmd, &printer, found)
	})
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look for what is misconfigured",
		Long: `Look for what is misconfigured, and say what would mend it. With --machine, look
instead whether 'elastic up --cards' can use this machine's cards. The exit code is 1
if there are problems.`,
		Example: "  elastic doctor\n  elastic doctor -o json\n  elastic doctor --machine",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if onlyMachine {
				return show(cmd, &printer, machine(cmd.Context()))
			}
			return examine(cmd, args)
		},
	}
	cmd.Flags().BoolVar(&onlyMachine, "machine", false, "whether 'elastic up --cards' can use this machine's cards, and what is missing")
	printer.AddTo(cmd)
	flags.AddTo(cmd)
	return cmd
}

// show what was found; problems are an error.
func show(cmd *cobra.Command, printer *output.Printer, found []Finding) error {
	if err := printer.Print(cmd.OutOrStdout(), found, objects(found), func(s output.Writer, wide bool) { table(found).Print(s, wide) }); err != nil {
		return err
	}
	if slices.ContainsFunc(found, func(f Finding) bool { return f.Level == Problem }) {
		return errFound
	}
	return nil
}

// machine is what "elastic up --cards" would meet here.
func machine(ctx context.Context) []Finding {
	var found []Finding
	for _, need := range local.MachineNeeds(ctx) {
		level := Problem
		if need.Met {
			level = OK
		}
		found = append(found, Finding{level, need.What, need.Do, ""})
	}
	return found
}

// objects that something is to be done about.
func objects(found []Finding) []string {
	var names []string
	for _, f := range found {
		if f.Object != "" && !slices.Contains(names, f.Object) {
			names = append(names, f.Object)
		}
	}
	return names
}

func table(found []Finding) *output.Table {
	t := &output.Table{Columns: []output.Column{{Name: "LEVEL", Paint: output.ByStatus}, {Name: "FOUND", Cut: true}, {Name: "WHAT TO DO", Cut: true}, {Name: "OBJECT", Wide: true}}}
	for _, f := range found {
		t.Add(f.Level, f.What, f.Do, f.Object)
	}
	return t
}

// A check looks at one thing. One that finds nothing wrong says so in a line.
type check func(ctx context.Context, c *cluster.Client) ([]Finding, error)

var checks = []check{parts, clusterQueues, localQueues, flavors, workloads, cards}

// parts: is everything there, and does it answer?
func parts(ctx context.Context, c *cluster.Client) ([]Finding, error) {
	server, err := c.Core.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("the cluster does not answer: %w", err)
	}
	found := []Finding{{OK, fmt.Sprintf("Kubernetes %s answers; this is elastic %s", server.GitVersion, version.String()), "", ""}}
	_, err = c.Core.CoreV1().RESTClient().Get().AbsPath("/apis", v1alpha1.Group, v1alpha1.Version).DoRaw(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return append(found, Finding{Problem, "elastic-queue is not installed here", "kubectl apply --server-side -f deploy/install/elastic.yaml", ""}), nil
	case err != nil:
		return append(found, Finding{Problem, "elastic-queue does not answer: " + err.Error(), "kubectl -n elastic-queue logs deploy/elastic-queue-controller-manager", ""}), nil
	}
	return append(found, Finding{OK, "elastic-queue answers", "", ""}), nil
}

func clusterQueues(ctx context.Context, c *cluster.Client) ([]Finding, error) {
	list, used := &kueue.ClusterQueueList{}, &kueue.LocalQueueList{}
	if err := c.List(ctx, list); err != nil {
		return nil, err
	}
	if err := c.List(ctx, used); err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return []Finding{{Warning, "there is no queue", "elastic queue create NAME --quota nvidia.com/gpu=8", ""}}, nil
	}
	var found []Finding
	for i := range list.Items {
		cq := &list.Items[i]
		active := apimeta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueActive)
		stopped := cq.Spec.StopPolicy != nil && *cq.Spec.StopPolicy != kueue.None
		switch {
		case stopped:
			found = append(found, Finding{Warning, fmt.Sprintf("queue %s is stopped (%s)", cq.Name, *cq.Spec.StopPolicy), "elastic queue resume " + cq.Name, "clusterqueue/" + cq.Name})
		case active != nil && active.Status == metav1.ConditionFalse:
			found = append(found, Finding{Problem, fmt.Sprintf("queue %s is inactive: %s", cq.Name, active.Message), "elastic queue describe " + cq.Name, "clusterqueue/" + cq.Name})
		}
		if cq.Spec.NamespaceSelector == nil {
			found = append(found, Finding{Problem, fmt.Sprintf("queue %s admits no namespace", cq.Name), "set its namespaceSelector; {} is all", "clusterqueue/" + cq.Name})
		}
		if !slices.ContainsFunc(used.Items, func(l kueue.LocalQueue) bool { return string(l.Spec.ClusterQueue) == cq.Name }) {
			found = append(found, Finding{Warning, fmt.Sprintf("queue %s cannot be used: no LocalQueue points to it", cq.Name), "make a LocalQueue in the namespaces that may use it", "clusterqueue/" + cq.Name})
		}
	}
	return orOK(found, fmt.Sprintf("%d queues are fine", len(list.Items))), nil
}

func orOK(found []Finding, text string) []Finding {
	if len(found) == 0 {
		return []Finding{{OK, text, "", ""}}
	}
	return found
}

func localQueues(ctx context.Context, c *cluster.Client) ([]Finding, error) {
	list, queues := &kueue.LocalQueueList{}, &kueue.ClusterQueueList{}
	if err := c.List(ctx, list); err != nil {
		return nil, err
	}
	if err := c.List(ctx, queues); err != nil {
		return nil, err
	}
	var found []Finding
	for i := range list.Items {
		lq := &list.Items[i]
		if !slices.ContainsFunc(queues.Items, func(q kueue.ClusterQueue) bool { return q.Name == string(lq.Spec.ClusterQueue) }) {
			found = append(found, Finding{Problem, fmt.Sprintf("LocalQueue %s/%s points to ClusterQueue %s, which does not exist", lq.Namespace, lq.Name, lq.Spec.ClusterQueue), "make that queue, or delete this one", "localqueue/" + lq.Name})
		}
	}
	return orOK(found, fmt.Sprintf("%d local queues are fine", len(list.Items))), nil
}

func flavors(ctx context.Context, c *cluster.Client) ([]Finding, error) {
	all, err := queues.ReadFlavors(ctx, c)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, f := range all {
		if f.Nodes == 0 {
			found = append(found, Finding{Problem, fmt.Sprintf("flavor %s matches no node", f.Name), "mend its nodeLabels: elastic flavor list", "resourceflavor/" + f.Name})
		}
		if len(f.Queues) == 0 {
			found = append(found, Finding{Warning, fmt.Sprintf("flavor %s is in no queue", f.Name), "give a queue quota of it, or delete it", "resourceflavor/" + f.Name})
		}
	}
	return orOK(found, fmt.Sprintf("%d flavors are fine", len(all))), nil
}

// workloads that can never start as things are.
func workloads(ctx context.Context, c *cluster.Client) ([]Finding, error) {
	list := &kueue.WorkloadList{}
	if err := c.List(ctx, list); err != nil {
		return nil, err
	}
	const most = 10
	var found []Finding
	never := 0
	for i := range list.Items {
		wl := &list.Items[i]
		condition := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
		if condition == nil || condition.Status == metav1.ConditionTrue || apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished) {
			continue
		}
		why := neverStarts(condition)
		if why == "" {
			continue
		}
		if never++; never > most {
			continue
		}
		name := wl.Name
		if len(wl.OwnerReferences) > 0 {
			name = strings.ToLower(wl.OwnerReferences[0].Kind) + "/" + wl.OwnerReferences[0].Name
		}
		job := name[strings.Index(name, "/")+1:]
		found = append(found, Finding{Problem, fmt.Sprintf("%s in %s can never start (%s)", name, wl.Namespace, why), fmt.Sprintf("elastic explain %s -n %s", job, wl.Namespace), name})
	}
	if never > most {
		found = append(found, Finding{Problem, fmt.Sprintf("and %d more that can never start", never-most), "", ""})
	}
	return orOK(found, fmt.Sprintf("%d workloads can start in time", len(list.Items))), nil
}

// neverStarts says why a workload cannot start as things are; "" if it can. The granular reasons say it
// themselves, and where they are not switched on the message does.
func neverStarts(waits *metav1.Condition) string {
	says := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(waits.Message, text) })
	}
	switch {
	case slices.Contains([]string{"ExceedsMaxQuota", "NoMatchingFlavor", "Misconfigured"}, waits.Reason):
		return waits.Reason
	case waits.Reason == kueue.WorkloadInadmissible && !says("is inactive", "is stopped"):
		return "Misconfigured"
	case waits.Reason != "Pending" || says("insufficient unused quota"):
		return ""
	case says("doesn't match ClusterQueue selector"):
		return "Misconfigured"
	case says("doesn't match node affinity", "untolerated taint", "unavailable in ClusterQueue"):
		return "NoMatchingFlavor"
	case says("> maximum capacity ("):
		return "ExceedsMaxQuota"
	}
	return ""
}

func cards(ctx context.Context, c *cluster.Client) ([]Finding, error) {
	list := &egpu.GPUList{}
	if err := c.List(ctx, list); err != nil {
		if apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
			return []Finding{{Warning, "there are no GPU objects: cards are known by the nodes' labels only", "install elastic-gpu-agent for shares and health", ""}}, nil
		}
		return nil, err
	}
	var found []Finding
	for i := range list.Items {
		if g := &list.Items[i]; g.Status.State == egpu.GPUUnhealthy {
			found = append(found, Finding{Problem, fmt.Sprintf("card %d of %s is unhealthy: %s", g.Spec.Index, g.Spec.NodeName, g.Status.Message), "drain the node and mend the card", "gpu/" + g.Name})
		}
	}
	return orOK(found, fmt.Sprintf("%d cards are healthy", len(list.Items))), nil
}
