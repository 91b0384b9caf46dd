package examples

import corev1 "k8s.io/api/core/v1"

// The examples, in the order of their paths. What is there is checked against
// Kueue's own tree, what is said here against a cluster.
var list = []example{
	// Beside Kueue's dashboard, in its Go module.
	{file: "cmd/kueueviz/examples/00-resource-flavor.yaml", want: applies},
	{file: "cmd/kueueviz/examples/01-cluster-queues.yaml", with: viz("00-resource-flavor"), want: ready},
	{file: "cmd/kueueviz/examples/01.5-cohorts.yaml", want: applies},
	{file: "cmd/kueueviz/examples/02-local-queues.yaml", with: viz("00-resource-flavor", "01-cluster-queues"), want: ready},
	{file: "cmd/kueueviz/examples/03-agi-job.yaml", with: vizQueues, want: admitted},
	{file: "cmd/kueueviz/examples/04-llm-job.yaml", with: vizQueues, want: admitted},
	{file: "cmd/kueueviz/examples/05-cancer-cure-research.yaml", with: vizQueues, want: admitted},
	{file: "cmd/kueueviz/examples/07-workload-priority-classes.yaml", want: applies},

	// On Kueue's web site.
	{file: "admin/concurrent-admission-setup.yaml", want: ready, note: "without the gate ConcurrentAdmission, which is off in Kueue too"},
	{file: "admin/minimal-cq.yaml", want: refused, note: "it names a check for a flavor it does not have"},
	{file: "admin/resource-flavor-empty.yaml", want: applies},
	{file: "admin/resource-flavor-taints.yaml", want: applies},
	{file: "admin/resource-flavor-tolerations.yaml", want: applies},
	{file: "admin/shared-quota-sample-job.yaml", with: site("admin/shared-quota-setup.yaml"), want: admitted},
	{file: "admin/shared-quota-setup.yaml", want: ready},
	{file: "admin/single-clusterqueue-setup.yaml", want: ready},
	{file: "admission-fs/admission-fair-sharing-setup.yaml", want: ready},
	{file: "admission-fs/lq-a-simple-job.yaml", with: site("admission-fs/admission-fair-sharing-setup.yaml"), want: admitted},
	{file: "admission-fs/lq-b-simple-job.yaml", with: site("admission-fs/admission-fair-sharing-setup.yaml"), want: admitted},
	{file: "appwrapper/deployment-sample.yaml", with: single, want: admitted},
	{file: "appwrapper/leaderworkerset-sample.yaml", with: single, want: admitted},
	{file: "appwrapper/pytorch-sample.yaml", with: single, want: admitted},
	{file: "dra/sample-dra-capacity-job.yaml", with: site("dra/sample-dra-capacity-queues.yaml"), setup: &capacities, want: admitted, uses: uses("gpu.memory", "4Gi"),
		note: "with 4Gi of gpu.memory, as its page configures it"},
	{file: "dra/sample-dra-capacity-queues.yaml", want: ready},
	{file: "dra/sample-dra-counter-job.yaml", with: site("dra/sample-dra-counter-queues.yaml"), setup: &counters, want: admitted, uses: uses("gpu.memory", "80Gi"),
		note: "with the 80Gi of gpu.memory that the largest device takes, as its page configures it"},
	{file: "dra/sample-dra-counter-queues.yaml", want: ready},
	{file: "dra/sample-dra-extended-resource-job.yaml", with: site("dra/sample-dra-queues.yaml"), want: admitted, uses: uses("example.com/gpu", "1")},
	{file: "dra/sample-dra-queues.yaml", want: ready},
	{file: "dra/sample-dra-rct-job.yaml", with: site("dra/sample-dra-queues.yaml"), want: admitted, uses: uses("example.com/gpu", "1")},
	{file: "getting-started/quick-start-job.yaml", with: site("getting-started/quick-start-setup.yaml"), want: admitted},
	{file: "getting-started/quick-start-setup.yaml", want: ready},
	{file: "jobs/ray-cluster-sample.yaml", with: single, want: admitted},
	{file: "jobs/ray-job-autoscaling-code-sample.yaml", want: applies},
	{file: "jobs/ray-job-autoscaling-sample.yaml", with: single, want: admitted},
	{file: "jobs/ray-job-code-sample.yaml", want: applies},
	{file: "jobs/ray-job-sample.yaml", with: single, want: admitted},
	{file: "jobs/ray-service-sample.yaml", with: single, want: applies, note: operator},
	{file: "jobs/sample-cronjob.yaml", with: single, want: applies, note: "each of its jobs is queued when its time comes"},
	{file: "jobs/sample-jaxjob.yaml", with: single, want: admitted},
	{file: "jobs/sample-job-partial-admission.yaml", with: single, want: admitted, note: "with 9 of 20 pods, for which there is quota"},
	{file: "jobs/sample-job.yaml", with: single, want: admitted},
	{file: "jobs/sample-jobset.yaml", with: single, want: admitted},
	{file: "jobs/sample-mpijob.yaml", with: single, want: admitted},
	{file: "jobs/sample-paddlejob.yaml", with: single, want: admitted},
	{file: "jobs/sample-pytorchjob.yaml", with: single, want: admitted},
	{file: "jobs/sample-scalable-job.yaml", with: single, want: admitted},
	{file: "jobs/sample-sparkapplication.yaml", with: single, want: admitted},
	{file: "jobs/sample-tfjob.yaml", with: single, want: admitted},
	{file: "jobs/sample-xgboostjob.yaml", with: single, want: refused, note: "by the XGBoostJob's CRD: a fraction of a core must be written as text"},
	{file: "multikueue/dev/manager-kind-config.yaml", want: elsewhere, note: "for kind"},
	{file: "multikueue/dev/sample-tas-job.yaml", with: site("multikueue/tas/worker-setup.yaml"), want: admitted},
	{file: "multikueue/dev/worker-kind-config.yaml", want: elsewhere, note: "for kind"},
	{file: "multikueue/multikueue-setup.yaml", want: ready, note: multi},
	{file: "multikueue/tas/manager-setup.yaml", want: ready, note: multi},
	{file: "multikueue/tas/worker-setup.yaml", want: ready},
	{file: "pod-based-workloads/sample-sandbox.yaml", want: elsewhere, note: "agent-sandbox; its pods are queued as pods"},
	{file: "pod-based-workloads/tekton-hello-task.yaml", want: elsewhere, note: "Tekton"},
	{file: "pod-based-workloads/tekton-pipeline-run.yaml", want: elsewhere, note: "Tekton; its pods are queued as pods"},
	{file: "pod-based-workloads/tekton-pipeline.yaml", want: elsewhere, note: "Tekton"},
	{file: "pod-based-workloads/tekton-sleep-task.yaml", want: elsewhere, note: "Tekton"},
	{file: "pod-based-workloads/workflow-queue-per-template.yaml", with: single, want: applies, note: "its pods are queued as pods"},
	{file: "pod-based-workloads/workflow-single-queue.yaml", with: single, want: applies, note: "its pods are queued as pods"},
	{file: "pods-kueue/kueue-pod-group.yaml", with: single, want: admitted},
	{file: "pods-kueue/kueue-pod.yaml", with: single, want: admitted},
	{file: "provisioning/provisioning-setup.yaml", want: ready, note: "where cluster-autoscaler's CRD is installed"},
	{file: "provisioning/sample-job.yaml", with: site("provisioning/provisioning-setup.yaml"), want: admitted, note: "when cluster-autoscaler says that its nodes are there"},
	{file: "sample-admission-check.yaml", want: applies},
	{file: "sample-enforce-requests-policy-binding.yaml", want: applies},
	{file: "sample-enforce-requests-policy.yaml", want: applies},
	{file: "sample-validating-policy-binding.yaml", want: applies},
	{file: "sample-validating-policy.yaml", want: applies},
	{file: "serving-workloads/sample-deployment.yaml", with: single, want: admitted},
	{file: "serving-workloads/sample-hami.yaml", want: waiting("Pending"), note: "until nodes offer nvidia.com/gpumem; where HAMi's scheduler counts it, set placement.enabled to false"},
	{file: "serving-workloads/sample-leaderworkerset-tas.yaml", with: site("tas/sample-gpu-queues.yaml"), want: applies, note: operator},
	{file: "serving-workloads/sample-leaderworkerset.yaml", with: single, want: applies, note: operator},
	{file: "serving-workloads/sample-statefulset.yaml", with: single, want: admitted},
	{file: "tas/kind-cluster.yaml", want: elsewhere, note: "for kind"},
	{file: "tas/sample-gpu-queues.yaml", want: ready},
	{file: "tas/sample-job-preferred.yaml", with: site("tas/sample-queues.yaml"), want: admitted},
	{file: "tas/sample-job-required.yaml", with: site("tas/sample-queues.yaml"), want: admitted},
	{file: "tas/sample-job-unconstrained.yaml", with: site("tas/sample-queues.yaml"), want: admitted},
	{file: "tas/sample-queues.yaml", want: ready},
	{file: "visibility/cluster-role-and-binding.yaml", want: applies},
	{file: "visibility/grafana-cluster-queue-reader.yaml", want: applies},
	{file: "visibility/grafana-local-queue-reader.yaml", want: applies},
}

const (
	operator = "its operator makes the pods, which then are queued; see docs/job-kinds.md"
	multi    = "once the Secrets have kubeconfigs; jobs then run in other clusters, see docs/other-clusters.md"
)

var (
	single    = site("admin/single-clusterqueue-setup.yaml")
	vizQueues = viz("00-resource-flavor", "01-cluster-queues", "01.5-cohorts", "02-local-queues", "07-workload-priority-classes")
)

func uses(name corev1.ResourceName, amount string) map[corev1.ResourceName]string {
	return map[corev1.ResourceName]string{name: amount}
}
