package queue

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	visibility "github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/quotarules"
)

// Who waits for more quota than there is now is told when it changes, and nothing else of its start.
func TestQuotaThatChangesIsExplained(t *testing.T) {
	p := newHarness(t) // it is 03:04 UTC
	p.oneQueue()
	policy := named(&v1alpha1.QueuePolicy{}, "nights")
	policy.UID, policy.Generation = types.UID("nights"), 1
	policy.Spec.TargetRefs = []v1alpha1.TargetRef{{Kind: v1alpha1.KindClusterQueue, Name: "cq"}}
	policy.Spec.Quota = &v1alpha1.Quota{Windows: []v1alpha1.Window{{
		Name: "nights", Start: "0 20 * * *", Duration: "4h",
		Quotas: []v1alpha1.WindowQuota{{Flavor: "default", Resource: "cpu", NominalQuota: resource.MustParse("16")}},
	}}}
	p.see(policy)
	p.submit("large", "main", "", 0, "8")
	p.submit("larger", "main", "", 0, "24")
	at := time.Date(2026, 1, 2, 20, 0, 0, 0, time.UTC)
	x := p.explained("large")
	if x.Quota != "16 cpu in flavor default instead of 4 from 2026-01-02T20:00:00Z on, as QueuePolicies say" || x.StartsAt == nil || !x.StartsAt.Time.Equal(at) ||
		!strings.Contains(strings.Join(x.Suggestions, "\n"), "waiting until 2026-01-02T20:00:00Z, when its quota suffices") {
		t.Errorf("%+v", x)
	}
	if x := p.explained("larger"); x.Quota == "" || x.StartsAt != nil {
		t.Errorf("a quota that does not suffice, either: %+v", x)
	}

	// What lost nodes had counts for the grace: the quota gets smaller then.
	policy = policy.DeepCopy()
	policy.Generation = 2
	policy.Spec.Quota = &v1alpha1.Quota{ShareOfNodes: ptr.To[int32](100)}
	cq := p.objects.ClusterQueues["cq"].DeepCopy()
	cq.Annotations = map[string]string{quotarules.Annotation: `{"default":{"cpu":{"declared":"4","written":"4","nodes":{"now":"2","held":[{"amount":"4","until":"2026-01-02T03:10:00Z"}]}}}}`}
	p.see(policy, cq)
	if x := p.explained("large"); x.Quota != "2 cpu in flavor default instead of 4 from 2026-01-02T03:10:00Z on, as QueuePolicies say" || x.StartsAt != nil {
		t.Errorf("%+v", x)
	}
	p.turn([]message{{object: policy, deleted: true}})
	if x := p.explained("large"); x.Quota != "" {
		t.Errorf("without a policy: %s", x.Quota)
	}
}

func (p *harness) explained(name string) visibility.WorkloadStanding {
	x := p.engine.Explain(admission.Key{Namespace: "ns", Name: name}, p.time)
	standing := p.workloadStanding(&x)
	p.explainQuota(&standing)
	return standing
}
