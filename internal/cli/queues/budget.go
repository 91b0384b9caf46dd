package queues

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

// Budget is how much is used of a budget, and by whom.
type Budget struct {
	v1alpha1.Budget `json:",inline"`

	// By are the LocalQueues that were asked, and what they spent.
	By []Spender `json:"by"`
}

// Spender is a LocalQueue that uses a budget.
type Spender struct {
	Namespace  string `json:"namespace"`
	LocalQueue string `json:"localQueue"`
	Spent      string `json:"spent"`
}

func budgetCommand(flags *cluster.Flags) *cobra.Command {
	everywhere := false
	cmd := cluster.List[Budget]{
		What: "budgets",
		Read: func(ctx context.Context, c *cluster.Client) ([]Budget, error) {
			namespace := c.Namespace
			if everywhere {
				namespace = ""
			}
			return readBudgets(ctx, c, namespace)
		},
		Name:  func(b *Budget) string { return b.Target + "/" + b.Period },
		Print: func(s output.Writer, all []Budget, wide bool) { budgetTable(all).Print(s, wide) },
	}.Make(&cobra.Command{
		Use: "budget", Aliases: []string{"budgets"}, Short: "Show budgets: what is spent, committed and left, and by whom",
		Example: "  elastic budget\n  elastic budget -A -o json",
	}, flags)
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "LocalQueues of all namespaces")
	return cmd
}

// readBudgets asks the queue for those of each LocalQueue of a namespace, "" for all.
func readBudgets(ctx context.Context, c *cluster.Client, namespace string) ([]Budget, error) {
	reports, err := readReports(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	return byBudget(reports), nil
}

func readReports(ctx context.Context, c *cluster.Client, namespace string) ([]v1alpha1.BudgetReport, error) {
	queues := &kueue.LocalQueueList{}
	if err := c.List(ctx, queues, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	var reports []v1alpha1.BudgetReport
	for i := range queues.Items {
		lq := &queues.Items[i]
		data, err := c.Core.CoreV1().RESTClient().Get().AbsPath("/apis", v1alpha1.Group, v1alpha1.Version,
			"namespaces", lq.Namespace, v1alpha1.BudgetReports, lq.Name).DoRaw(ctx)
		if apierrors.IsNotFound(err) {
			return nil, errors.New("this cluster's queue cannot be asked for budgets: elastic-queue is not installed, or older than this command")
		}
		if err != nil {
			return nil, err
		}
		report := v1alpha1.BudgetReport{}
		if err := json.Unmarshal(data, &report); err != nil {
			return nil, err
		}
		reports = append(reports, report)
	}
	return reports, nil
}

// byBudget has each budget once, with the LocalQueues that use it.
func byBudget(reports []v1alpha1.BudgetReport) []Budget {
	list := []Budget{}
	for i := range reports {
		for _, b := range reports[i].Budgets {
			at := slices.IndexFunc(list, func(o Budget) bool { return o.Target == b.Target && o.Period == b.Period })
			if at < 0 {
				at = len(list)
				list = append(list, Budget{Budget: b})
			}
			list[at].SpentHere = "" // each has its own
			list[at].By = append(list[at].By, Spender{Namespace: reports[i].Namespace, LocalQueue: reports[i].Name, Spent: b.SpentHere})
		}
	}
	slices.SortStableFunc(list, func(a, b Budget) int { return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Period, b.Period)) })
	return list
}

// budgetTable has a line for each budget, and below it one for each LocalQueue that uses it.
func budgetTable(all []Budget) *output.Table {
	t := &output.Table{Columns: []output.Column{
		{Name: "BUDGET", Cut: true}, {Name: "PERIOD"}, {Name: "AMOUNT"}, {Name: "SPENT"}, {Name: "COMMITTED"}, {Name: "LEFT"}, {Name: "UNIT"},
		{Name: "NEXT PERIOD"}, {Name: "WHEN SPENT", Wide: true}, {Name: "POLICY", Wide: true, Cut: true},
	}}
	for i := range all {
		b := &all[i]
		t.Add(b.Target, b.Period, short(b.Amount), short(b.Spent), short(b.Committed), short(b.Left), b.Unit, nextPeriod(&b.Budget), b.WhenSpent, b.Policy)
		for _, by := range b.By {
			t.Add("  "+by.Namespace+"/"+by.LocalQueue, "", "", short(by.Spent), "", "", "", "", "", "")
		}
	}
	return t
}

// nextPeriod is when the next period begins, by the budget's calendar.
func nextPeriod(b *v1alpha1.Budget) string {
	at := b.Until.Time
	if zone, err := time.LoadLocation(b.TimeZone); err == nil {
		at = at.In(zone)
	}
	return at.Format("Mon 2 Jan 15:04 ") + b.TimeZone
}

// short is a number with two digits; -o json has them all.
func short(number string) string {
	v, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return number
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
