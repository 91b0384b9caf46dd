package simulate

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/controller-runtime/pkg/client"

	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// kinds of objects that describe a cluster, by kind.
var kinds = map[string]func() client.Object{
	"ClusterQueue":   func() client.Object { return &kueue.ClusterQueue{} },
	"LocalQueue":     func() client.Object { return &kueue.LocalQueue{} },
	"Cohort":         func() client.Object { return &kueue.Cohort{} },
	"ResourceFlavor": func() client.Object { return &kueue.ResourceFlavor{} },
	"Topology":       func() client.Object { return &kueue.Topology{} },
	"QueuePolicy":    func() client.Object { return &queuepolicy.QueuePolicy{} },
	"BudgetAccount":  func() client.Object { return &queuepolicy.BudgetAccount{} },
	"Node":           func() client.Object { return &corev1.Node{} },
	"Workload":       func() client.Object { return &kueue.Workload{} },
	"Pod":            func() client.Object { return &corev1.Pod{} },
}

// readManifests reads objects from YAML files; those of other kinds are no part of a cluster.
func (in *inputs) readManifests(context.Context) ([]client.Object, []byte, error) {
	var out []client.Object
	for _, path := range in.manifests {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for number := 1; ; number++ {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err == nil {
				out, err = decode(document, out)
			}
			if err != nil {
				return nil, nil, fmt.Errorf("%s: document %d: %w", path, number, err)
			}
		}
	}
	return out, nil, nil
}

func decode(document []byte, into []client.Object) ([]client.Object, error) {
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(document, &head); err != nil {
		return into, err
	}
	empty, known := kinds[head.Kind]
	if !known {
		return into, nil
	}
	obj := empty()
	want := kueue.SchemeGroupVersion.String()
	switch head.Kind {
	case "Node", "Pod":
		want = "v1"
	case "QueuePolicy", "BudgetAccount":
		want = queuepolicy.GroupVersion.String()
	}
	if head.APIVersion != want {
		return into, fmt.Errorf("%s of %s: want %s", head.Kind, head.APIVersion, want)
	}
	if err := yaml.UnmarshalStrict(document, obj); err != nil {
		return into, fmt.Errorf("%s: %w", head.Kind, err)
	}
	if node, is := obj.(*corev1.Node); is && len(node.Status.Conditions) == 0 { // written by hand: a kubelet says whether it is ready
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}
	return append(into, obj), nil
}

// readCluster reads objects from the API server, and elastic-queue's configuration, if it is there.
func (in *inputs) readCluster(ctx context.Context) ([]client.Object, []byte, error) {
	c, err := in.from.Connect()
	if err != nil {
		return nil, nil, err
	}
	lists := []client.ObjectList{
		&kueue.ClusterQueueList{}, &kueue.LocalQueueList{}, &kueue.CohortList{}, &kueue.ResourceFlavorList{}, &kueue.TopologyList{}, &corev1.NodeList{}, &queuepolicy.QueuePolicyList{},
	}
	if !in.empty {
		lists = append(lists, &kueue.WorkloadList{}, &corev1.PodList{}, &queuepolicy.BudgetAccountList{})
	}
	var out []client.Object
	for _, list := range lists {
		switch err := c.List(ctx, list); {
		case apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err): // a cluster need not know every kind
			continue
		case err != nil:
			return nil, nil, err
		}
		items, err := apimeta.ExtractList(list)
		if err != nil {
			return nil, nil, err
		}
		for _, item := range items {
			if obj, ok := item.(client.Object); ok {
				out = append(out, obj)
			}
		}
	}
	return out, configurationOf(ctx, c), nil
}

// configurationOf is elastic-queue's configuration as the chart installs it; nil where it cannot be read.
func configurationOf(ctx context.Context, c client.Client) []byte {
	var maps corev1.ConfigMapList
	if err := c.List(ctx, &maps, client.MatchingFields{"metadata.name": "elastic-queue-configuration"}); err != nil || len(maps.Items) != 1 {
		return nil
	}
	return []byte(maps.Items[0].Data["queue.yaml"])
}
