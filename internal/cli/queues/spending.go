package queues

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

// Spent is what a LocalQueue's workloads have used in a period.
type Spent struct {
	Namespace         string `json:"namespace"`
	LocalQueue        string `json:"localQueue"`
	User              string `json:"user,omitempty"` // with --by user; empty: nobody knows
	v1alpha1.Spending `json:",inline"`
}

// SpentCommand is "elastic cost spent".
func SpentCommand() *cobra.Command {
	flags := &cluster.Flags{}
	everywhere, period, by := false, "", ""
	cmd := cluster.List[Spent]{
		What: "accounts",
		Read: func(ctx context.Context, c *cluster.Client) ([]Spent, error) {
			if period != "" && !slices.Contains([]string{"day", "week", "month"}, strings.ToLower(period)) {
				return nil, fmt.Errorf("--period %s: want day, week or month", period)
			}
			if by != "" && by != "user" {
				return nil, fmt.Errorf("--by %s: want user", by)
			}
			namespace := c.Namespace
			if everywhere {
				namespace = ""
			}
			list, err := readSpent(ctx, c, namespace, period)
			if by == "user" {
				list = byUser(list)
			}
			return list, err
		},
		Name: func(s *Spent) string {
			name := s.Namespace + "/" + s.LocalQueue + "/" + s.Period + "/" + s.day(s.From.Time)
			if by != "" {
				name += "/" + s.User
			}
			return name
		},
		Print: func(w output.Writer, all []Spent, wide bool) { spentTable(all, by == "user").Print(w, wide) },
	}.Make(&cobra.Command{
		Use: "spent", Short: "Say what queues have spent by day, week or month, in GPU-hours and US dollars",
		Long: `Say what the LocalQueues of a namespace have spent, in GPU-hours and in US dollars,
by the periods of the budgets that are on them: the one that is, and earlier ones,
days for two weeks, weeks for eight, months for a year. All runs of all
jobs count, also of those that were evicted, and what runs so far.

USD is what the nodes cost of flavors that have a CloudOffer: what was paid for
those that were bought for a job, from their order on, and otherwise cards at the
price that the CloudOffer had when the run ended. Nodes without a run, as of
attempts that came to nothing or while they wait for the next job, are not in it.

By user it is who made the jobs, where elastic-queue records that
(controllers.recordSubmitters): of jobs that a controller makes, as those of a
CronJob, the controller's service account, and "-" where nobody knows.`,
		Example: "  elastic cost spent --period month\n  elastic cost spent -A -o json\n  elastic cost spent --by user --period month",
	}, flags)
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "LocalQueues of all namespaces")
	cmd.Flags().StringVar(&period, "period", "", "day, week or month; without it all that are counted")
	cmd.Flags().StringVar(&by, "by", "", "user: a line for each user")
	flags.AddTo(cmd)
	return cmd
}

// byUser has a line for each user of each period. Where no user is known there is one without a name.
func byUser(all []Spent) []Spent {
	list := []Spent{}
	for _, s := range all {
		users := s.Users
		if len(users) == 0 {
			users = []v1alpha1.UserSpending{{GPUHours: s.GPUHours, Dollars: s.Dollars}}
		}
		s.By, s.Users = nil, nil
		for _, u := range users {
			s.User, s.GPUHours, s.Dollars = u.User, u.GPUHours, u.Dollars
			list = append(list, s)
		}
	}
	return list
}

// readSpent asks the queue for what each LocalQueue of a namespace has spent, "" for all; the latest period first.
func readSpent(ctx context.Context, c *cluster.Client, namespace, period string) ([]Spent, error) {
	reports, err := readReports(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	list := []Spent{}
	for i := range reports {
		for _, s := range reports[i].Spending {
			if period == "" || strings.EqualFold(period, s.Period) {
				list = append(list, Spent{Namespace: reports[i].Namespace, LocalQueue: reports[i].Name, Spending: s})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Spent) int {
		return cmp.Or(cmp.Compare(a.Period, b.Period), b.From.Compare(a.From.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.LocalQueue, b.LocalQueue))
	})
	return list, nil
}

// spentTable has a line for each period of a LocalQueue; by flavor where it is wide.
func spentTable(all []Spent, users bool) *output.Table {
	if users {
		t := &output.Table{Columns: []output.Column{{Name: "USER", Cut: true}, {Name: "QUEUE", Cut: true}, {Name: "PERIOD"}, {Name: "FROM"}, {Name: "GPU-HOURS"}, {Name: "USD"}}}
		for i := range all {
			s := &all[i]
			t.Add(dash(s.User), s.Namespace+"/"+s.LocalQueue, s.Period, s.day(s.From.Time), short(s.GPUHours), short(s.Dollars))
		}
		return t
	}
	t := &output.Table{Columns: []output.Column{
		{Name: "QUEUE", Cut: true}, {Name: "PERIOD"}, {Name: "FROM"}, {Name: "GPU-HOURS"}, {Name: "USD"}, {Name: "BY FLAVOR", Wide: true, Cut: true},
	}}
	for i := range all {
		s := &all[i]
		var by []string
		for _, f := range s.By {
			by = append(by, fmt.Sprintf("%s %s h $%s", f.Flavor, short(f.GPUHours), short(f.Dollars)))
		}
		t.Add(s.Namespace+"/"+s.LocalQueue, s.Period, s.day(s.From.Time), short(s.GPUHours), short(s.Dollars), dash(strings.Join(by, ", ")))
	}
	return t
}

// day is a time by the period's calendar.
func (s *Spent) day(at time.Time) string {
	if zone, err := time.LoadLocation(s.TimeZone); err == nil {
		at = at.In(zone)
	}
	return at.Format(time.DateOnly)
}
