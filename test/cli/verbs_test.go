package cli

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/test/crds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// Arena's verbs beside the jobs themselves: crons, volumes, and the et-operator's
// scaling.
func TestArenaVerbs(t *testing.T) {
	ns := cluster.Namespace(t)
	queues(t, ns, "verbs", "8")
	volume(t, ns)
	session(t, ns, "verbs.txt")
}

// What other operators have to be there for is made as arena makes it. The
// operators are not there; that their kinds are served is all that is needed.
func TestArenaVerbsOfOtherOperators(t *testing.T) {
	ns := cluster.Namespace(t)
	serve(t, "apps.kubedl.io", "Cron")
	serve(t, "kai.alibabacloud.com", "TrainingJob")
	serve(t, "kai.alibabacloud.com", "ScaleIn")
	serve(t, "kai.alibabacloud.com", "ScaleOut")
	old := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	old.SetAPIVersion("kai.alibabacloud.com/v1alpha1")
	old.SetKind("TrainingJob")
	old.SetNamespace(ns)
	old.SetName("old")
	cluster.Make(t, old)
	session(t, ns, "verbs-others.txt")
}

// serve makes the API server take objects of another project's kind.
func serve(t *testing.T, group, kind string) {
	t.Helper()
	cluster.Make(t, crds.Unchecked(group, kind))
	sandbox.Eventually(t, kind+" is served", func(ctx context.Context) error {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(group + "/v1alpha1")
		list.SetKind(kind + "List")
		return cluster.List(ctx, list)
	})
}

// volume is a claim that is bound, and one that is not.
func volume(t *testing.T, ns string) {
	t.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadOnlyMany}
	none := ""
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "corpus-" + ns}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/corpus"}},
	}}
	claim := func(name, volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Annotations: map[string]string{"description": "text, 2026", "owner": "ann"}},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: modes, VolumeName: volume, StorageClassName: &none, Resources: corev1.VolumeResourceRequirements{Requests: size},
			},
		}
	}
	bound := claim("corpus", pv.Name)
	cluster.Make(t, pv, bound, claim("later", "nothing"))
	sandbox.Eventually(t, "the claim is bound", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(bound), bound); err != nil || bound.Status.Phase == corev1.ClaimBound {
			return err
		}
		return fmt.Errorf("it is %s", bound.Status.Phase)
	})
}
