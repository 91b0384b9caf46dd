package program

import (
	"cmp"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
)

// Manager makes the controller-runtime manager of a program: its metrics and
// health endpoints are served, and leader election runs on a client of its own
// so that a busy program cannot starve its lease.
func (e Env) Manager(options manager.Options, election v1alpha1.LeaderElection) (manager.Manager, error) {
	options.Logger = e.Log
	options.Metrics = metricsServer(e.Common.Metrics)
	options.HealthProbeBindAddress = e.Common.Health.BindAddress
	options.LivenessEndpointName = e.Common.Health.LivenessPath
	options.ReadinessEndpointName = e.Common.Health.ReadinessPath
	options.PprofBindAddress = e.Common.Pprof.BindAddress
	if election.Enabled != nil && *election.Enabled {
		options.LeaderElection = true
		options.LeaderElectionID = e.LeaseName(election)
		options.LeaderElectionNamespace = election.Namespace
		options.LeaderElectionConfig = rest.CopyConfig(e.REST)
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

// Lock is that lease, for a program whose replicas need to know the leader: the lease names it by
// the identity given here.
func (e Env) Lock(election v1alpha1.LeaderElection, identity string) (resourcelock.Interface, error) {
	config := rest.AddUserAgent(rest.CopyConfig(e.REST), "leader-election")
	return resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, election.Namespace, e.LeaseName(election),
		resourcelock.ResourceLockConfig{Identity: identity}, config, election.RenewDeadline.Duration)
}
