package queues

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

// Commands are queue, cohort, flavor and budget.
func Commands() []*cobra.Command {
	var list []*cobra.Command
	for _, make := range []func(*cluster.Flags) *cobra.Command{queueCommand, cohortCommand, flavorCommand, budgetCommand} {
		flags := &cluster.Flags{}
		cmd := make(flags)
		flags.AddTo(cmd)
		list = append(list, cmd)
	}
	return list
}

func queueCommand(flags *cluster.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "queue", Aliases: []string{"queues", "cq"}, Short: "Make, show, stop and resume queues"}
	cmd.AddCommand(createCommand(flags), ListCommand(flags, "list"), describeCommand(flags),
		stopCommand(flags), resumeCommand(flags))
	return cmd
}

// ListCommand shows queues; it is also "top queue".
func ListCommand(flags *cluster.Flags, use string) *cobra.Command {
	return cluster.List[Queue]{
		What: "queues", Read: read, Name: func(q *Queue) string { return "clusterqueue/" + q.Name },
		Print: func(s output.Writer, all []Queue, wide bool) { table(all).Print(s, wide) },
	}.Make(&cobra.Command{Use: use, Short: "Show the queues, their pending workloads and what they use", Example: "  elastic queue list -o wide"}, flags)
}

func table(all []Queue) *output.Table {
	t := &output.Table{Columns: []output.Column{
		{Name: "NAME", Cut: true}, {Name: "COHORT", Cut: true}, {Name: "STATUS", Paint: output.ByStatus}, {Name: "PENDING"}, {Name: "ADMITTED"},
		{Name: "IN USE", Cut: true}, {Name: "STRATEGY", Wide: true}, {Name: "SHARE", Wide: true}, {Name: "LOCAL QUEUES", Wide: true, Cut: true}, {Name: "WHY", Wide: true, Cut: true},
	}}
	for i := range all {
		q := &all[i]
		t.Add(q.Name, dash(q.Cohort), q.Status, q.Pending, q.Admitted, dash(q.inUse()), q.Strategy, q.Share, dash(strings.Join(q.LocalQueues, ",")), dash(q.Why))
	}
	return t
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func describeCommand(flags *cluster.Flags) *cobra.Command {
	return cluster.Describe[Queue]{
		Read: readOne, Name: func(q *Queue) string { return "clusterqueue/" + q.Name }, Print: printQueue,
	}.Make(&cobra.Command{Use: "describe QUEUE", Short: "Show one queue with its quotas", Example: "  elastic queue describe team-a"}, flags)
}

func readOne(ctx context.Context, c *cluster.Client, name string) (*Queue, error) {
	cq, err := get(ctx, c, name)
	if err != nil {
		return nil, err
	}
	localQueues := &kueue.LocalQueueList{}
	if err := c.List(ctx, localQueues); err != nil {
		return nil, err
	}
	q := Describe(cq, localQueues.Items)
	return &q, nil
}

func get(ctx context.Context, c *cluster.Client, name string) (*kueue.ClusterQueue, error) {
	cq := &kueue.ClusterQueue{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, cq)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no queue %q: 'elastic queue list' shows those there are", name)
	}
	return cq, err
}

func printQueue(s output.Writer, q *Queue) {
	status := s.Paint(output.ByStatus(q.Status), q.Status)
	if q.Why != "" {
		status += ": " + q.Why
	}
	for _, field := range [][2]string{
		{"Name", q.Name}, {"Status", status}, {"Cohort", dash(q.Cohort)}, {"Strategy", q.Strategy},
		{"Pending", fmt.Sprint(q.Pending)}, {"Admitted", fmt.Sprint(q.Admitted)}, {"Share", fmt.Sprint(q.Share)}, {"Local queues", dash(strings.Join(q.LocalQueues, ", "))},
	} {
		fmt.Fprintf(s, "%-15s%s\n", field[0]+":", field[1])
	}
	fmt.Fprintln(s)
	t := &output.Table{Columns: []output.Column{
		{Name: "FLAVOR", Cut: true}, {Name: "RESOURCE", Cut: true}, {Name: "NOMINAL"}, {Name: "USED"}, {Name: "BORROWED"}, {Name: "MAY BORROW"}, {Name: "MAY LEND"},
	}}
	for _, quota := range q.Quotas {
		t.Add(quota.Flavor, quota.Resource, quota.Nominal, quota.Used, quota.Borrowed, all(quota.CanTake), all(quota.CanLend))
	}
	t.Print(s, false)
}

func all(limit string) string {
	if limit == "" {
		return "all"
	}
	return limit
}

func stopCommand(flags *cluster.Flags) *cobra.Command {
	var drain bool
	cmd := &cobra.Command{
		Use: "stop QUEUE...", Short: "Admit nothing more from queues", Example: "  elastic queue stop team-a\n  elastic queue stop team-a --drain",
		Args: cobra.MinimumNArgs(1),
		RunE: flags.RunE(func(cmd *cobra.Command, c *cluster.Client, args []string) error {
			policy := kueue.Hold
			if drain {
				policy = kueue.HoldAndDrain
			}
			return setPolicy(cmd, c, args, policy, "stopped")
		}),
	}
	cmd.Flags().BoolVar(&drain, "drain", false, "also stop what runs")
	return cmd
}

func resumeCommand(flags *cluster.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "resume QUEUE...", Short: "Admit from stopped queues again", Example: "  elastic queue resume team-a", Args: cobra.MinimumNArgs(1),
		RunE: flags.RunE(func(cmd *cobra.Command, c *cluster.Client, args []string) error {
			return setPolicy(cmd, c, args, kueue.None, "resumed")
		}),
	}
}

func setPolicy(cmd *cobra.Command, c *cluster.Client, names []string, policy kueue.StopPolicy, done string) error {
	for _, name := range names {
		if _, err := SetPolicy(cmd.Context(), c, name, policy); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "queue %s %s\n", name, done)
	}
	return nil
}

// SetPolicy stops a queue, or lets it admit again. It returns the queue as it is then.
func SetPolicy(ctx context.Context, c *cluster.Client, name string, policy kueue.StopPolicy, options ...client.PatchOption) (*kueue.ClusterQueue, error) {
	cq, err := get(ctx, c, name)
	if err != nil {
		return nil, err
	}
	before := cq.DeepCopy()
	cq.Spec.StopPolicy = ptr.To(policy)
	return cq, c.Patch(ctx, cq, client.MergeFrom(before), options...)
}

// creation is what the flags of create say.
type creation struct {
	cohort, flavor, local   string
	quota, borrow, lend     []string
	nodeLabels              []string
	strict, preempt, dryRun bool
}

func createCommand(flags *cluster.Flags) *cobra.Command {
	s := &creation{}
	cmd := &cobra.Command{
		Use: "create QUEUE --flavor FLAVOR --quota RESOURCE=AMOUNT", Short: "Make a queue, and a LocalQueue for it in this namespace",
		Long: `Make a ClusterQueue with a quota of one flavor, and a LocalQueue by which jobs of
this namespace use it. A flavor that is not there is made, for nodes with
--node-label. For more flavors and rules, write the manifest: --dry-run begins it.`,
		Example: `  elastic queue create team-a --flavor h100 --node-label elasticgpu.io/gpu-model=H100-80G --quota nvidia.com/gpu=8
  elastic queue create team-b --flavor h100 --quota nvidia.com/gpu=8 --cohort research --borrow nvidia.com/gpu=4`,
		Args: cobra.ExactArgs(1),
		RunE: flags.RunE(func(cmd *cobra.Command, c *cluster.Client, args []string) error {
			objects, err := s.objects(args[0], c.Namespace)
			if err != nil {
				return err
			}
			return s.create(cmd, c, objects)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&s.flavor, "flavor", "default", "the flavor its quota is of")
	f.StringArrayVar(&s.nodeLabels, "node-label", nil, "label of the flavor's nodes, KEY=VALUE, where the flavor is new (repeatable)")
	f.StringArrayVar(&s.quota, "quota", nil, "RESOURCE=AMOUNT of its own (repeatable, required)")
	f.StringArrayVar(&s.borrow, "borrow", nil, "RESOURCE=AMOUNT it may borrow at most; everything, without (repeatable)")
	f.StringArrayVar(&s.lend, "lend", nil, "RESOURCE=AMOUNT it lends at most; everything, without (repeatable)")
	f.StringVar(&s.cohort, "cohort", "", "cohort to borrow from and lend to")
	f.StringVar(&s.local, "local-queue", "main", "name of the LocalQueue; empty makes none")
	f.BoolVar(&s.strict, "strict", false, "strictly first come, first served: a job that cannot start blocks those behind it")
	f.BoolVar(&s.preempt, "preempt", false, "jobs of higher priority may stop others of this queue, and take back what it lent")
	f.BoolVar(&s.dryRun, "dry-run", false, "only print the manifests")
	return cmd
}

func (s *creation) objects(name, namespace string) ([]client.Object, error) {
	if len(s.quota) == 0 {
		return nil, errors.New("give its quota with --quota, as in --quota nvidia.com/gpu=8")
	}
	flavor := &kueue.ResourceFlavor{TypeMeta: typeMeta("ResourceFlavor"), ObjectMeta: metav1.ObjectMeta{Name: s.flavor}}
	for _, pair := range s.nodeLabels {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("--node-label %q has no '=': write KEY=VALUE", pair)
		}
		if flavor.Spec.NodeLabels == nil {
			flavor.Spec.NodeLabels = map[string]string{}
		}
		flavor.Spec.NodeLabels[key] = value
	}
	group := kueue.ResourceGroup{Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(s.flavor)}}}
	for _, pair := range s.quota {
		name, amount, err := amountOf("quota", pair)
		if err != nil {
			return nil, err
		}
		group.CoveredResources = append(group.CoveredResources, name)
		group.Flavors[0].Resources = append(group.Flavors[0].Resources, kueue.ResourceQuota{Name: name, NominalQuota: amount})
	}
	for flag, list := range map[string][]string{"borrow": s.borrow, "lend": s.lend} {
		for _, pair := range list {
			name, amount, err := amountOf(flag, pair)
			if err != nil {
				return nil, err
			}
			i := slices.Index(group.CoveredResources, name)
			if i < 0 {
				return nil, fmt.Errorf("--%s %s: there is no --quota of %s", flag, pair, name)
			}
			if flag == "borrow" {
				group.Flavors[0].Resources[i].BorrowingLimit = &amount
			} else {
				group.Flavors[0].Resources[i].LendingLimit = &amount
			}
		}
	}
	cq := &kueue.ClusterQueue{TypeMeta: typeMeta("ClusterQueue"), ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{
		CohortName: kueue.CohortReference(s.cohort), NamespaceSelector: &metav1.LabelSelector{}, ResourceGroups: []kueue.ResourceGroup{group},
		QueueingStrategy: kueue.BestEffortFIFO,
	}}
	if s.strict {
		cq.Spec.QueueingStrategy = kueue.StrictFIFO
	}
	if s.preempt {
		cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority, ReclaimWithinCohort: kueue.PreemptionPolicyAny}
	}
	out := []client.Object{flavor, cq}
	if s.local != "" {
		out = append(out, &kueue.LocalQueue{
			TypeMeta: typeMeta("LocalQueue"), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.local},
			Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)},
		})
	}
	return out, nil
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: kind}
}

func amountOf(flag, pair string) (corev1.ResourceName, resource.Quantity, error) {
	name, text, _ := strings.Cut(pair, "=")
	q, err := resource.ParseQuantity(text)
	if err != nil || name == "" {
		return "", q, fmt.Errorf("--%s %q: write RESOURCE=AMOUNT, as in nvidia.com/gpu=8 or memory=512Gi", flag, pair)
	}
	return corev1.ResourceName(name), q, nil
}

func (s *creation) create(cmd *cobra.Command, c *cluster.Client, objects []client.Object) error {
	for i, object := range objects {
		kind := strings.ToLower(object.GetObjectKind().GroupVersionKind().Kind)
		if s.dryRun {
			data, err := yaml.Marshal(object)
			if err != nil {
				return err
			}
			if i > 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "---")
			}
			fmt.Fprint(cmd.OutOrStdout(), string(data))
			continue
		}
		err := c.Create(cmd.Context(), object)
		if apierrors.IsAlreadyExists(err) && i == 0 {
			continue // a flavor may have many queues
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s/%s created\n", kind, object.GetName())
	}
	return nil
}
