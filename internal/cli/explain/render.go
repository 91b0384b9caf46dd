package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

// Answer is all there is to say about a job.
type Answer struct {
	Job       string `json:"job"`
	Namespace string `json:"namespace"`
	Status    string `json:"status"`
	Workload  string `json:"workload,omitempty"`
	// Standing is what the queue says of it; absent for a job that is in no queue.
	Standing *v1alpha1.WorkloadStanding `json:"standing,omitempty"`
	Pods     string                     `json:"pods,omitempty"`
	// Elastic is how many pods it has of those that it may have, and why not more.
	Elastic string `json:"elastic,omitempty"`
	// RemoteCards are those of other nodes that its pods use, a line for each claim.
	RemoteCards []string `json:"remoteCards,omitempty"`
	// Warnings are recent warning events of its pods.
	Warnings []string `json:"warnings,omitempty"`
	// Failure is why a job failed, where that is known.
	Failure string `json:"failure,omitempty"`
	// Note is about the answer itself.
	Note string `json:"note,omitempty"`
}

// page is a text with headings down the left side.
type page struct {
	out  output.Writer
	last string
}

// say puts a line beside a heading, which is written once.
func (p *page) say(heading, format string, args ...any) {
	if heading == p.last {
		heading = ""
	} else {
		p.last = heading
	}
	const indent = 11
	text := fmt.Sprintf(format, args...)
	width := 0
	if p.out.Width > 40 {
		width = p.out.Width - indent
	}
	for i, line := range wrap(text, width) {
		if i > 0 {
			heading = ""
		}
		fmt.Fprintf(p.out, "%s%s\n", p.out.Paint(output.Faint, fmt.Sprintf("%-*s", indent, heading)), line)
	}
}

// wrap breaks a text at blanks; 0 is any width.
func wrap(text string, width int) []string {
	if width <= 0 || len(text) <= width {
		return []string{text}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// Render writes an answer that fits a terminal.
func Render(s output.Writer, a *Answer, now time.Time) {
	fmt.Fprintln(s, Headline(a))
	p := &page{out: s}
	if x := a.Standing; x != nil {
		fmt.Fprintln(s)
		p.standing(x, Suggestions(a), now)
	}
	if a.Pods != "" {
		p.say("Pods", "%s", a.Pods)
	}
	if a.Elastic != "" {
		p.say("Elastic", "%s", a.Elastic)
	}
	for _, card := range a.RemoteCards {
		p.say("Cards", "%s", card)
	}
	for _, warning := range a.Warnings {
		p.say("Warning", "%s", warning)
	}
	if a.Note != "" {
		p.say("Note", "%s", a.Note)
	}
}

// standing is what the queue says of a job.
func (p *page) standing(x *v1alpha1.WorkloadStanding, suggestions []string, now time.Time) {
	p.why(x)
	p.ahead(x)
	p.missing(x)
	for _, d := range x.Devices {
		p.say("Devices", "%s for each pod of %s, by %s", amount(d.Amount, d.Resource), d.PodSet, d.From)
	}
	p.places(x)
	p.checks(x)
	p.others("Held by", x.HeldBy)
	p.others("Preempts", x.PreemptionTargets)
	for _, suggestion := range suggestions {
		p.say("Suggested", "%s", suggestion)
	}
	p.policies(x)
	p.starts(x, now)
}

// RenderStanding writes what a queue says of a job that is in no cluster.
func RenderStanding(s output.Writer, x *v1alpha1.WorkloadStanding, now time.Time) {
	p := &page{out: s}
	p.standing(x, x.Suggestions, now)
}

// Headline says where a job stands in one sentence.
func Headline(a *Answer) string {
	x := a.Standing
	if x == nil {
		return fmt.Sprintf("%s (%s) is in no queue: Elastic leaves it alone.", a.Job, strings.ToLower(a.Status))
	}
	queue := "queue " + x.LocalQueue
	if x.ClusterQueue != "" {
		queue += " (ClusterQueue " + x.ClusterQueue + ")"
	}
	switch x.State {
	case "Finished":
		if a.Failure != "" {
			return fmt.Sprintf("%s has ended: %s, %s.", a.Job, a.Status, strings.TrimSuffix(a.Failure, "."))
		}
		return fmt.Sprintf("%s has ended: %s.", a.Job, a.Status)
	case "Admitted":
		return fmt.Sprintf("%s was admitted from %s, and is %s.", a.Job, queue, strings.ToLower(a.Status))
	case "QuotaReserved":
		if x.Reason == nodesToCome {
			return fmt.Sprintf("%s has its quota in %s, and waits for its nodes.", a.Job, queue)
		}
		return fmt.Sprintf("%s has its quota in %s, and waits for admission checks.", a.Job, queue)
	case "Evicting":
		return fmt.Sprintf("%s is being stopped in %s, and will wait again.", a.Job, queue)
	case "WaitingForPreemptedWorkloads":
		return fmt.Sprintf("%s is next in %s: others are being stopped for it.", a.Job, queue)
	case "HeldBack":
		return fmt.Sprintf("%s is held back in %s.", a.Job, queue)
	case "Unknown":
		return fmt.Sprintf("%s has just arrived in %s.", a.Job, queue)
	}
	if x.Position > 0 {
		return fmt.Sprintf("%s waits in %s, at position %d.", a.Job, queue, x.Position)
	}
	return fmt.Sprintf("%s waits in %s.", a.Job, queue)
}

// nodesToCome is the reason of a workload whose checks are ready, but whose nodes are not there yet.
const nodesToCome = "PendingDelayedTopologyRequests"

// Because explains the reasons.
var Because = map[string]string{
	"Pending":                      "it is waiting for its turn",
	"Misconfigured":                "something it needs is not there, or not right",
	"NoMatchingFlavor":             "no flavor of the queue is for pods like these",
	"ExceedsMaxQuota":              "it asks for more than the queue can ever give",
	"WaitingForQuota":              "quota is used up",
	"WaitingForBudget":             "a budget is used up, or would be by it",
	"ReservedForOthers":            "what it needs is reserved for others at a time at which it could still run",
	"WaitingForPreemptedWorkloads": "the jobs that are being stopped for it have not ended yet",
	"WaitingForPodsReady":          "another job's pods have to come up first",
	"TopologyPlacementFailed":      "quota is there, but nodes or cards for all its pods at once are not",
	"Inadmissible":                 "it cannot be admitted as it is",
	"Deactivated":                  "someone suspended it, or it was given up",
	"Suspended":                    "its queue is stopped or not ready",
	"OnHold":                       "the queue is stopped",
	"PreemptionGated":              "others would have to be stopped for it, and a preemption gate on it forbids that for now",
	"AdmissionGated":               "an admission gate is on it",
	"Dependency":                   "jobs that it comes after have to end first",
	"DependencyNeverSatisfied":     "as things are, what it comes after never ends as it asks",
	"Preempted":                    "another job preempted it",
	nodesToCome:                    "the nodes that were made for it cannot take all its pods yet",
}

func (p *page) why(x *v1alpha1.WorkloadStanding) {
	switch {
	case x.State == "Admitted" || x.State == "Finished" || x.Reason == "" && x.Message == "":
		return
	case x.Reason == "ExceedsMaxQuota" && x.Quota != "":
		p.say("Why", "it asks for more than the queue can give now (%s): %s", x.Reason, x.Message)
	case Because[x.Reason] != "" && x.Message != "":
		p.say("Why", "%s (%s): %s", Because[x.Reason], x.Reason, x.Message)
	case Because[x.Reason] != "":
		p.say("Why", "%s (%s)", Because[x.Reason], x.Reason)
	default:
		p.say("Why", "%s: %s", x.Reason, x.Message)
	}
}

func (p *page) ahead(x *v1alpha1.WorkloadStanding) {
	if x.Order != "" {
		p.say("Order", "%s", x.Order)
	}
	if x.Backfill != "" {
		p.say("Backfill", "%s", x.Backfill)
	}
	if x.Shares != "" {
		p.say("Shares", "%s", x.Shares)
	}
	if x.Moves != "" {
		p.say("Moves", "%s", x.Moves)
	}
	if x.Quota != "" {
		p.say("Quota", "%s", x.Quota)
	}
	p.cost(x)
	if len(x.Ahead) == 0 {
		return
	}
	if more := x.Position - 1 - len(x.Ahead); more > 0 {
		p.say("Ahead", "%d before these", more)
	}
	p.others("Ahead", x.Ahead)
}

// cost says what it is expected to cost.
func (p *page) cost(x *v1alpha1.WorkloadStanding) {
	if x.ExpectedCost != "" {
		p.say("Cost", "$%s expected where it would run", x.ExpectedCost)
	}
	if x.Cost != "" {
		p.say("Cost", "%s", x.Cost)
	}
}

// others lists workloads; those the user may not see are only counted.
func (p *page) others(heading string, list []v1alpha1.WorkloadRef) {
	hidden := map[string]int{}
	for _, o := range list {
		if o.Name == "" {
			hidden[o.ClusterQueue]++
			continue
		}
		p.say(heading, "%s", Describe(&o))
	}
	for _, queue := range slices.Sorted(maps.Keys(hidden)) {
		p.say(heading, "%s of namespaces you may not see, in ClusterQueue %s", count(hidden[queue], "job"), queue)
	}
}

// Describe another workload by the names its users know.
func Describe(o *v1alpha1.WorkloadRef) string {
	name := o.Job
	if name == "" {
		name = "workload/" + o.Name
	}
	if o.Namespace != "" {
		name += " in " + o.Namespace
	}
	text := fmt.Sprintf("%s (ClusterQueue %s, priority %d)", name, o.ClusterQueue, o.Priority)
	if o.Rule != "" {
		text += ", by the rule " + o.Rule
	}
	if o.CheckpointedAt != nil {
		text += ", which last saved its work at " + o.CheckpointedAt.UTC().Format("15:04 MST")
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (p *page) missing(x *v1alpha1.WorkloadStanding) {
	for _, m := range x.Missing {
		switch {
		case m.Cohort != "":
			p.say("Missing", "%s of quota in flavor %s, at cohort %s (pod set %s)", amount(m.Amount, m.Resource), m.Flavor, m.Cohort, m.PodSet)
		case m.ClusterQueue != "" && m.Amount != "":
			p.say("Missing", "%s of quota in flavor %s, at ClusterQueue %s (pod set %s)", amount(m.Amount, m.Resource), m.Flavor, m.ClusterQueue, m.PodSet)
		case m.Reason == "TopologyPlacementFailed":
			p.say("Missing", "nodes and cards for pod set %s", m.PodSet)
		default:
			p.say("Missing", "a flavor for pod set %s", m.PodSet)
		}
	}
}

// amount of a resource, in its own unit.
func amount(quantity, resource string) string { return quantity + " " + resource }

func (p *page) places(x *v1alpha1.WorkloadStanding) {
	for _, set := range x.PodSets {
		var flavors []string
		for _, resource := range slices.Sorted(maps.Keys(set.Flavors)) {
			flavors = append(flavors, resource+" from "+set.Flavors[resource])
		}
		text := count(int(set.Count), "pod") + " of " + set.Name
		if len(flavors) > 0 {
			text += ", " + strings.Join(flavors, ", ")
		}
		heading := "Would get"
		if x.State == "Admitted" || x.State == "QuotaReserved" || x.State == "Finished" {
			heading = "Quota"
		}
		p.say(heading, "%s", text)
		if nodes := nodeList(set.Nodes); nodes != "" {
			p.say("Nodes", "%s", nodes)
		}
	}
}

func nodeList(nodes []v1alpha1.Node) string {
	const most = 8
	var list []string
	for i, n := range nodes {
		if i == most {
			list = append(list, fmt.Sprintf("and %d more", len(nodes)-most))
			break
		}
		text := fmt.Sprintf("%d on %s", n.Pods, n.Name)
		if len(n.Cards) > 0 {
			text += fmt.Sprintf(" (cards %s)", strings.Trim(strings.ReplaceAll(fmt.Sprint(n.Cards), " ", ","), "[]"))
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

func (p *page) checks(x *v1alpha1.WorkloadStanding) {
	for _, c := range x.Checks {
		if x.State == "Admitted" && c.State == "Ready" {
			continue
		}
		text := c.Name + " is " + c.State
		if c.Message != "" {
			text += ": " + c.Message
		}
		p.say("Check", "%s", text)
	}
}

// Suggestions adds what a person can do themselves to what the engine suggests.
func Suggestions(a *Answer) []string {
	x := a.Standing
	list := slices.Clone(x.Suggestions)
	name := a.Job[strings.Index(a.Job, "/")+1:]
	switch x.Reason {
	case "Deactivated":
		list = append(list, "elastic resume "+name)
	case "OnHold":
		list = append(list, "elastic queue resume "+x.ClusterQueue+", or a LocalQueue that is not stopped")
	case "DependencyNeverSatisfied":
		list = append(list, "running the job that it comes after again, under its name; or to start without: kubectl annotate "+a.Job+" -n "+a.Namespace+" elasticai.io/after-")
	case "Misconfigured":
		list = append(list, "elastic queue list shows the queues; elastic doctor looks for what is misconfigured")
	}
	return list
}

// policies says in a line for each target what QueuePolicies set.
func (p *page) policies(x *v1alpha1.WorkloadStanding) {
	var lines []string
	values := map[string][]string{}
	for _, v := range x.Policies {
		line := "QueuePolicy " + v.Policy + " on " + v.From
		if values[line] == nil {
			lines = append(lines, line)
		}
		values[line] = append(values[line], v.Field+" "+v.Value)
	}
	for _, line := range lines {
		p.say("Policy", "%s (%s)", strings.Join(values[line], ", "), line)
	}
}

func (p *page) starts(x *v1alpha1.WorkloadStanding, now time.Time) {
	switch {
	case slices.Contains([]string{"Admitted", "Finished", "QuotaReserved", "HeldBack", "Unknown"}, x.State):
	case x.StartsAt == nil && len(x.PreemptionTargets) > 0:
		p.say("Starts", "when the jobs it preempts have stopped")
	case x.StartsAt == nil && x.Quota != "":
		p.say("Starts", "nobody knows: its quota changes before")
	case x.StartsAt == nil && (x.Reason == "ExceedsMaxQuota" || x.Reason == "NoMatchingFlavor"):
		p.say("Starts", "never, as things are")
	case x.StartsAt == nil:
		p.say("Starts", "nobody knows: no end is known of what it waits for (jobs may say it: submit --time)")
	case !x.StartsAt.After(now):
		p.say("Starts", "any moment")
	default:
		wait := x.StartsAt.Sub(now)
		p.say("Starts", "in about %s, at %s", output.Duration(wait.Round(time.Minute)), x.StartsAt.Format("15:04 MST"))
	}
}

// RenderPlan writes what would become of a job.
func RenderPlan(s output.Writer, job string, status *v1alpha1.PlanStatus, now time.Time) {
	fmt.Fprintln(s, PlanHeadline(job, status))
	fmt.Fprintln(s)
	p := &page{out: s}
	if !status.StartsNow && len(status.PreemptionTargets) == 0 {
		p.why(&status.WorkloadStanding)
		p.ahead(&status.WorkloadStanding)
	} else {
		p.cost(&status.WorkloadStanding)
	}
	p.missing(&status.WorkloadStanding)
	p.places(&status.WorkloadStanding)
	p.others("Held by", status.HeldBy)
	p.others("Preempts", status.PreemptionTargets)
	if !status.StartsNow {
		for _, suggestion := range status.Suggestions {
			p.say("Suggested", "%s", suggestion)
		}
		p.starts(&status.WorkloadStanding, now)
	}
}

// PlanHeadline says what would become of a job in one sentence.
func PlanHeadline(job string, status *v1alpha1.PlanStatus) string {
	where := "queue " + status.LocalQueue
	if status.ClusterQueue != "" {
		where += " (ClusterQueue " + status.ClusterQueue + ")"
	}
	switch {
	case status.StartsNow:
		return fmt.Sprintf("%s would start now, in %s.", job, where)
	case len(status.PreemptionTargets) > 0:
		return fmt.Sprintf("%s would start in %s once %s had been stopped for it.", job, where, count(len(status.PreemptionTargets), "other job"))
	case status.Quota == "" && (status.Reason == "ExceedsMaxQuota" || status.Reason == "NoMatchingFlavor"):
		return fmt.Sprintf("%s would never start in %s.", job, where)
	case status.State == "HeldBack":
		return fmt.Sprintf("%s would be held back in %s.", job, where)
	}
	return fmt.Sprintf("%s would wait in %s, at position %d.", job, where, max(1, status.Position))
}
