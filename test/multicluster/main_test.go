// Package multicluster tests a queue that sends jobs to other clusters: three
// clusters, elastic-queue in each, and between them connections that the tests
// can cut.
package multicluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// The manager takes jobs in, east and west run them.
var manager, east, west *sandbox.Cluster

// Lines by which the manager reaches them.
var toEast, toWest *line

type nested func() int

func (n nested) Run() int { return n() }

func TestMain(m *testing.M) {
	cardsAlone := func(cfg *v1alpha1.QueueConfiguration) {
		cfg.Resources.ExcludeResourcePrefixes = []string{"cpu", "memory"}
	}
	clouds := []func(*runtime.Scheme) error{cloud.AddToScheme}
	worker := sandbox.Options{Nodes: "1x4:H100-80G", Scheme: clouds, Queue: cardsAlone}
	managing := sandbox.Options{Nodes: "1x1:H100-80G", Scheme: clouds, Queue: func(cfg *v1alpha1.QueueConfiguration) {
		cardsAlone(cfg)
		cfg.MultiKueue = v1alpha1.MultiKueue{
			GCInterval: &metav1.Duration{Duration: 2 * time.Second},
		}
	}}
	test := nested(func() int {
		err := install(context.Background(), "pytorchjobs.kubeflow.org", "jobsets.jobset.x-k8s.io", "rayservices.ray.io", "leaderworkersets.leaderworkerset.x-k8s.io")
		if err == nil {
			err = connect(context.Background())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "preparing the clusters:", err)
			return 1
		}
		return m.Run()
	})
	withManager := nested(func() int { return sandbox.Run(test, &manager, managing) })
	withWest := nested(func() int { return sandbox.Run(withManager, &west, worker) })
	os.Exit(sandbox.Run(withWest, &east, worker))
}

// connect gives the manager a way into the workers, with the rights that the
// sample has.
func connect(ctx context.Context) error {
	for _, worker := range []struct {
		name    string
		cluster *sandbox.Cluster
		line    **line
	}{{"east", east, &toEast}, {"west", west, &toWest}} {
		l, err := newLine(worker.cluster.REST.Host)
		if err != nil {
			return err
		}
		*worker.line = l
		text, err := kubeconfig(ctx, worker.cluster, l.address())
		if err != nil {
			return err
		}
		if err := manager.Create(ctx, secret(worker.name, text)); err != nil {
			return err
		}
		if err := manager.Create(ctx, clusterBySecret(worker.name, worker.name)); err != nil {
			return err
		}
	}
	return nil
}

func secret(name string, kubeconfig []byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "elastic-queue", Name: name}, Data: map[string][]byte{"kubeconfig": kubeconfig}}
}

func clusterBySecret(name, secret string) *kueue.MultiKueueCluster {
	return &kueue.MultiKueueCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: kueue.MultiKueueClusterSpec{ClusterSource: kueue.ClusterSource{
			KubeConfig: &kueue.KubeConfig{Location: secret, LocationType: kueue.SecretLocationType},
		}},
	}
}

// kubeconfig of the sample's account in a worker.
func kubeconfig(ctx context.Context, worker *sandbox.Cluster, server string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(sandbox.Root(), "deploy/samples/other-clusters/worker.yaml"))
	if err != nil {
		return nil, err
	}
	objects, err := deploy.Decode(data)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		if err := worker.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "elastic-queue", Name: "multikueue"}}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(3600))}}
	if err := worker.SubResource("token").Create(ctx, account, token); err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["worker"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: worker.REST.CAData}
	config.AuthInfos["manager"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["worker"] = &clientcmdapi.Context{Cluster: "worker", AuthInfo: "manager"}
	config.CurrentContext = "worker"
	return clientcmd.Write(*config)
}

// arena makes a namespace with a queue "main" in all clusters, of so many cards
// in each worker, and returns its name. The manager's sends jobs to the clusters.
func arena(t *testing.T, cardsEast, cardsWest string, clusters ...string) string {
	t.Helper()
	ns := manager.Namespace(t)
	for worker, cards := range map[*sandbox.Cluster]string{east: cardsEast, west: cardsWest} {
		worker.Make(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, sandbox.Flavor(ns, nil),
			sandbox.ClusterQueue(ns, ns, cards), sandbox.LocalQueue(ns, "main", ns))
	}
	here := sandbox.ClusterQueue(ns, ns, "16")
	here.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(ns)}}}
	manager.Make(t,
		&kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: kueue.MultiKueueConfigSpec{Clusters: clusters}},
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: kueue.AdmissionCheckSpec{
			ControllerName: kueue.MultiKueueControllerName,
			Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: "kueue.x-k8s.io", Kind: "MultiKueueConfig", Name: ns},
		}},
		sandbox.Flavor(ns, nil), here, sandbox.LocalQueue(ns, "main", ns))
	return ns
}

func forever(job *batchv1.Job) *batchv1.Job {
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	return job
}

// wait until a check of an object as it is now passes.
func wait[T client.Object](t *testing.T, c client.Client, obj T, what string, check func(T) error) T {
	t.Helper()
	now := obj.DeepCopyObject().(T)
	sandbox.Eventually(t, fmt.Sprintf("%s of %s", what, obj.GetName()), func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(obj), now); err != nil {
			return err
		}
		return check(now)
	})
	return now
}

func condition(t *testing.T, c client.Client, wl *kueue.Workload, name string, want metav1.ConditionStatus) *kueue.Workload {
	t.Helper()
	return wait(t, c, wl, name+"="+string(want), func(wl *kueue.Workload) error {
		if now := apimeta.FindStatusCondition(wl.Status.Conditions, name); now == nil || now.Status != want {
			return fmt.Errorf("status is %+v", wl.Status)
		}
		return nil
	})
}

// runsIn waits until a cluster runs the workload's job.
func runsIn(t *testing.T, wl *kueue.Workload, cluster string) *kueue.Workload {
	t.Helper()
	return wait(t, manager, wl, "running in "+cluster, func(wl *kueue.Workload) error {
		if ptr.Deref(wl.Status.ClusterName, "") != cluster || !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadPodsReady) {
			return fmt.Errorf("status is %+v", wl.Status)
		}
		return nil
	})
}

// gone waits until a cluster has nothing of the kinds in a namespace.
func gone(t *testing.T, c client.Client, ns string, lists ...client.ObjectList) {
	t.Helper()
	sandbox.Eventually(t, "nothing left in "+ns, func(ctx context.Context) error {
		var errs []error
		for _, list := range lists {
			errs = append(errs, c.List(ctx, list, client.InNamespace(ns)))
			if n := apimeta.LenList(list); n > 0 {
				errs = append(errs, fmt.Errorf("%d of %T", n, list))
			}
		}
		return errors.Join(errs...)
	})
}

// cleared waits until the workers have no trace of a namespace's jobs.
func cleared(t *testing.T, ns string) {
	t.Helper()
	for _, worker := range []*sandbox.Cluster{east, west} {
		gone(t, worker, ns, &kueue.WorkloadList{}, &batchv1.JobList{}, &corev1.PodList{})
	}
}

func patch(t *testing.T, c client.Client, obj client.Object, text string) {
	t.Helper()
	if err := c.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
		t.Fatal(err)
	}
}
