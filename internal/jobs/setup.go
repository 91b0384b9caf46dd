package jobs

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/elastic-ai/elastic/api/jobs/v1alpha1"
)

// Options of the job controllers.
type Options struct {
	// ManageJobsWithoutQueueName also takes jobs that name no queue.
	ManageJobsWithoutQueueName bool
	// Namespaces, if set, limits all this to namespaces with such labels.
	Namespaces *metav1.LabelSelector
	// BuiltIn limits the built-in kinds to these names; empty takes all.
	BuiltIn []string
	// External are kinds, as "Kind.version.group", whose own controllers queue
	// them: what they make is not queued once more.
	External []string
	// Elsewhere hands jobs over whose queue sends them to other clusters, and
	// Foreign are kinds, as "Kind.version.group", that can be sent although their
	// own controllers queue them.
	Elsewhere bool
	Foreign   []string
	// Declared are kinds beside the built-in ones, by name. More come and go as
	// JobKind objects.
	Declared map[string]v1alpha1.JobKindSpec
	// CopyLabels are the keys of labels that a job's workload takes over.
	CopyLabels []string
	// NoQueueLabels leaves the queues' names off the pods.
	NoQueueLabels bool
	// ResizableGroups lets the groups of an object that is in a queue change in
	// size, although they were admitted with it.
	ResizableGroups bool
	// NoSliceLayers refuses jobs that ask for slices of slices in a topology.
	NoSliceLayers bool
	// RequeuePods has the workload of an evicted pod stand in line again although
	// it goes with that pod.
	RequeuePods bool
	// Queued is told the kind of a job and how old it was when its workload was
	// made; nil for nobody.
	Queued func(kind string, after time.Duration)
	// Concurrency is how many jobs are looked at at once, by "Kind.group".
	Concurrency map[string]int
}

// LeftOut says of a workload's owner that jobs of its kind are not queued here
// although they could be: nobody here minds that job's workload. Mistakes in the
// options are for Setup to find.
func (o Options) LeftOut() func(metav1.OwnerReference) bool {
	queued, err := parseKinds(o.External)
	builtIn, wrong := builtInKinds(o.BuiltIn)
	if err != nil || wrong != nil {
		return nil
	}
	mind := func(group, kind string, pods bool) {
		queued[schema.GroupKind{Group: group, Kind: kind}] = true
		if pods {
			queued[schema.GroupKind{Kind: "Pod"}] = true
		}
	}
	for _, kind := range builtIn {
		mind(kind.GVK.Group, kind.GVK.Kind, kind.Spec.Pods != nil)
	}
	for _, spec := range o.Declared {
		mind(spec.Group, spec.Kind, spec.Pods != nil)
	}
	leftOut := map[schema.GroupKind]bool{}
	for _, kind := range Table() {
		if gk := kind.GVK.GroupKind(); !queued[gk] {
			leftOut[gk] = true
		}
	}
	return func(owner metav1.OwnerReference) bool {
		return leftOut[schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()]
	}
}

// Indexes that find the workload of a job: by the job's UID while it is there,
// by its kind and name when it is gone.
const (
	ownerIndex     = "metadata.ownerReferences.uid"
	ownerNameIndex = "metadata.ownerReferences.name"
)

// Setup adds the controllers and the webhook to the manager, and returns how
// jobs are run elsewhere.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) (*Copies, error) {
	if err := indexOwners(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	namespaces := labels.Everything()
	if options.Namespaces != nil {
		var err error
		if namespaces, err = metav1.LabelSelectorAsSelector(options.Namespaces); err != nil {
			return nil, err
		}
	}
	podCache, err := newPodCache(ctx, mgr)
	if err != nil {
		return nil, err
	}
	external, err := parseKinds(options.External)
	if err != nil {
		return nil, err
	}
	foreign, err := foreignKinds(options.Foreign)
	if err != nil {
		return nil, err
	}
	inUse := &kinds{}
	where := &scope{
		cached: mgr.GetClient(), direct: mgr.GetAPIReader(), kinds: inUse,
		withoutQueueName: options.ManageJobsWithoutQueueName, namespaces: namespaces, external: external,
	}
	copies := &Copies{client: mgr.GetClient(), pods: podCache, kinds: inUse, foreign: foreign}
	common := &controller{
		client: mgr.GetClient(), pods: podCache, scope: where, now: time.Now, copies: copies, recorder: mgr.GetEventRecorder("elastic-queue-jobs"),
		copyLabels: options.CopyLabels, noQueueLabels: options.NoQueueLabels, noSliceLayers: options.NoSliceLayers, requeuePods: options.RequeuePods, queued: options.Queued,
	}
	r, err := newRegistry(mgr, inUse, common, podCache, options)
	if err != nil {
		return nil, err
	}
	guard := &guard{scope: where, kinds: inUse, loose: options.ResizableGroups}
	serve(mgr.GetWebhookServer(), &webhook.Admission{Handler: &holder{guard, options.Elsewhere, options.NoSliceLayers}}, &webhook.Admission{Handler: guard})
	return copies, r.setup(mgr)
}

// serve answers at our path for all kinds, and at Kueue's paths, which name the
// kind: where its webhooks are still configured, jobs are held back as ever.
// A new job that it would not let in is held back right or refused by the first.
func serve(server webhook.Server, hold, guard http.Handler) {
	server.Register(WebhookPath, hold)
	for _, kind := range Table() {
		name := strings.ReplaceAll(kind.GVK.Group, ".", "-") + "-" + kind.GVK.Version + "-" + strings.ToLower(kind.GVK.Kind)
		server.Register("/mutate-"+name, hold)
		server.Register("/validate-"+name, guard)
	}
}

// parseKinds reads kinds written as "Kind.version.group".
func parseKinds(names []string) (map[schema.GroupKind]bool, error) {
	kinds := make(map[schema.GroupKind]bool, len(names))
	for _, name := range names {
		gvk, _ := schema.ParseKindArg(name)
		if gvk == nil {
			return nil, fmt.Errorf("integrations.externalFrameworks: %q is not written as Kind.version.group", name)
		}
		kinds[gvk.GroupKind()] = true
	}
	return kinds, nil
}

// newPodCache watches the pods that wait or waited in a queue, and no others: a
// cluster has many.
func newPodCache(ctx context.Context, mgr ctrl.Manager) (cache.Cache, error) {
	waiting, err := labels.NewRequirement(ManagedLabel, selection.In, []string{"true", elasticPods, swapPods})
	if err != nil {
		return nil, err
	}
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultLabelSelector: labels.NewSelector().Add(*waiting),
	})
	if err != nil {
		return nil, err
	}
	err = c.IndexField(ctx, &corev1.Pod{}, groupIndex, func(obj client.Object) []string {
		if group := groupOf(obj); group != "" {
			return []string{group}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, mgr.Add(c)
}

func indexOwners(ctx context.Context, indexer client.FieldIndexer) error {
	for field, value := range map[string]func(*metav1.OwnerReference) string{
		ownerIndex: func(owner *metav1.OwnerReference) string { return string(owner.UID) },
		ownerNameIndex: func(owner *metav1.OwnerReference) string {
			return ownerKey(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind(), owner.Name)
		},
	} {
		err := indexer.IndexField(ctx, &kueue.Workload{}, field, func(obj client.Object) []string {
			if owner := metav1.GetControllerOf(obj); owner != nil {
				return []string{value(owner)}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func ownerKey(kind schema.GroupKind, name string) string { return kind.String() + "/" + name }
