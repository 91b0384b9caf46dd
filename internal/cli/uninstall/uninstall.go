// Package uninstall removes Elastic from a cluster. Queues, Workloads and jobs stay unless their
// deletion is asked for, and no object is left that waits for a program that is gone.
//
// Words: docs/design/glossary.md.
package uninstall

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// Command is "elastic uninstall".
func Command() *cobra.Command {
	flags := &cluster.Flags{}
	var dryRun, everything bool
	cmd := &cobra.Command{
		Use: "uninstall", Short: "Take Elastic out of the cluster; jobs go on running",
		Long: `Takes Elastic's programs, roles and webhooks out of the cluster. Running jobs go
on running, suspended ones stay suspended, pods with an admission gate stay
gated. Queues, Workloads and their CRDs stay, without finalizers, so that they
can be deleted, or be there for the next installation; with --crds they go, too.
Without --dry-run=false it only says what would happen.`,
		Example: "  elastic uninstall\n  elastic uninstall --dry-run=false",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			if flags.Namespace == "" {
				c.Namespace = home
			}
			r := &remover{Client: c, out: cmd.OutOrStdout(), dryRun: dryRun}
			return r.run(cmd.Context(), everything)
		},
	}
	flags.AddTo(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", true, "only say what would happen")
	cmd.Flags().BoolVar(&everything, "crds", false, "also delete the CRDs, and with them all queues, Workloads and GPU objects")
	return cmd
}

// home is the namespace of the manifests.
const home = "elastic-queue"

type remover struct {
	*cluster.Client
	out    io.Writer
	dryRun bool
}

// parts are the folders of the programs' manifests.
var parts = []string{"queue", "gpu-scheduler", "scheduler", "gpu-agent", "gpu-agent-dra", "gpu-remote", "web", "web-proxy", "web-history"}

// run deletes what the API server calls first, then the programs, then the finalizers they would
// have removed, and their roles last.
func (r *remover) run(ctx context.Context, everything bool) error {
	var first, last []*unstructured.Unstructured
	for _, part := range parts {
		objects, err := deploy.Program(part)
		if err != nil {
			return err
		}
		for _, object := range objects {
			if object.GetNamespace() == home {
				object.SetNamespace(r.Namespace)
			}
			switch object.GetKind() {
			case "Namespace":
			case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "APIService",
				"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
				first = append(first, object)
			default:
				last = append(last, object)
			}
		}
	}
	for _, kindName := range []string{
		"Deployment/elastic-queue-controller-manager", "Deployment/elastic-gpu-scheduler", "Deployment/elastic-scheduler", "DaemonSet/elastic-gpu-agent", "Deployment/elastic-web",
	} {
		kind, name, _ := strings.Cut(kindName, "/")
		first = append(first, object("apps/v1", kind, r.Namespace, name))
	}
	for _, name := range []string{"elastic-queue-configuration", "elastic-gpu-scheduler-configuration", "elastic-scheduler-configuration", "elastic-gpu-agent-configuration", "elastic-web-configuration"} {
		last = append(last, object("v1", "ConfigMap", r.Namespace, name))
	}
	for _, name := range []string{"elastic-queue", "elastic-gpu-scheduler"} {
		last = append(last, object("policy/v1", "PodDisruptionBudget", r.Namespace, name))
	}
	last = append(last, object("v1", "Service", r.Namespace, "elastic-web"), object("networking.k8s.io/v1", "NetworkPolicy", r.Namespace, "elastic-web"))
	if err := r.remove(ctx, first); err != nil {
		return err
	}
	crds, err := deploy.CRDs()
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := r.release(ctx, crd); err != nil {
			return err
		}
	}
	if err := r.releasePods(ctx); err != nil {
		return err
	}
	if everything {
		last = append(last, crds...)
	}
	return r.remove(ctx, last)
}

func object(version, kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(version)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func (r *remover) remove(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, u := range objects {
		options := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationForeground)}
		if r.dryRun {
			options = append(options, client.DryRunAll)
		}
		err := r.Delete(ctx, u, options...)
		if apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("deleting %s %s: %w", u.GetKind(), u.GetName(), err)
		}
		r.say("%s/%s deleted", strings.ToLower(u.GetKind()), u.GetName())
	}
	return nil
}

func (r *remover) say(format string, args ...any) {
	if r.dryRun {
		format += " (dry run)"
	}
	fmt.Fprintf(r.out, format+"\n", args...)
}

// release makes the objects of a CRD independent of our programs: none converts them, and none has
// to remove a finalizer.
func (r *remover) release(ctx context.Context, crd *unstructured.Unstructured) error {
	current := &unstructured.Unstructured{}
	current.SetGroupVersionKind(crd.GroupVersionKind())
	if err := r.Get(ctx, client.ObjectKeyFromObject(crd), current); err != nil {
		return client.IgnoreNotFound(err)
	}
	if strategy, _, _ := unstructured.NestedString(current.Object, "spec", "conversion", "strategy"); strategy == "Webhook" {
		patch := []byte(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)
		if err := r.patch(ctx, current, patch); err != nil {
			return err
		}
		r.say("%s no longer converted", crd.GetName())
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(stored(crd))
	if err := r.List(ctx, list); err != nil {
		return fmt.Errorf("reading %s: %w", crd.GetName(), err)
	}
	return r.releaseAll(ctx, list.Items)
}

// stored is the kind of a CRD in the version that needs no conversion.
func stored(crd *unstructured.Unstructured) schema.GroupVersionKind {
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	gvk := schema.GroupVersionKind{Group: group, Kind: kind}
	for _, v := range versions {
		if version := v.(map[string]any); version["storage"] == true {
			gvk.Version = fmt.Sprint(version["name"])
		}
	}
	return gvk
}

func (r *remover) releasePods(ctx context.Context) error {
	pods := &unstructured.UnstructuredList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	if err := r.List(ctx, pods, client.MatchingLabels{kinds.ManagedLabel: "true"}); err != nil {
		return err
	}
	return r.releaseAll(ctx, pods.Items)
}

// ours: one of our programs removes this finalizer.
func ours(finalizer string) bool {
	group, _, _ := strings.Cut(finalizer, "/")
	return group == "kueue.x-k8s.io" || group == "elasticgpu.io" || group == "elasticai.io"
}

func (r *remover) releaseAll(ctx context.Context, items []unstructured.Unstructured) error {
	released := 0
	for i := range items {
		u := &items[i]
		others := slices.DeleteFunc(slices.Clone(u.GetFinalizers()), ours)
		if len(others) == len(u.GetFinalizers()) {
			continue
		}
		before := u.DeepCopy()
		u.SetFinalizers(others)
		patch, err := client.MergeFrom(before).Data(u)
		if err != nil {
			return err
		}
		if err := r.patch(ctx, u, patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing the finalizer of %s %s: %w", u.GetKind(), u.GetName(), err)
		}
		released++
	}
	if released > 0 {
		r.say("%d finalizers of %s taken off", released, items[0].GetKind())
	}
	return nil
}

// patch writes nothing in a dry run: webhooks that would be deleted by then may still refuse it. An
// API server calls a webhook for a moment after it was deleted, so what fails because of that is
// tried again.
func (r *remover) patch(ctx context.Context, u *unstructured.Unstructured, patch []byte) error {
	if r.dryRun {
		return nil
	}
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1.5, Steps: 15, Cap: 5 * time.Second}
	return retry.OnError(backoff, asksWebhooks, func() error {
		return r.Patch(ctx, u, client.RawPatch(types.MergePatchType, patch))
	})
}

func asksWebhooks(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}
