package operators

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/checks/machines"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/test/crds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// entry is a line of the ledger that the cloud beside Karpenter has; test/operators/karpenter/market.go.
type entry struct {
	Event, Claim, Name, Workload, Zone string
	Spot                               bool
	Price                              float64
	At                                 time.Time
}

// market is that cloud's folder.
type market string

func (m market) ledger(t *testing.T) (list []entry) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(string(m), "ledger"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var e entry
		if json.Unmarshal(line, &e) == nil {
			list = append(list, e)
		}
	}
	return list
}

// soldOut says which zones have no machines, or no spot machines (a/spot), or no more than so many of them (a/spot/1).
func (m market) soldOut(t *testing.T, zones string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(string(m), "out"), []byte(zones), 0o600); err != nil {
		t.Fatal(err)
	}
}

// sells says what the cloud sells from now on.
func (m market) sells(t *testing.T, table string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(string(m), "table"), []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
}

// open are the machines that are paid for now. None is sold twice for a NodeClaim.
func (m market) open(t *testing.T) map[string]entry {
	t.Helper()
	open, bought := map[string]entry{}, map[string]bool{}
	for _, e := range m.ledger(t) {
		switch e.Event {
		case "bought":
			if bought[e.Claim] {
				t.Errorf("%s was bought twice", e.Name)
			}
			bought[e.Claim], open[e.Claim] = true, e
		case "ended":
			delete(open, e.Claim)
		}
	}
	return open
}

// waitEnded waits until no machine is paid for.
func (m market) waitEnded(t *testing.T) {
	t.Helper()
	sandbox.Eventually(t, "all machines have ended", func(context.Context) error {
		if open := m.open(t); len(open) > 0 {
			return fmt.Errorf("%d are paid for: %v", len(open), open)
		}
		return nil
	})
}

// karpenter starts it, with a cloud in a folder.
func karpenter(t *testing.T, in market) (kill func()) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(string(in), "table")); err != nil {
		in.sells(t, threeZones)
	}
	t.Setenv("KARPENTER_CLOUD", string(in))
	t.Setenv("SYSTEM_NAMESPACE", "default")
	return operator(t, "karpenter", "--disable-leader-election", "--metrics-port=0", "--health-probe-port=0")
}

const tableHeader = "cloud,region,zone,instance_type,gpu,gpu_count,vcpus,memory_gib,price_usd_hour,spot_usd_hour\n"

// threeZones is what CloudOffers and the cloud sell unless a test says otherwise.
const threeZones = tableHeader +
	"aws,us-east-1,a,p5.48xlarge,H100,8,192,2048,96,40\naws,us-east-1,b,p5.48xlarge,H100,8,192,2048,96,44\naws,us-east-1,c,p5.48xlarge,H100,8,192,2048,96,48\n"

// buying makes a namespace with a queue whose nodes are bought in zones a, b and c, a the cheapest.
func buying(t *testing.T, cards string) string {
	t.Helper()
	ns := cluster.Namespace(t)
	offer := &cloud.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	offer.Spec.Prices.Inline = threeZones
	offer.Spec.Match.CapacityType = cloud.Spot
	offer.Spec.Via = &cloud.Via{NodeClass: &cloud.NodeClass{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: "default"}}
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: kueue.AdmissionCheckSpec{ControllerName: cloud.PurchaseController}}
	cq := sandbox.ClusterQueue(ns, ns, cards)
	cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(ns)}}}
	cluster.Make(t, sandbox.Flavor(ns, map[string]string{"example.com/pool": ns}), offer, check, cq, sandbox.LocalQueue(ns, "main", ns))
	t.Cleanup(func() {
		if t.Failed() {
			report(t, ns)
		}
	})
	return ns
}

// report says why pods do not run.
func report(t *testing.T, ns string) {
	pods, nodes := &corev1.PodList{}, &corev1.NodeList{}
	if err := errors.Join(cluster.List(context.Background(), pods, client.InNamespace(ns)), cluster.List(context.Background(), nodes, client.HasLabels{cloud.PurchaseLabel})); err != nil {
		t.Log(err)
	}
	for _, pod := range pods.Items {
		t.Logf("pod %s by %s on %q: %s %v %v", pod.Name, pod.Spec.SchedulerName, pod.Spec.NodeName, pod.Status.Phase, pod.Status.Conditions, pod.Spec.SchedulingGates)
	}
	workloads := &kueue.WorkloadList{}
	if err := cluster.List(context.Background(), workloads, client.InNamespace(ns)); err != nil {
		t.Log(err)
	}
	for _, wl := range workloads.Items {
		t.Logf("workload %s: %+v %+v %+v", wl.Name, wl.Status.AdmissionChecks, wl.Status.RequeueState, wl.Status.Conditions)
	}
	for _, node := range nodes.Items {
		t.Logf("node %s: %v %v %v", node.Name, node.Spec.Taints, node.Status.Conditions, node.Status.Allocatable)
	}
}

// gang makes a job of so many pods with eight cards each: a node for each.
func gang(t *testing.T, ns, name string, nodes int32, runFor string) (*batchv1.Job, *kueue.Workload) {
	t.Helper()
	job := sandbox.Job(ns, name, "main", nodes, "8")
	job.Spec.Template.Annotations[sandbox.RunFor] = runFor
	sandbox.Eventually(t, "job "+name+" can be made", func(ctx context.Context) error { return cluster.Create(ctx, job) }) // not while nobody serves webhooks
	return job, cluster.WorkloadOf(t, job)
}

// TestKarpenter: the real one makes the nodes of workloads, and a ledger has every machine that it buys.
func TestKarpenter(t *testing.T) {
	if os.Getenv(folderVariable) == "" {
		t.Fatal("it needs operators that were built: run 'make test-operators'")
	}
	objects, err := crds.Karpenter()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if err := cluster.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("test"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
	}
	class := &unstructured.Unstructured{}
	class.SetAPIVersion("karpenter.kwok.sh/v1alpha1")
	class.SetKind("KWOKNodeClass")
	class.SetName("default")
	sandbox.Eventually(t, "the class can be made", func(ctx context.Context) error { return client.IgnoreAlreadyExists(cluster.Create(ctx, class)) })
	t.Run("next place", nextPlace)
	t.Run("gang of eight", gangOfEight)
	t.Run("price changes", priceChanges)
	t.Run("idle", idleMachines)
	t.Run("back to spot", movesToSpot)
	t.Run("killed", killedWhileBuying)
}

// With one machine left at the cheapest place a gang of two has its machines at the next after one failed try, and gives that one
// back: none is bought there once one was refused. The next workload does not try it, a lost node takes its workload
// elsewhere, and all machines end with their workloads.
func nextPlace(t *testing.T) {
	m := market(t.TempDir())
	m.soldOut(t, "a/spot/1")
	karpenter(t, m)
	ns := buying(t, "64")
	job, wl := gang(t, ns, "first", 2, "forever")
	wait(t, wl, kueue.WorkloadPodsReady)
	for _, pod := range waitPods(t, ns, 2) {
		node := &corev1.Node{}
		if err := cluster.Get(t.Context(), client.ObjectKey{Name: pod.Spec.NodeName}, node); err != nil {
			t.Fatal(err)
		}
		if node.Labels[cloud.PurchaseLabel] != string(wl.UID)+"-2" || node.Labels[corev1.LabelTopologyZone] != "b" {
			t.Errorf("pod %s is on %s: %v", pod.Name, node.Name, node.Labels)
		}
	}
	second, other := gang(t, ns, "second", 2, "forever")
	wait(t, other, kueue.WorkloadPodsReady)
	var there []string
	for _, e := range m.ledger(t) {
		if e.Zone == "a" && e.Event != "ended" {
			there = append(there, e.Event)
		}
		if e.Zone == "a" && e.Workload != string(wl.UID) {
			t.Errorf("zone a is sold out, and is asked again: %+v", e)
		}
	}
	if want := []string{"bought", "refused"}; !slices.Equal(there, want) {
		t.Errorf("in zone a machines were %v, want %v", there, want)
	}
	sandbox.Eventually(t, "the machine without the other of its gang has ended", func(context.Context) error {
		if open := m.open(t); len(open) != 4 {
			return fmt.Errorf("machines are %v", open)
		}
		return nil
	})

	// A machine is taken away: providers delete its NodeClaim.
	m.soldOut(t, "")
	if err := cluster.Delete(t.Context(), second, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	list := &machines.NodeClaimList{}
	sandbox.Eventually(t, "it has the NodeClaims of one try", func(ctx context.Context) error { // which end after their machines
		if err := cluster.List(ctx, list, client.MatchingLabels{"elasticai.io/workload-uid": string(wl.UID)}); err != nil || len(list.Items) != 2 {
			return fmt.Errorf("it has %d, %w", len(list.Items), err)
		}
		return nil
	})
	if err := cluster.Delete(t.Context(), &list.Items[0]); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "it runs on other nodes", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := cluster.List(ctx, pods, client.InNamespace(ns)); err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil || slices.ContainsFunc(list.Items, func(n machines.NodeClaim) bool { return n.Name == pod.Spec.NodeName }) {
				return fmt.Errorf("pod %s is %s on %s", pod.Name, pod.Status.Phase, pod.Spec.NodeName)
			}
		}
		if len(pods.Items) != 2 {
			return fmt.Errorf("there are %d pods", len(pods.Items))
		}
		return nil
	})
	if err := cluster.Delete(t.Context(), job, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	m.waitEnded(t)
}

// Machines go to the next job: four jobs, one after the other, and as many machines as the largest needs. They end when the
// CloudOffer says so.
func idleMachines(t *testing.T) {
	m := market(t.TempDir())
	karpenter(t, m)
	ns := buying(t, "64")
	keepIdle(t, ns, "1h")
	for i, nodes := range []int32{2, 2, 3, 1} {
		_, wl := gang(t, ns, fmt.Sprintf("job-%d", i), nodes, "0s")
		wait(t, wl, kueue.WorkloadFinished)
		sandbox.Eventually(t, "its machines are idle", func(ctx context.Context) error {
			list := &machines.NodeClaimList{}
			if err := cluster.List(ctx, list, client.MatchingLabels{"elasticai.io/workload-uid": string(wl.UID)}); err != nil {
				return err
			}
			for _, n := range list.Items {
				if !bytes.Contains([]byte(n.Annotations["elasticai.io/purchase"]), []byte(`"idle":`)) {
					return fmt.Errorf("%s is not: %v", n.Name, n.Annotations)
				}
			}
			return nil
		})
	}
	bought := 0
	for _, e := range m.ledger(t) {
		if e.Event == "bought" {
			bought++
		}
	}
	if bought != 3 {
		t.Errorf("%d machines were bought: %v", bought, m.ledger(t))
	}
	keepIdle(t, ns, "0s")
	m.waitEnded(t)
}

// keepIdle says for how long machines wait for the next job.
func keepIdle(t *testing.T, offer, long string) {
	t.Helper()
	change(t, offer, fmt.Sprintf(`{"spec":{"keepIdle":%q}}`, long))
}

// killedWhileBuying kills elastic-queue, Karpenter and the control plane, one or several at once, at random moments while jobs
// come and go and zones sell out. In the end every job has run, none was paid for twice, and no machine is paid for.
// KARPENTER_KILLS says at how many moments.
func killedWhileBuying(t *testing.T) {
	moments := 5
	if text := os.Getenv("KARPENTER_KILLS"); text != "" {
		var err error
		if moments, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	m := market(t.TempDir())
	k := &killer{market: m, end: karpenter(t, m), killed: map[string]int{}}
	ns := buying(t, "64")
	keepIdle(t, ns, "5s")
	var all []*kueue.Workload
	nodes := map[string]int{}
	for i := range moments {
		m.soldOut(t, []string{"", "a"}[random.IntN(2)])
		size := 1 + random.Int32N(3)
		job, wl := gang(t, ns, fmt.Sprintf("job-%d", i), size, "0s")
		nodes[string(wl.UID)] = int(size)
		if random.IntN(4) == 0 {
			sandbox.Eventually(t, "the job can be deleted", func(ctx context.Context) error {
				return client.IgnoreNotFound(cluster.Delete(ctx, job, client.PropagationPolicy("Background")))
			})
		} else {
			all = append(all, wl)
			m.waitLines(t, wl, random.IntN(4))
		}
		k.kill(t, 1+random.IntN(7))
	}
	m.soldOut(t, "")
	for _, wl := range all {
		wait(t, wl, kueue.WorkloadFinished)
	}
	m.waitEnded(t)
	sandbox.Eventually(t, "no NodeClaim is left", func(ctx context.Context) error {
		list := &machines.NodeClaimList{}
		if err := cluster.List(ctx, list); err != nil || len(list.Items) > 0 {
			return fmt.Errorf("there are %d, %w", len(list.Items), err)
		}
		return nil
	})
	m.onceEach(t, nodes)
	t.Logf("%d moments, killed %v, %d lines in the ledger", moments, k.killed, len(m.ledger(t)))
}

// killer kills what makes nodes.
type killer struct {
	market
	end    func() // kills Karpenter
	killed map[string]int
}

// kill kills at once what the bits say: 1 is elastic-queue, 2 Karpenter, 4 the control plane. It waits until the control plane
// answers again, and starts Karpenter; elastic-queue is started by who started it.
func (k *killer) kill(t *testing.T, what int) {
	t.Helper()
	if what&1 != 0 {
		k.killed["queue"]++
		if err := syscall.Kill(cluster.Queue(t).PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	if what&2 != 0 {
		k.killed["karpenter"]++
		k.end()
	}
	if what&4 != 0 {
		k.killed["control plane"]++
		killControlPlane(t)
	}
	if what&2 != 0 {
		k.end = karpenter(t, k.market)
	}
}

// killControlPlane kills the API server, with etcd and the other parts of the control plane that are one process here, and
// waits until they answer again.
func killControlPlane(t *testing.T) {
	t.Helper()
	here := &local.Cluster{Dir: filepath.Join(cluster.Dir, "test")}
	was, err := here.State()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(was.SandboxPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "the control plane is there again", func(ctx context.Context) error {
		state, err := here.State()
		if err != nil || state.SandboxPID == was.SandboxPID {
			return fmt.Errorf("it is %d still, %w", state.SandboxPID, err)
		}
		return cluster.List(ctx, &corev1.NamespaceList{})
	})
}

// onceEach says that no workload had all its machines bought in two attempts.
func (m market) onceEach(t *testing.T, nodes map[string]int) {
	t.Helper()
	bought, whole := map[string]int{}, map[string][]string{}
	for _, e := range m.ledger(t) {
		if e.Event != "bought" {
			continue
		}
		attempt := e.Name[:strings.LastIndexByte(e.Name, '-')]
		if bought[attempt]++; bought[attempt] == nodes[e.Workload] {
			whole[e.Workload] = append(whole[e.Workload], attempt)
		}
	}
	for uid, attempts := range whole {
		if len(attempts) > 1 {
			t.Errorf("workload %s was paid for in %v", uid, attempts)
		}
	}
}

// waitLines waits until the ledger has so many lines of a workload, or the workload has finished: on machines that others left
// it has no lines.
func (m market) waitLines(t *testing.T, wl *kueue.Workload, lines int) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("the ledger has %d lines of %s", lines, wl.UID), func(ctx context.Context) error {
		n := 0
		for _, e := range m.ledger(t) {
			if e.Workload == string(wl.UID) {
				n++
			}
		}
		if n >= lines {
			return nil
		}
		now := &kueue.Workload{}
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), now); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(now.Status.Conditions, kueue.WorkloadFinished) {
			return fmt.Errorf("it has %d", n)
		}
		return nil
	})
}
