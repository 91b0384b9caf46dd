package main

import (
	"context"
	"slices"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/program"
)

// considerNodes decides whether to admit only what fits on the nodes there are, where the configuration does not say.
func considerNodes(ctx context.Context, env program.Env, cfg *v1alpha1.Placement) error {
	cluster, err := kubernetes.NewForConfig(env.REST)
	if err != nil {
		return err
	}
	cfg.Enabled = ptr.To(nodesCount(ctx, cluster, *cfg, env.Log))
	return nil
}

// nodesCount: where nodes are made when pods wait for them, a look at those there are would keep back the very jobs for
// which there should be more, so by default there is none then.
func nodesCount(ctx context.Context, cluster kubernetes.Interface, cfg v1alpha1.Placement, log logr.Logger) bool {
	if cfg.Enabled != nil && !*cfg.Enabled {
		return false
	}
	maker := makerOfNodes(ctx, cluster)
	switch {
	case maker == "":
		return true
	case cfg.Enabled == nil:
		log.Info("nodes are made on demand here, so quota alone decides, and nodes count for flavors with a topology; "+
			"set placement.enabled to true to admit only what fits on the nodes there are", "by", maker)
		return false
	}
	log.Info("warning: nodes are made on demand here, and placement.enabled is true: a job that fits only on nodes yet to be made "+
		"waits, unless its flavor has a check that makes them first; set placement.enabled to false otherwise", "by", maker)
	return true
}

// makerOfNodes names what makes nodes when pods wait for them; empty where nothing is known to.
func makerOfNodes(ctx context.Context, cluster kubernetes.Interface) string {
	groups, err := cluster.Discovery().ServerGroups()
	if err == nil && slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == "karpenter.sh" }) {
		return "Karpenter"
	}
	// It publishes how it is, wherever it runs.
	if _, err := cluster.CoreV1().ConfigMaps("kube-system").Get(ctx, "cluster-autoscaler-status", metav1.GetOptions{}); err == nil {
		return "cluster-autoscaler"
	}
	return ""
}
