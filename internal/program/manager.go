package program

import (
	"cmp"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
)

// Manager makes the controller-runtime manager of a program: its metrics and
// health endpoints are served, and leader election runs on a client of its own
// so that a busy program cannot starve its lease. What a leader writes ends with its lease. Of the options for metrics those
// of TLS count; the rest is in the configuration.
func (e Env) Manager(options manager.Options, election v1alpha1.LeaderElection) (manager.Manager, error) {
	options.Logger = e.Log
	options.Metrics = metricsServer(e.Common.Metrics, options.Metrics.TLSOpts...)
	options.HealthProbeBindAddress = e.Common.Health.BindAddress
	options.LivenessEndpointName = e.Common.Health.LivenessPath
	options.ReadinessEndpointName = e.Common.Health.ReadinessPath
	options.PprofBindAddress = e.Common.Pprof.BindAddress
	if election.Enabled != nil && *election.Enabled {
		lock, err := e.lock(election)
		if err != nil {
			return nil, fmt.Errorf("setting up leader election: %w", err)
		}
		options.LeaderElection = true
		options.LeaderElectionID = e.LeaseName(election)
		options.LeaderElectionResourceLockInterface = lock
		options.LeaseDuration = &election.LeaseDuration.Duration
		options.RenewDeadline = &election.RenewDeadline.Duration
		options.RetryPeriod = &election.RetryPeriod.Duration
		options.LeaderElectionReleaseOnCancel = true
	}
	mgr, err := ctrl.NewManager(e.REST, options)
	if err != nil {
		return nil, fmt.Errorf("setting up: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	return mgr, nil
}

// LeaseName is the lease by which replicas choose a leader.
func (e Env) LeaseName(election v1alpha1.LeaderElection) string {
	return cmp.Or(election.Name, e.Name+"."+v1alpha1.Group)
}

// lock is that lease. Its own requests are not fenced.
func (e Env) lock(election v1alpha1.LeaderElection) (resourcelock.Interface, error) {
	config := rest.AddUserAgent(rest.CopyConfig(e.unfenced), "leader-election")
	identity := e.Identity
	if identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		identity = host + "_" + string(uuid.NewUUID())
	}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, election.Namespace, e.LeaseName(election),
		resourcelock.ResourceLockConfig{Identity: identity}, config, election.RenewDeadline.Duration)
	if err != nil {
		return nil, err
	}
	return e.Fence.Lock(lock), nil
}
