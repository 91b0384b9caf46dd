package controllers

import (
	"context"
	"time"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/approver"
	"k8s.io/kubernetes/pkg/controller/certificates/cleaner"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/endpoint"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/endpointslicemirroring"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/replication"
	"k8s.io/kubernetes/pkg/controller/resourceclaim"
	"k8s.io/kubernetes/pkg/controller/scheduling/podgroupprotection"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/servicecidrs"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"
	"k8s.io/kubernetes/pkg/controller/volume/ephemeral"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
	"k8s.io/kubernetes/pkg/controller/volume/pvprotection"
	"k8s.io/kubernetes/pkg/features"
)

// entry is a controller by the name that kube-controller-manager has for it.
type entry struct {
	name    string
	account string // its service account in kube-system; empty: it makes its clients itself
	workers int
	gates   gates // it runs where all of them are on
	make    func(*env) (runner, error)
}

type gates []featuregate.Feature

// runner runs until its context ends, with so many workers.
type runner interface{ Run(context.Context, int) }

// table has workers and periods as kube-controller-manager has them by default, but for the grace of nodes.
var table = []entry{
	{name: "serviceaccount-token-controller", workers: 5, make: newTokens},
	{name: "serviceaccount-controller", account: "service-account-controller", workers: 1, make: func(e *env) (runner, error) {
		return serviceaccount.NewServiceAccountsController(klog.FromContext(e.ctx), e.core().ServiceAccounts(),
			e.core().Namespaces(), e.client, serviceaccount.DefaultServiceAccountsControllerOptions())
	}},
	{name: "root-ca-certificate-publisher-controller", account: "root-ca-cert-publisher", workers: 1, make: func(e *env) (runner, error) {
		return rootcacertpublisher.NewPublisher(e.core().ConfigMaps(), e.core().Namespaces(), e.client, e.ca)
	}},
	{name: "namespace-controller", workers: 10, make: newNamespaces},
	{name: "garbage-collector-controller", make: newGarbageCollector},
	{name: "clusterrole-aggregation-controller", account: "clusterrole-aggregation-controller", workers: 5, make: func(e *env) (runner, error) {
		return clusterroleaggregation.NewClusterRoleAggregation(e.informers.Rbac().V1().ClusterRoles(), e.client.RbacV1()), nil
	}},
	{name: "certificatesigningrequest-signing-controller", account: "certificate-controller", workers: 5, make: newSigners},
	{name: "certificatesigningrequest-approving-controller", account: "certificate-controller", workers: 5, make: func(e *env) (runner, error) {
		return approver.NewCSRApprovingController(e.ctx, e.client, e.informers.Certificates().V1().CertificateSigningRequests()), nil
	}},
	{name: "certificatesigningrequest-cleaner-controller", account: "certificate-controller", workers: 1, make: func(e *env) (runner, error) {
		return cleaner.NewCSRCleanerController(e.client.CertificatesV1().CertificateSigningRequests(), e.informers.Certificates().V1().CertificateSigningRequests()), nil
	}},
	{name: "validatingadmissionpolicy-status-controller", account: "validatingadmissionpolicy-status-controller", workers: 5, make: newPolicyStatus},

	{name: "job-controller", account: "job-controller", workers: 5, make: newJobs},
	{name: "cronjob-controller", account: "cronjob-controller", workers: 5, make: func(e *env) (runner, error) {
		return cronjob.NewControllerV2(e.ctx, e.informers.Batch().V1().Jobs(), e.informers.Batch().V1().CronJobs(), e.client)
	}},
	{name: "ttl-after-finished-controller", account: "ttl-after-finished-controller", workers: 5, make: func(e *env) (runner, error) {
		return ttlafterfinished.New(e.ctx, e.informers.Batch().V1().Jobs(), e.client), nil
	}},
	{name: "deployment-controller", account: "deployment-controller", workers: 5, make: func(e *env) (runner, error) {
		return deployment.NewDeploymentController(e.ctx, e.apps().Deployments(), e.apps().ReplicaSets(), e.core().Pods(), e.client)
	}},
	{name: "replicaset-controller", account: "replicaset-controller", workers: 5, make: func(e *env) (runner, error) {
		return replicaset.NewReplicaSetController(e.ctx, e.apps().ReplicaSets(), e.core().Pods(), e.client, replicaset.BurstReplicas), nil
	}},
	{name: "replicationcontroller-controller", account: "replication-controller", workers: 5, make: func(e *env) (runner, error) {
		return replication.NewReplicationManager(e.ctx, e.core().Pods(), e.core().ReplicationControllers(), e.client, replication.BurstReplicas), nil
	}},
	{name: "statefulset-controller", account: "statefulset-controller", workers: 5, make: func(e *env) (runner, error) {
		return statefulset.NewStatefulSetController(e.ctx, e.core().Pods(), e.apps().StatefulSets(),
			e.core().PersistentVolumeClaims(), e.apps().ControllerRevisions(), e.client), nil
	}},
	{name: "daemonset-controller", account: "daemon-set-controller", workers: 2, make: func(e *env) (runner, error) {
		return daemon.NewDaemonSetsController(e.ctx, e.apps().DaemonSets(), e.apps().ControllerRevisions(),
			e.core().Pods(), e.core().Nodes(), e.client, flowcontrol.NewBackOff(time.Second, 15*time.Minute))
	}},
	{name: "disruption-controller", workers: 1, make: newDisruption},
	{name: "resourcequota-controller", make: newQuota},

	{name: "endpoints-controller", account: "endpoint-controller", workers: 5, make: func(e *env) (runner, error) {
		return endpoint.NewEndpointController(e.ctx, e.core().Pods(), e.core().Services(), e.core().Endpoints(), e.client, 0), nil
	}},
	{name: "endpointslice-controller", account: "endpointslice-controller", workers: 5, make: func(e *env) (runner, error) {
		return endpointslice.NewController(e.ctx, e.core().Pods(), e.core().Services(), e.core().Nodes(), e.informers.Discovery().V1().EndpointSlices(), 100, e.client, 0), nil
	}},
	{name: "endpointslice-mirroring-controller", account: "endpointslicemirroring-controller", workers: 5, make: func(e *env) (runner, error) {
		return endpointslicemirroring.NewController(e.ctx, e.core().Endpoints(), e.informers.Discovery().V1().EndpointSlices(), e.core().Services(), 1000, e.client, 0), nil
	}},
	{name: "service-cidr-controller", account: "service-cidrs-controller", workers: 5, gates: gates{features.MultiCIDRServiceAllocator}, make: func(e *env) (runner, error) {
		return servicecidrs.NewController(e.ctx, e.informers.Networking().V1().ServiceCIDRs(), e.informers.Networking().V1().IPAddresses(), e.client), nil
	}},

	{name: "node-lifecycle-controller", account: "node-controller", make: newNodeLifecycle},
	{name: "taint-eviction-controller", account: "node-controller", gates: gates{features.SeparateTaintEvictionController}, make: func(e *env) (runner, error) {
		t, err := tainteviction.New(e.ctx, e.client, e.core().Pods(), e.core().Nodes(), "taint-eviction-controller")
		return loop(func(ctx context.Context) { t.Run(ctx) }), err
	}},
	{name: "pod-garbage-collector-controller", account: "pod-garbage-collector", make: newPodGarbageCollector},
	{name: "resourceclaim-controller", account: "resource-claim-controller", workers: 50, gates: gates{features.DynamicResourceAllocation}, make: func(e *env) (runner, error) {
		return resourceclaim.NewController(klog.FromContext(e.ctx), e.client, e.core().Pods(), e.informers.Scheduling().V1beta1().PodGroups(),
			e.informers.Resource().V1().ResourceClaims(), e.informers.Resource().V1().ResourceClaimTemplates())
	}},
	{name: "device-taint-eviction-controller", account: "device-taint-eviction-controller", gates: gates{features.DynamicResourceAllocation, features.DRADeviceTaints}, make: newDeviceTaintEviction},
	{name: "podgroup-protection-controller", account: "podgroup-protection-controller", workers: 1, gates: gates{features.GenericWorkload}, make: func(e *env) (runner, error) {
		return podgroupprotection.NewPodGroupProtectionController(klog.FromContext(e.ctx), e.informers.Scheduling().V1beta1().PodGroups(), e.core().Pods(), e.client)
	}},

	{name: "persistentvolume-binder-controller", account: "persistent-volume-binder", make: newVolumeBinder},
	{name: "ephemeral-volume-controller", account: "ephemeral-volume-controller", workers: 5, make: func(e *env) (runner, error) {
		return ephemeral.NewController(e.ctx, e.client, e.core().Pods(), e.core().PersistentVolumeClaims())
	}},
	{name: "persistentvolumeclaim-protection-controller", account: "pvc-protection-controller", workers: 1, make: func(e *env) (runner, error) {
		return pvcprotection.NewPVCProtectionController(klog.FromContext(e.ctx), e.core().PersistentVolumeClaims(), e.core().Pods(), e.client)
	}},
	{name: "persistentvolume-protection-controller", account: "pv-protection-controller", workers: 1, make: func(e *env) (runner, error) {
		return pvprotection.NewPVProtectionController(klog.FromContext(e.ctx), e.core().PersistentVolumes(), e.client)
	}},
}
