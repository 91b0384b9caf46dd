package main

import (
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
)

func TestNodesThatAreMadeOnDemandAreNotWaitedFor(t *testing.T) {
	status := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cluster-autoscaler-status"}}
	for name, c := range map[string]struct {
		objects   []runtime.Object
		karpenter bool
		enabled   *bool
		want      bool
		said      bool
	}{
		"nodes are what they are":             {want: true},
		"and are not considered":              {enabled: ptr.To(false)},
		"cluster-autoscaler makes them":       {objects: []runtime.Object{status}, said: true},
		"Karpenter makes them":                {karpenter: true, said: true},
		"they are considered all the same":    {karpenter: true, enabled: ptr.To(true), want: true, said: true},
		"nobody asked, nobody has to be told": {objects: []runtime.Object{status}, enabled: ptr.To(false)},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := fake.NewClientset(c.objects...)
			if c.karpenter {
				cluster.Resources = append(cluster.Resources, &metav1.APIResourceList{GroupVersion: "karpenter.sh/v1"})
			}
			lines := 0
			log := funcr.New(func(string, string) { lines++ }, funcr.Options{})
			if got := nodesCount(t.Context(), cluster, v1alpha1.Placement{Enabled: c.enabled}, log); got != c.want || lines > 0 != c.said {
				t.Errorf("considered: %v, lines logged: %d", got, lines)
			}
		})
	}
}
