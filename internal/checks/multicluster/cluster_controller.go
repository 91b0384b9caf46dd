package multicluster

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// rereadEvery is how often a kubeconfig in a file is read again.
const rereadEvery = 2 * time.Second

// clusters has a connection for every MultiKueueCluster.
type clusters struct {
	client  client.Client
	sources sources
	origin  string
	log     logr.Logger
	// lead ends when this replica no longer leads.
	lead context.Context
	end  context.CancelFunc
	// changed is called with the name of a cluster that was found or lost, seen with the workload
	// of which something changed in one.
	changed func(name string)
	seen    func(types.NamespacedName)
	// quotas is called when the quota of queues in one may be another; nil: nobody asks.
	quotas func()
	// fence is around the transports to clusters; nil: none.
	fence func(http.RoundTripper) http.RoundTripper

	mu    sync.Mutex
	known map[string]*connection
	// missing is since when clusters that were asked for are not known.
	missing map[string]time.Time
}

// mostObjects is how many objects of ours a cluster may have.
func (c *clusters) mostObjects() int {
	list := &kueue.WorkloadList{}
	if err := c.client.List(c.lead, list, client.UnsafeDisableDeepCopy); err != nil {
		return moreObjects
	}
	return objectsPerWorkload*len(list.Items) + moreObjects
}

// Reconcile connects to one cluster, and writes whether that succeeded.
func (c *clusters) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	cluster := &kueue.MultiKueueCluster{}
	err := c.client.Get(ctx, request.NamespacedName, cluster)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if err != nil || cluster.DeletionTimestamp != nil {
		c.forget(request.Name)
		return ctrl.Result{}, nil //nolint:nilerr // it was deleted
	}
	connection := c.connection(cluster.Name)
	config, text, reason, err := c.sources.config(ctx, cluster)
	result := ctrl.Result{}
	if source := cluster.Spec.ClusterSource.KubeConfig; source != nil && source.LocationType == kueue.PathLocationType {
		result.RequeueAfter = rereadEvery // files are not watched
	}
	if err != nil {
		connection.disconnect(err)
		if failed := c.publish(ctx, cluster, metav1.ConditionFalse, reason, "load client config failed: "+err.Error()); failed != nil {
			return ctrl.Result{}, failed
		}
		if result.RequeueAfter > 0 || reason != "BadKubeConfig" || apierrors.IsNotFound(err) {
			return result, nil // a change of the Secret or cluster requeues it
		}
		return ctrl.Result{}, err
	}
	connection.connect(c.lead, config, string(text))
	switch session, _, cause := connection.now(); {
	case session != nil:
		err = c.publish(ctx, cluster, metav1.ConditionTrue, "Active", "Connected")
	case cause != nil:
		err = c.publish(ctx, cluster, metav1.ConditionFalse, "ClientConnectionFailed", cause.Error())
	}
	return result, err
}

func (c *clusters) publish(ctx context.Context, cluster *kueue.MultiKueueCluster, status metav1.ConditionStatus, reason, message string) error {
	before := cluster.DeepCopy()
	if !apimeta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{
		Type: kueue.MultiKueueClusterActive, Status: status, Reason: reason, Message: message, ObservedGeneration: cluster.Generation,
	}) {
		return nil
	}
	return client.IgnoreNotFound(c.client.Status().Patch(ctx, cluster, client.MergeFrom(before)))
}

func (c *clusters) connection(name string) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.known[name]
	if known == nil {
		known = &connection{
			name: name, origin: c.origin, scheme: c.client.Scheme(), log: c.log, lost: time.Now(),
			changed: func() { c.changed(name) }, seen: c.seen, quotas: c.quotas, most: c.mostObjects, fence: c.fence,
		}
		if since, asked := c.missing[name]; asked {
			known.lost = since
			delete(c.missing, name)
		}
		c.known[name] = known
	}
	return known
}

// forget disconnects from a cluster that was deleted.
func (c *clusters) forget(name string) {
	c.mu.Lock()
	known := c.known[name]
	delete(c.known, name)
	c.mu.Unlock()
	if known != nil {
		known.disconnect(nil)
		c.changed(name)
	}
}

// at is the session with a cluster, or since when there is none.
func (c *clusters) at(name string) (*session, time.Time) {
	c.mu.Lock()
	known := c.known[name]
	if known == nil {
		if _, asked := c.missing[name]; !asked {
			c.missing[name] = time.Now()
		}
		since := c.missing[name]
		c.mu.Unlock()
		return nil, since
	}
	c.mu.Unlock()
	session, lost, _ := known.now()
	return session, lost
}

// sessions are all there are, by cluster.
func (c *clusters) sessions() map[string]*session {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]*session{}
	for name, known := range c.known {
		if session, _, _ := known.now(); session != nil {
			out[name] = session
		}
	}
	return out
}

// collectGarbage requeues, every so often, every workload of which something exists in another
// cluster: what does not belong to a workload here is removed.
func (c *clusters) collectGarbage(ctx context.Context, every time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
		for name, session := range c.sessions() {
			list := &kueue.WorkloadList{}
			if err := session.List(ctx, list); err != nil {
				c.log.Error(err, "listing the workloads of a cluster for garbage collection failed", "cluster", name)
				continue
			}
			for i := range list.Items {
				c.seen(client.ObjectKeyFromObject(&list.Items[i]))
			}
		}
	}
}

// usersOf are the clusters that an object in the namespace says how to reach.
func (c *clusters) usersOf(namespace string, reaches func(source kueue.ClusterSource, name string) bool) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		list := &kueue.MultiKueueClusterList{}
		if obj.GetNamespace() != namespace || c.client.List(ctx, list) != nil {
			return nil
		}
		var out []reconcile.Request
		for i := range list.Items {
			if reaches(list.Items[i].Spec.ClusterSource, obj.GetName()) {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
		return out
	})
}

func bySecret(source kueue.ClusterSource, name string) bool {
	file := source.KubeConfig
	return file != nil && file.LocationType != kueue.PathLocationType && file.Location == name
}

func byProfile(source kueue.ClusterSource, name string) bool {
	return source.ClusterProfileRef != nil && source.ClusterProfileRef.Name == name
}
