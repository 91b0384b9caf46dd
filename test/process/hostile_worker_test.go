package process

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/test/sandbox"
)

// Worker clusters are other people's. Whatever they answer, the manager's memory has a bound, others' jobs are
// decided as ever, and a worker is believed about the jobs alone that it was sent, as they were sent.
func TestHostileWorkers(t *testing.T) {
	const most = 1 << 20 // KiB; the chart's limit is twice that
	for _, name := range []string{"local", "elsewhere", "changed"} {
		queue(t, name)
	}
	workers := map[string]*worker{
		"endless": {list: func(w io.Writer) { // one answer without end
			_, _ = io.WriteString(w, `{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"WorkloadList","metadata":{"resourceVersion":"1"},"items":[`)
			for piece := ourWorkload("a", "b") + ","; ; {
				if _, err := io.WriteString(w, piece); err != nil {
					return
				}
			}
		}},
		"crowd": {objects: func(show func(string) bool) { // of one UID
			for i := 0; i < 100_000 && show(ourWorkload("local", fmt.Sprintf("w%d", i))); i++ {
			}
		}},
		"giants": {objects: func(show func(string) bool) {
			giant := strings.Repeat("x", 1<<20)
			for i := 0; i < 5_000 && show(ourWorkload("local", fmt.Sprintf("w%d", i), giant)); i++ {
			}
		}},
		"slow":   {list: func(w io.Writer) { <-w.(*answering).over }},
		"silent": {},
		"liar":   {},
	}
	// The liar has finished what it never got, and admitted what it made larger.
	workers["liar"].objects = func(show func(string) bool) {
		for _, ns := range []string{"local", "elsewhere", "changed"} {
			show(claimed(t, ns))
		}
	}
	secrets := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kueue-system"}} // elastic-queue's own, not yet there
	if err := api.Create(t.Context(), secrets); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	for name, w := range workers {
		w.serve(t, name)
	}
	sendTo(t, "elsewhere", "silent")
	sendTo(t, "changed", "liar")
	p := launch(t) // it knows the queues' checks before there is any workload
	p.scrape(t, `replica_role="leader"`)
	wls := map[string]*kueue.Workload{}
	for _, ns := range []string{"elsewhere", "changed", "local"} {
		wls[ns] = submit(t, ns)
	}

	for name, why := range map[string]string{"endless": "128 MiB", "crowd": "more of our objects", "giants": "more of our objects", "slow": ""} {
		cluster := &kueue.MultiKueueCluster{}
		sandbox.Eventually(t, name+" is left alone", func(ctx context.Context) error {
			if err := api.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
				return err
			}
			active := apimeta.FindStatusCondition(cluster.Status.Conditions, kueue.MultiKueueClusterActive)
			if active == nil || active.Status != metav1.ConditionFalse || !strings.Contains(active.Message, why) {
				return fmt.Errorf("conditions are %+v", cluster.Status.Conditions)
			}
			return nil
		})
	}
	sandbox.Eventually(t, "what the liar made up is deleted there", func(context.Context) error {
		if deleted := workers["liar"].deletions(); len(deleted) < 2 { // "local" sends nothing anywhere
			return fmt.Errorf("it was asked to delete %v", deleted)
		}
		return nil
	})
	sandbox.Eventually(t, "a job of this cluster is admitted", func(ctx context.Context) error {
		wl := wls["local"]
		if err := api.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) {
			return fmt.Errorf("conditions are %+v", wl.Status.Conditions)
		}
		return nil
	})
	for ns, wl := range wls {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil {
			t.Fatal(err)
		}
		if apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished) || len(wl.Status.ReclaimablePods) > 0 || wl.Status.ClusterName != nil {
			t.Errorf("the workload of %s believes the liar: %+v", ns, wl.Status)
		}
		if ns != "local" && apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) {
			t.Errorf("the workload of %s is admitted, which no worker of its own has done: %+v", ns, wl.Status)
		}
	}
	if said, err := os.Stat(p.log); err != nil || said.Size() > 1<<20 {
		t.Errorf("the manager logs what it is sent: %+v, %v", said, err)
	}
	peak := peakKiB(t, p.cmd.Process.Pid)
	t.Logf("the manager had at most %d MiB", peak>>10)
	if peak > most {
		t.Errorf("the manager had %d MiB, more than %d", peak>>10, most>>10)
	}
}

// ourWorkload in JSON, as a cluster shows it.
func ourWorkload(namespace, name string, more ...string) string {
	return fmt.Sprintf(`{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{"namespace":%q,"name":%q,"uid":"1","resourceVersion":"1",`+
		`"labels":{%q:"multikueue"},"annotations":{"more":%q}},"spec":{"podSets":[]}}`, namespace, name, kueue.MultiKueueOriginLabel, strings.Join(more, ""))
}

// claimed is a copy of a workload that was finished, or admitted although it is larger than what was sent.
func claimed(t *testing.T, namespace string) string {
	wl := &kueue.Workload{TypeMeta: metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Workload"}}
	wl.Namespace, wl.Name, wl.UID, wl.ResourceVersion = namespace, "wl", types.UID(namespace), "1"
	wl.Labels = map[string]string{kueue.MultiKueueOriginLabel: "multikueue"}
	wl.Spec.QueueName = "main"
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1000, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "mine"}}}}}}
	wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}}
	claims := []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted}
	if namespace != "changed" {
		claims = append(claims, kueue.WorkloadFinished)
	}
	for _, name := range claims {
		wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: "Claimed", LastTransitionTime: metav1.Now()})
	}
	data, err := json.Marshal(wl)
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

// sendTo has a queue's workloads run by a cluster.
func sendTo(t *testing.T, queue, cluster string) {
	t.Helper()
	config := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: queue}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{cluster}}}
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: queue}, Spec: kueue.AdmissionCheckSpec{
		ControllerName: kueue.MultiKueueControllerName,
		Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group, Kind: "MultiKueueConfig", Name: queue},
	}}
	for _, object := range []client.Object{config, check} {
		if err := api.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	sandbox.Eventually(t, "the queue has the check", func(ctx context.Context) error {
		cq := &kueue.ClusterQueue{}
		if err := api.Get(ctx, client.ObjectKey{Name: queue}, cq); err != nil {
			return err
		}
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(queue)}}}
		return api.Update(ctx, cq)
	})
}

// worker is a cluster that answers what a test wants.
type worker struct {
	list    func(io.Writer)              // answers lists; nil: an empty one
	objects func(show func(string) bool) // are shown to a watch; nil: none

	mu      sync.Mutex
	deleted []string
}

func (w *worker) deletions() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(w.deleted)))
}

// serve it, and tell the manager of it.
func (w *worker) serve(t *testing.T, name string) {
	t.Helper()
	server := httptest.NewTLSServer(w)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	file := clientcmdapi.NewConfig()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	file.Clusters["worker"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: ca}
	file.AuthInfos["manager"] = &clientcmdapi.AuthInfo{Token: "token"}
	file.Contexts["worker"] = &clientcmdapi.Context{Cluster: "worker", AuthInfo: "manager"}
	file.CurrentContext = "worker"
	text, err := clientcmd.Write(*file)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: name}, Data: map[string][]byte{"kubeconfig": text}},
		&kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.MultiKueueClusterSpec{ClusterSource: kueue.ClusterSource{
			KubeConfig: &kueue.KubeConfig{Location: name, LocationType: kueue.SecretLocationType},
		}}},
	} {
		if err := api.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.Delete(context.Background(), object) })
	}
}

// answering is the way back of an answer, and when nobody waits for it any more.
type answering struct {
	http.ResponseWriter
	over <-chan struct{}
}

// ServeHTTP implements http.Handler: as much of the API as the manager asks for.
func (w *worker) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	to.Header().Set("Content-Type", "application/json")
	const group = `{"name":"kueue.x-k8s.io","versions":[{"groupVersion":"kueue.x-k8s.io/v1beta2","version":"v1beta2"}],"preferredVersion":{"groupVersion":"kueue.x-k8s.io/v1beta2","version":"v1beta2"}}`
	switch {
	case r.Method == http.MethodDelete:
		w.mu.Lock()
		w.deleted = append(w.deleted, r.URL.Path)
		w.mu.Unlock()
		_, _ = io.WriteString(to, `{"apiVersion":"v1","kind":"Status","status":"Success"}`)
	case r.Method != http.MethodGet:
		to.WriteHeader(http.StatusForbidden)
	case r.URL.Path == "/api":
		_, _ = io.WriteString(to, `{"kind":"APIVersions","versions":["v1"]}`)
	case r.URL.Path == "/apis":
		_, _ = io.WriteString(to, `{"kind":"APIGroupList","apiVersion":"v1","groups":[`+group+`]}`)
	case r.URL.Path == "/apis/kueue.x-k8s.io/v1beta2":
		_, _ = io.WriteString(to, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"kueue.x-k8s.io/v1beta2","resources":[{"name":"workloads","singularName":"workload","namespaced":true,"kind":"Workload","verbs":["get","list","watch","delete","create","patch"]}]}`)
	case !strings.HasSuffix(r.URL.Path, "/workloads"):
		to.WriteHeader(http.StatusNotFound)
	case r.URL.Query().Get("watch") == "true":
		w.watch(to, r)
	case w.list != nil:
		w.list(&answering{to, r.Context().Done()})
	default:
		_, _ = io.WriteString(to, `{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"WorkloadList","metadata":{"resourceVersion":"1"},"items":[]}`)
	}
}

// watch shows the objects, and then nothing any more.
func (w *worker) watch(to http.ResponseWriter, r *http.Request) {
	out := bufio.NewWriterSize(to, 1<<20)
	if w.objects != nil {
		w.objects(func(object string) bool {
			_, err := fmt.Fprintf(out, `{"type":"ADDED","object":%s}`+"\n", object)
			return err == nil
		})
	}
	_, _ = out.WriteString(`{"type":"BOOKMARK","object":{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{"resourceVersion":"2","annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n")
	_ = out.Flush()
	to.(http.Flusher).Flush()
	<-r.Context().Done()
}

// peakKiB is the most memory that a process has had.
func peakKiB(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, is := strings.CutPrefix(line, "VmHWM:"); is {
			kib, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kib
		}
	}
	t.Fatal("the kernel does not say")
	return 0
}
