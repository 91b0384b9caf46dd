package queues

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/cli/output"
)

const cards corev1.ResourceName = "nvidia.com/gpu"

func queue(name, cohort, nominal, used, borrowed string, share int64) kueue.ClusterQueue {
	return kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: kueue.ClusterQueueSpec{CohortName: kueue.CohortReference(cohort), QueueingStrategy: kueue.BestEffortFIFO, ResourceGroups: []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{cards}, Flavors: []kueue.FlavorQuotas{{Name: "h100", Resources: []kueue.ResourceQuota{{Name: cards, NominalQuota: resource.MustParse(nominal)}}}},
		}}},
		Status: kueue.ClusterQueueStatus{
			PendingWorkloads: 2, AdmittedWorkloads: 1, FairSharing: &kueue.FairSharingStatus{WeightedShare: share},
			Conditions: []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: metav1.ConditionTrue}},
			FlavorsReservation: []kueue.FlavorUsage{{Name: "h100", Resources: []kueue.ResourceUsage{{
				Name: cards, Total: resource.MustParse(used), Borrowed: resource.MustParse(borrowed),
			}}}},
		},
	}
}

func TestTree(t *testing.T) {
	research := kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "research"}, Spec: kueue.CohortSpec{ParentName: "org"}}
	roots := Tree([]kueue.ClusterQueue{
		queue("vision", "research", "8", "12", "4", 125), queue("nlp", "research", "8", "2", "0", 0), queue("prod", "org", "16", "16", "0", 0), queue("alone", "", "4", "1", "0", 0),
	}, []kueue.Cohort{research}, cards)
	var out strings.Builder
	printTree(&out, roots, cards)
	want := `org           [##################..] 30 of 32, 4 lent to each other, 2 idle
├─ research   [#################...] 14 of 16, 4 lent to each other, 2 idle
│  ├─ nlp     [#####...............] 2 of 8, 6 idle
│  └─ vision  [#############+++++++] 12 of 8, 4 borrowed, share 125
└─ prod       [####################] 16 of 16
alone         [#####...............] 1 of 4, 3 idle
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestQueueTables(t *testing.T) {
	q := queue("vision", "research", "8", "12", "4", 125)
	local := kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "vision"}}
	described := Describe(&q, []kueue.LocalQueue{local})
	var out strings.Builder
	s := output.Writer{Writer: &out}
	table([]Queue{described}).Print(s, true)
	printQueue(s, &described)
	flavorTable([]Flavor{{Name: "h100", Nodes: 2, Cards: 16, Queues: []string{"nlp", "vision"}, Labels: map[string]string{"gpu": "h100"}}}).Print(s, false)
	want := `NAME    COHORT    STATUS  PENDING  ADMITTED  IN USE               STRATEGY        SHARE  LOCAL QUEUES  WHY
vision  research  Active  2        1         nvidia.com/gpu 12/8  BestEffortFIFO  125    team/main     -
Name:          vision
Status:        Active
Cohort:        research
Strategy:      BestEffortFIFO
Pending:       2
Admitted:      1
Share:         125
Local queues:  team/main

FLAVOR  RESOURCE        NOMINAL  USED  BORROWED  MAY BORROW  MAY LEND
h100    nvidia.com/gpu  8        12    4         all         all
NAME  NODES  CARDS  QUEUES      NODE LABELS
h100  2      16     nlp,vision  gpu=h100
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
