package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/checks/machines"
	"github.com/elastic-ai/elastic/test/crds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// termination is Karpenter's finalizer.
const termination = "karpenter.sh/termination"

// TestMachines takes workloads through the check that buys nodes, on the real CRD of Karpenter. Karpenter itself does not
// run: the test writes what it would.
func TestMachines(t *testing.T) {
	ns := queueFor(t, "8")
	buying(t, ns, ns)
	waitCheck(t, ns, metav1.ConditionFalse, "NodeClaimNotServed", "install Karpenter")
	waitActive(t, ns, kueue.ClusterQueueActiveReasonAdmissionCheckInactive)
	objects, err := crds.NodeClaims()
	if err != nil {
		t.Fatal(err)
	}
	// A queue that starts beside Karpenter does not look at nodes; those of other tests do.
	t.Cleanup(func() {
		cluster.WaitGone(t, objects[0])
		cluster.Reconfigure(t, func(*v1alpha1.QueueConfiguration) {})
	})
	for _, crd := range objects {
		cluster.Make(t, crd)
	}
	t.Cleanup(func() { endKarpenter(t) })
	waitCheck(t, ns, metav1.ConditionTrue, "Active", "The admission check is active")
	waitActive(t, ns, kueue.ClusterQueueActiveReasonReady)

	t.Run("bought", boughtForAGang)
	t.Run("stock-out", stockOut)
	t.Run("all closed", allClosed)
	t.Run("lost", lostNode)
	t.Run("killed", nodesAfterAKill)
	t.Run("idle", idleNodes)
	t.Run("deadline", waitsForSpot)
	t.Run("handed over", handedOver)
	t.Run("back to spot", backToSpot)
	t.Run("not to be had", notToBeHad)
}

// endKarpenter waits until no NodeClaim is left, and gives way to their end as Karpenter does.
func endKarpenter(t *testing.T) {
	t.Helper()
	sandbox.Eventually(t, "no NodeClaim is left", func(ctx context.Context) error {
		list := &machines.NodeClaimList{}
		if err := cluster.List(ctx, list); err != nil {
			return err
		}
		for i := range list.Items {
			n := &list.Items[i]
			n.Finalizers = slices.DeleteFunc(n.Finalizers, func(name string) bool { return name == termination })
			if err := errors.Join(client.IgnoreNotFound(cluster.Update(ctx, n)), client.IgnoreNotFound(cluster.Delete(ctx, n))); err != nil {
				return err
			}
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("there are %d", len(list.Items))
		}
		return nil
	})
}

// buying gives a queue a check that buys nodes, and flavors CloudOffers with two zones of machines with eight cards,
// each in a region of its own.
func buying(t *testing.T, queue string, flavors ...string) {
	t.Helper()
	for i, flavor := range flavors {
		offer := &cloud.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: flavor}}
		offer.Spec.Prices.Inline = priceHeader + strings.ReplaceAll("aws,REGION,a,p5.48xlarge,H100,8,96,40\naws,REGION,b,p5.48xlarge,H100,8,96,44\n", "REGION", fmt.Sprintf("us-east-%d", i+1))
		offer.Spec.Match.CapacityType = cloud.Spot
		offer.Spec.Via = &cloud.Via{NodeClass: &cloud.NodeClass{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "gpu"}}
		cluster.Make(t, offer)
		waitPriced(t, flavor, cloud.ReasonPriced, "5")
	}
	cluster.Make(t, &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: queue}, Spec: kueue.AdmissionCheckSpec{ControllerName: cloud.PurchaseController}})
	patch(t, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: queue}}, fmt.Sprintf(`{"spec":{"admissionChecksStrategy":{"admissionChecks":[{"name":%q}]}}}`, queue))
}

// claimsOf waits until a workload has so many NodeClaims of an attempt that are not being deleted, and none of others but those that it
// runs on, and returns them in order. As Karpenter does, it gives each its finalizer.
func claimsOf(t *testing.T, wl *kueue.Workload, attempt, number int, runsOn ...machines.NodeClaim) (claims []machines.NodeClaim) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("%s has %d NodeClaims of attempt %d", wl.Name, number, attempt), func(ctx context.Context) error {
		list := &machines.NodeClaimList{}
		if err := cluster.List(ctx, list, client.MatchingLabels{"elasticai.io/workload-uid": string(wl.UID)}); err != nil {
			return err
		}
		claims = slices.DeleteFunc(list.Items, func(n machines.NodeClaim) bool {
			return n.DeletionTimestamp != nil || slices.ContainsFunc(runsOn, func(on machines.NodeClaim) bool { return on.UID == n.UID })
		})
		for i := range claims {
			if !strings.HasPrefix(claims[i].Name, fmt.Sprintf("elastic-%s-%d-", wl.UID, attempt)) {
				return fmt.Errorf("there is %s", claims[i].Name)
			}
		}
		if len(claims) != number {
			return fmt.Errorf("there are %d", len(claims))
		}
		return nil
	})
	for i := range claims {
		n := &claims[i]
		cluster.Change(t, n, func() {
			if !slices.Contains(n.Finalizers, termination) {
				n.Finalizers = append(n.Finalizers, termination)
			}
		})
	}
	slices.SortFunc(claims, func(a, b machines.NodeClaim) int { return strings.Compare(a.Name, b.Name) })
	return claims
}

// registers writes that the nodes of NodeClaims have been launched and are registered.
func registers(t *testing.T, claims ...machines.NodeClaim) {
	t.Helper()
	for i := range claims {
		n := &claims[i]
		sandbox.Eventually(t, n.Name+" can be registered", func(ctx context.Context) error {
			if err := cluster.Get(ctx, client.ObjectKeyFromObject(n), n); err != nil {
				return err
			}
			for _, condition := range []string{machines.Launched, machines.Registered} {
				apimeta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: condition})
			}
			return cluster.Status().Update(ctx, n)
		})
	}
}

// deletes does what Karpenter does to a NodeClaim that cannot be launched, or whose machine is gone.
func deletes(t *testing.T, n *machines.NodeClaim) {
	t.Helper()
	if err := cluster.Delete(t.Context(), n); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	released(t, n)
}

// released has Karpenter end a machine whose NodeClaim is being deleted, and waits until nothing is left of it.
func released(t *testing.T, n *machines.NodeClaim) {
	t.Helper()
	sandbox.Eventually(t, n.Name+" is gone", func(ctx context.Context) error {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(n), n)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if n.DeletionTimestamp == nil {
			return errors.New("nobody has deleted it")
		}
		n.Finalizers = slices.DeleteFunc(n.Finalizers, func(name string) bool { return name == termination })
		return errors.Join(errors.New("not yet"), client.IgnoreNotFound(cluster.Update(ctx, n)))
	})
}

func placeOf(t *testing.T, flavor, zone string) (found *cloud.PlaceStatus) {
	t.Helper()
	offer := &cloud.CloudOffer{}
	if err := cluster.Get(t.Context(), client.ObjectKey{Name: flavor}, offer); err != nil {
		t.Fatal(err)
	}
	for i := range offer.Status.Places {
		if offer.Status.Places[i].Zone == zone {
			found = &offer.Status.Places[i]
		}
	}
	return found
}

func zoneOf(n *machines.NodeClaim) string {
	for _, r := range n.Spec.Requirements {
		if r.Key == corev1.LabelTopologyZone {
			return r.Values[0]
		}
	}
	return ""
}

// A gang gets exactly the nodes that it needs at the cheapest place, starts there when all of them are registered, and
// gives them back when it is done.
func boughtForAGang(t *testing.T) {
	ns := queueFor(t, "40") // the node has eight: quota is given without a look at nodes
	buying(t, ns, ns)
	job, wl := asking(t, ns, "job", 12, "forever")
	claims := claimsOf(t, wl, 1, 2)
	if zoneOf(&claims[0]) != "a" || claims[0].Spec.NodeClassRef.Name != "gpu" || claims[0].Labels["elasticgpu.io/gpu-model"] != "H100-80G" {
		t.Errorf("NodeClaim %+v", claims[0].Spec)
	}
	registers(t, claims[0])
	waitState(t, wl, kueue.CheckStatePending, "1 of 2 nodes there: aws/us-east-1/a p5.48xlarge spot")
	registers(t, claims[1])
	waitState(t, wl, kueue.CheckStateReady, "2 nodes: aws/us-east-1/a p5.48xlarge spot")
	waitCondition(t, wl, kueue.WorkloadAdmitted, true)
	waitEvent(t, wl, "NodeClaimsCreated", "Created 2 NodeClaims of attempt 1")
	waitJob(t, job, func(j *batchv1.Job) error {
		if j.Status.Active != 12 {
			return fmt.Errorf("there are %d pods", j.Status.Active)
		}
		return nil
	})
	for _, pod := range podsOf(t, job) {
		if pod.Spec.NodeSelector[cloud.PurchaseLabel] != string(wl.UID)+"-1" {
			t.Errorf("pod %s selects %v", pod.Name, pod.Spec.NodeSelector)
		}
	}
	if place := placeOf(t, ns, "a"); place == nil || !place.Obtainable || place.StartUp == nil {
		t.Errorf("learned %+v", place)
	}
	if err := cluster.Delete(t.Context(), job, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	for i := range claims {
		released(t, &claims[i])
	}
}

// A stock-out closes the place for the next workload, too; siblings go, and the next place is tried while quota is held.
func stockOut(t *testing.T) {
	ns := queueFor(t, "40")
	buying(t, ns, ns)
	_, wl := asking(t, ns, "job", 16, "forever")
	claims := claimsOf(t, wl, 1, 2)
	registers(t, claims[0])
	deletes(t, &claims[1])
	released(t, &claims[0])
	next := claimsOf(t, wl, 2, 2)
	if zoneOf(&next[0]) != "b" || zoneOf(&next[1]) != "b" {
		t.Errorf("it tries zone %s again", zoneOf(&next[0]))
	}
	if place := placeOf(t, ns, "a"); place == nil || place.Obtainable || place.ClosedUntil == nil || place.ClosedFor != 2 || place.Failures != 1 {
		t.Errorf("learned %+v", place)
	}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil || !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved) ||
		apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted) != nil {
		t.Errorf("quota was not held: %v %+v", err, wl.Status.Conditions)
	}
	_, other := asking(t, ns, "other", 16, "forever")
	if claims := claimsOf(t, other, 1, 2); zoneOf(&claims[0]) != "b" {
		t.Errorf("the next workload tries zone %s", zoneOf(&claims[0]))
	}
	registers(t, next...)
	waitState(t, wl, kueue.CheckStateReady, "2 nodes: aws/us-east-1/b p5.48xlarge spot")
}

// When no place of a flavor sells, the workload gets another flavor.
func allClosed(t *testing.T) {
	ns, first, second := twoFlavors(t)
	buying(t, ns, first, second)
	_, wl := asking(t, ns, "job", 8, "forever")
	one := claimsOf(t, wl, 1, 1)
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil {
		t.Fatal(err)
	}
	flavor := wl.Status.Admission.PodSetAssignments[0].Flavors[sandbox.GPU]
	deletes(t, &one[0])
	two := claimsOf(t, wl, 2, 1)
	deletes(t, &two[0])
	waitEvent(t, wl, "EvictedDueToAdmissionCheck", "no place sells the nodes of flavor "+string(flavor)+" now")
	sandbox.Eventually(t, "it has quota of another flavor", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		if wl.Status.Admission == nil || wl.Status.Admission.PodSetAssignments[0].Flavors[sandbox.GPU] == flavor {
			return fmt.Errorf("its admission is %+v", wl.Status.Admission)
		}
		return nil
	})
	offer := &cloud.CloudOffer{}
	if err := cluster.Get(t.Context(), client.ObjectKey{Name: string(flavor)}, offer); err != nil || offer.Status.ClosedUntil == nil {
		t.Errorf("the CloudOffer does not say that it is closed: %v %+v", err, offer.Status)
	}
}

// A node that is lost takes its workload's quota, and the workload gets other nodes elsewhere.
func lostNode(t *testing.T) {
	ns := queueFor(t, "40")
	buying(t, ns, ns)
	_, wl := asking(t, ns, "job", 16, "forever")
	claims := claimsOf(t, wl, 1, 2)
	registers(t, claims...)
	waitCondition(t, wl, kueue.WorkloadAdmitted, true)
	deletes(t, &claims[0])
	waitEvent(t, wl, "EvictedDueToMachineLost", "a node was lost: ")
	released(t, &claims[1])
	sandbox.Eventually(t, "it has nodes elsewhere", func(ctx context.Context) error {
		list := &machines.NodeClaimList{}
		if err := cluster.List(ctx, list, client.MatchingLabels{"elasticai.io/workload-uid": string(wl.UID)}); err != nil {
			return err
		}
		if len(list.Items) != 2 || zoneOf(&list.Items[0]) != "b" {
			return fmt.Errorf("there are %d", len(list.Items))
		}
		return nil
	})
	if place := placeOf(t, ns, "a"); place == nil || place.Obtainable || place.ClosedUntil == nil {
		t.Errorf("learned %+v", place)
	}
}

// The next leader finds what was bought: it makes nothing twice, counts what happened meanwhile, and lets go what has lost
// its workload.
func nodesAfterAKill(t *testing.T) {
	ns := queueFor(t, "40")
	buying(t, ns, ns)
	_, waits := asking(t, ns, "waits", 8, "forever")
	asked := claimsOf(t, waits, 1, 1)
	_, refused := asking(t, ns, "refused", 16, "forever")
	gone := claimsOf(t, refused, 1, 2)
	ended, orphan := asking(t, ns, "ended", 8, "forever")
	left := claimsOf(t, orphan, 1, 1)
	if err := syscall.Kill(cluster.Queue(t).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Delete(t.Context(), &gone[1]); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Delete(t.Context(), ended, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	registers(t, asked...)
	waitState(t, waits, kueue.CheckStateReady, "1 node: aws/us-east-1/a p5.48xlarge spot")
	released(t, &gone[1])
	released(t, &gone[0])
	released(t, &left[0])
	if next := claimsOf(t, refused, 2, 2); zoneOf(&next[0]) != "b" {
		t.Errorf("the stock-out was not counted: zone %s", zoneOf(&next[0]))
	}
	if again := claimsOf(t, waits, 1, 1); again[0].UID != asked[0].UID {
		t.Errorf("NodeClaim %s is another one", again[0].Name)
	}
	// What says nothing of its workload is nobody's.
	stray := &unstructured.Unstructured{}
	stray.SetGroupVersionKind(machines.GroupVersion.WithKind("NodeClaim"))
	stray.SetName(ns)
	stray.SetLabels(map[string]string{"elasticai.io/workload-uid": "none"})
	stray.SetFinalizers([]string{"elasticai.io/machines"})
	stray.Object["spec"] = map[string]any{"requirements": []any{}, "nodeClassRef": map[string]any{"group": "g", "kind": "k", "name": "n"}}
	cluster.Make(t, stray)
	cluster.WaitGone(t, stray)
}

// The node of a workload that is done waits for the next one, which starts there without a purchase, and ends when the
// CloudOffer says so. A node that is not what would be bought now is not taken over.
func idleNodes(t *testing.T) {
	ns := queueFor(t, "40")
	buying(t, ns, ns)
	offer := &cloud.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	inRegion(t, offer, "eu-west-1") // at places where nodes were lost before, idle ones are no bargain
	patch(t, offer, `{"spec":{"keepIdle":"1h"}}`)
	first, wl := asking(t, ns, "first", 8, "forever")
	claims := claimsOf(t, wl, 1, 1)
	if place := claims[0].Spec.Requirements; zoneOf(&claims[0]) != "a" || !slices.ContainsFunc(place, func(r machines.Requirement) bool { return slices.Contains(r.Values, "eu-west-1") }) {
		t.Fatalf("NodeClaim %+v", place)
	}
	registers(t, claims...)
	waitCondition(t, wl, kueue.WorkloadAdmitted, true)
	if err := cluster.Delete(t.Context(), first, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	waitIdle(t, &claims[0])
	second, next := asking(t, ns, "second", 8, "forever")
	waitState(t, next, kueue.CheckStateReady, "1 node: aws/eu-west-1/a p5.48xlarge spot")
	waitEvent(t, next, "NodeClaimsTakenOver", "Took over 1 idle node for flavor "+ns)
	waitJob(t, second, func(j *batchv1.Job) error {
		if j.Status.Active != 8 {
			return fmt.Errorf("there are %d pods", j.Status.Active)
		}
		return nil
	})
	for _, pod := range podsOf(t, second) {
		if pod.Spec.NodeSelector[cloud.PurchaseLabel] != string(wl.UID)+"-1" {
			t.Errorf("pod %s selects %v", pod.Name, pod.Spec.NodeSelector)
		}
	}
	if err := cluster.Delete(t.Context(), second, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	waitIdle(t, &claims[0])
	patch(t, offer, `{"spec":{"via":{"nodeClass":{"name":"other"}}}}`)
	_, third := asking(t, ns, "third", 8, "forever")
	fresh := claimsOf(t, third, 1, 1)
	if fresh[0].Spec.NodeClassRef.Name != "other" {
		t.Errorf("NodeClaim %+v", fresh[0].Spec)
	}
	released(t, &claims[0]) // it makes way for the one that was bought
	registers(t, fresh...)
	waitState(t, third, kueue.CheckStateReady, "1 node: aws/eu-west-1/a p5.48xlarge spot")
	if err := cluster.Delete(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	waitIdle(t, &fresh[0])
	patch(t, offer, `{"spec":{"keepIdle":"0s"}}`)
	released(t, &fresh[0])
}

// inRegion has a CloudOffer sell machines of another region, of which nothing was learned yet.
func inRegion(t *testing.T, offer *cloud.CloudOffer, region string) {
	t.Helper()
	table := priceHeader + strings.ReplaceAll("aws,REGION,a,p5.48xlarge,H100,8,96,40\naws,REGION,b,p5.48xlarge,H100,8,96,44\n", "REGION", region)
	patch(t, offer, fmt.Sprintf(`{"spec":{"prices":{"inline":%q}}}`, table))
	sandbox.Eventually(t, "the table is read", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(offer), offer); err != nil {
			return err
		}
		if offer.Status.Cheapest == nil || offer.Status.Cheapest.Region != region {
			return fmt.Errorf("the cheapest is %+v", offer.Status.Cheapest)
		}
		return nil
	})
}

// With spot sold out, a job without a deadline gets machines on demand, and one that has time waits for spot and says so.
func waitsForSpot(t *testing.T) {
	ns := queueFor(t, "40")
	buying(t, ns, ns)
	offer := &cloud.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	patch(t, offer, `{"spec":{"match":{"capacityType":null}}}`)
	inRegion(t, offer, "eu-west-2")
	_, now := asking(t, ns, "now", 8, "forever")
	for attempt := range 2 {
		claims := claimsOf(t, now, attempt+1, 1)
		deletes(t, &claims[0])
	}
	last := claimsOf(t, now, 3, 1)
	if !slices.ContainsFunc(last[0].Spec.Requirements, func(r machines.Requirement) bool { return slices.Contains(r.Values, "on-demand") }) {
		t.Errorf("NodeClaim %+v", last[0].Spec.Requirements)
	}
	registers(t, last...)
	waitState(t, now, kueue.CheckStateReady, "1 node: aws/eu-west-2/a p5.48xlarge on demand")
	if price := now.Status.AdmissionChecks[0].PodSetUpdates[0].Annotations[cloud.PriceAnnotation]; price != "96.00" {
		t.Errorf("it costs %q an hour", price)
	}

	job := sandbox.Job(ns, "later", "main", 8, "1")
	job.Labels["kueue.x-k8s.io/max-exec-time-seconds"] = "3600"
	job.Annotations = map[string]string{cloud.DeadlineAnnotation: "soon", cloud.CheckpointAnnotation: "10m"}
	if err := cluster.Create(t.Context(), job); err == nil || !strings.Contains(err.Error(), "want a time as in") {
		t.Errorf("a deadline that is none: %v", err)
	}
	job.Annotations[cloud.DeadlineAnnotation] = time.Now().Add(40 * time.Hour).UTC().Format(time.RFC3339)
	cluster.Make(t, job)
	later := cluster.WorkloadOf(t, job)
	sandbox.Eventually(t, "it waits for spot", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(later), later); err != nil {
			return err
		}
		if checks := later.Status.AdmissionChecks; len(checks) != 1 || checks[0].State != kueue.CheckStatePending || !strings.HasPrefix(checks[0].Message, "waits for spot nodes of flavor "+ns+" until 2") {
			return fmt.Errorf("checks are %+v", checks)
		}
		return nil
	})
	claimsOf(t, later, 0, 0)
}

// waitIdle waits until a node is idle.
func waitIdle(t *testing.T, n *machines.NodeClaim) {
	t.Helper()
	sandbox.Eventually(t, n.Name+" is idle", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(n), n); err != nil {
			return err
		}
		if note := n.Annotations["elasticai.io/purchase"]; n.DeletionTimestamp != nil || !strings.Contains(note, `"idle":`) {
			return fmt.Errorf("it is for %s, deleted %v", note, n.DeletionTimestamp)
		}
		return nil
	})
}

// What can be had nowhere is said, and nothing is bought.
func notToBeHad(t *testing.T) {
	ns := queueFor(t, "40")
	buying(t, ns, ns)
	large := sandbox.Job(ns, "large", "main", 1, "16")
	cluster.Make(t, large)
	tooLarge := cluster.WorkloadOf(t, large)
	waitRefusal(t, tooLarge, "a pod asks for more nvidia.com/gpu than any node has that is bought for flavor "+ns)
	elsewhere := sandbox.Job(ns, "elsewhere", "main", 1, "8")
	elsewhere.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "c"}
	cluster.Make(t, elsewhere)
	unsold := cluster.WorkloadOf(t, elsewhere)
	waitEvent(t, unsold, "AdmissionCheckRejected", "the pods fit on no machine that CloudOffer "+ns+" sells")
	for _, wl := range []*kueue.Workload{tooLarge, unsold} {
		list := &machines.NodeClaimList{}
		if err := cluster.List(t.Context(), list, client.MatchingLabels{"elasticai.io/workload-uid": string(wl.UID)}); err != nil || len(list.Items) > 0 {
			t.Errorf("there are %d NodeClaims, %v", len(list.Items), err)
		}
	}
	for _, role := range []string{"kueue-batch-user-role", "admin", "edit"} {
		mine := &machines.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: ns + "-mine"}}
		if err := as(t, ns+"-"+role, role, ns).Create(t.Context(), mine, client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("creating a NodeClaim as %s: %v", role, err)
		}
	}
}
