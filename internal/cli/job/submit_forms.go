package job

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// form is a kind of job that submit writes from flags. A new kind is a row of this table.
type form struct {
	names []string // as users type it; the first is its main name
	kind  string   // the row of kinds.Table that queues it
	short string

	apiVersion, object string
	// container is the name the kind's operator looks for.
	container string
	roles     []role
	// flags that only this kind has.
	flags func(s *submission, f *flagSet)
	// spec writes the job's spec from the flags and the roles' pods.
	spec func(s *submission, f *form) map[string]any
}

// role is a group of equal pods.
type role struct {
	name string // as the kind's spec calls it
	// prefix of the role's flags, as in --ps-cpu; a role without one has --cpu,
	// --memory and --gpus.
	prefix string
	count  func(s *submission) int
	// gpus: --gpus without a prefix applies to it.
	gpus bool
	// idle pods wait for others to use them, and do not run the command.
	idle    bool
	restart string
}

func one(*submission) int            { return 1 }
func workers(s *submission) int      { return s.workers }
func otherWorkers(s *submission) int { return s.workers - 1 }

// alone: one worker and no parameter server need no distribution; the only pod is then the chief,
// as in arena.
func alone(s *submission) bool { return s.workers == 1 && s.ps == 0 }

var forms = []form{
	{
		names: []string{"tfjob", "tf"}, kind: "kubeflow.org/tfjob", short: "TensorFlow, with the Kubeflow training operator",
		apiVersion: "kubeflow.org/v1", object: "TFJob", container: "tensorflow",
		roles: []role{
			{name: "Chief", prefix: "chief", gpus: true, restart: "Never", count: func(s *submission) int {
				return boolCount(s.chief || alone(s))
			}},
			{name: "PS", prefix: "ps", restart: "Never", count: func(s *submission) int { return s.ps }},
			{name: "Worker", prefix: "worker", gpus: true, restart: "Never", count: func(s *submission) int {
				if alone(s) {
					return 0
				}
				return s.workers
			}},
			{name: "Evaluator", prefix: "evaluator", restart: "Never", count: func(s *submission) int { return boolCount(s.evaluator) }},
		},
		flags: func(s *submission, f *flagSet) {
			f.IntVar(&s.ps, "ps", 0, "number of parameter servers")
			f.BoolVar(&s.chief, "chief", false, "with a chief")
			f.BoolVar(&s.evaluator, "evaluator", false, "with an evaluator")
			f.StringVar(&s.successPolicy, "success-policy", "", "when the job has succeeded: ChiefWorker or AllWorkers")
			runPolicyFlags(s, f)
		},
		spec: func(s *submission, f *form) map[string]any {
			spec := s.replicated(f, "tfReplicaSpecs")
			if s.successPolicy == "AllWorkers" {
				spec["successPolicy"] = s.successPolicy
			}
			return spec
		},
	},
	{
		names: []string{"pytorchjob", "pytorch", "py"}, kind: "kubeflow.org/pytorchjob", short: "PyTorch, with the Kubeflow training operator",
		apiVersion: "kubeflow.org/v1", object: "PyTorchJob", container: "pytorch",
		roles: []role{
			{name: "Master", gpus: true, restart: "Never", count: one},
			{name: "Worker", gpus: true, restart: "OnFailure", count: otherWorkers},
		},
		flags: func(s *submission, f *flagSet) {
			f.StringVar(&s.nprocPerNode, "nproc-per-node", "", "processes per pod: a number, auto, cpu or gpu")
			runPolicyFlags(s, f)
		},
		spec: func(s *submission, f *form) map[string]any {
			spec := s.replicated(f, "pytorchReplicaSpecs")
			if s.nprocPerNode != "" {
				spec["nprocPerNode"] = s.nprocPerNode
			}
			return spec
		},
	},
	{
		names: []string{"mpijob", "mpi"}, kind: "kubeflow.org/mpijob", short: "MPI, with the Kubeflow MPI operator",
		apiVersion: "kubeflow.org/v2beta1", object: "MPIJob", container: "mpi",
		roles: mpiRoles, flags: runPolicyFlags, spec: mpiSpec,
	},
	{
		names: []string{"horovodjob", "horovod", "hj"}, kind: "kubeflow.org/mpijob", short: "Horovod, as an MPIJob",
		apiVersion: "kubeflow.org/v2beta1", object: "MPIJob", container: "mpi",
		roles: mpiRoles, flags: runPolicyFlags, spec: mpiSpec,
	},
	{
		names: []string{"deepspeedjob", "deepspeed", "dp"}, kind: "kubeflow.org/mpijob", short: "DeepSpeed, as an MPIJob",
		apiVersion: "kubeflow.org/v2beta1", object: "MPIJob", container: "mpi",
		roles: mpiRoles, flags: runPolicyFlags, spec: mpiSpec,
	},
	{
		names: []string{"xgboostjob", "xgboost"}, kind: "kubeflow.org/xgboostjob", short: "XGBoost, with the Kubeflow training operator",
		apiVersion: "kubeflow.org/v1", object: "XGBoostJob", container: "xgboost",
		roles: []role{
			{name: "Master", gpus: true, restart: "Never", count: one},
			{name: "Worker", gpus: true, restart: "OnFailure", count: otherWorkers},
		},
		flags: runPolicyFlags,
		spec:  func(s *submission, f *form) map[string]any { return s.replicated(f, "xgbReplicaSpecs") },
	},
	{
		names: []string{"paddlejob", "paddle"}, kind: "kubeflow.org/paddlejob", short: "PaddlePaddle, with the Kubeflow training operator",
		apiVersion: "kubeflow.org/v1", object: "PaddleJob", container: "paddle",
		roles: []role{{name: "Worker", gpus: true, restart: "OnFailure", count: workers}},
		flags: runPolicyFlags,
		spec:  func(s *submission, f *form) map[string]any { return s.replicated(f, "paddleReplicaSpecs") },
	},
	{
		names: []string{"jaxjob", "jax"}, kind: "kubeflow.org/jaxjob", short: "JAX, with the Kubeflow training operator",
		apiVersion: "kubeflow.org/v1", object: "JAXJob", container: "jax",
		roles: []role{{name: "Worker", gpus: true, restart: "OnFailure", count: workers}},
		flags: runPolicyFlags,
		spec:  func(s *submission, f *form) map[string]any { return s.replicated(f, "jaxReplicaSpecs") },
	},
	{
		names: []string{"rayjob", "ray", "rj"}, kind: "ray.io/rayjob", short: "Ray, with KubeRay",
		apiVersion: "ray.io/v1", object: "RayJob", container: "ray",
		roles: []role{
			{name: "head", prefix: "head", idle: true, count: one},
			{name: "worker", prefix: "worker", gpus: true, idle: true, count: workers},
		},
		flags: func(s *submission, f *flagSet) {
			f.StringVar(&s.rayVersion, "ray-version", "", "version of Ray in the image")
			f.BoolVar(&s.shutdown, "shutdown-after-finished", true, "delete the Ray cluster when the job has ended")
			f.IntVar(&s.workers, "worker-replicas", 1, "the same as --workers")
		},
		spec: raySpec,
	},
	{
		names: []string{"sparkjob", "spark"}, kind: "sparkoperator.k8s.io/sparkapplication", short: "Spark, with the Kubeflow Spark operator",
		apiVersion: "sparkoperator.k8s.io/v1beta2", object: "SparkApplication",
		flags: func(s *submission, f *flagSet) {
			f.IntVar(&s.workers, "replicas", 1, "number of executors")
			f.StringVar(&s.mainClass, "main-class", "org.apache.spark.examples.SparkPi", "main class of the jar")
			f.StringVar(&s.jar, "jar", "local:///opt/spark/examples/jars/spark-examples_2.12-3.5.0.jar", "the jar, in the image or behind a URL")
			f.StringVar(&s.sparkVersion, "spark-version", "3.5.0", "version of Spark in the image")
			f.StringVar(&s.sparkAccount, "driver-service-account", "spark", "service account of the driver")
			f.IntVar(&s.driverCPU, "driver-cpu-request", 1, "cpus of the driver")
			f.StringVar(&s.driverMemory, "driver-memory-request", "500m", "memory of the driver, as Spark writes it")
			f.IntVar(&s.executorCPU, "executor-cpu-request", 1, "cpus of an executor")
			f.StringVar(&s.executorMemory, "executor-memory-request", "500m", "memory of an executor, as Spark writes it")
		},
		spec: sparkSpec,
	},
	{
		names: []string{"volcanojob", "vj"}, kind: "batch.volcano.sh/job", short: "a Volcano Job; each of its pods is queued by itself",
		apiVersion: "batch.volcano.sh/v1alpha1", object: "Job", container: "main",
		roles: []role{{name: "task", prefix: "task", gpus: true, restart: "Never", count: workers}},
		flags: func(s *submission, f *flagSet) {
			f.IntVar(&s.workers, "task-replicas", 1, "the same as --workers")
			f.IntVar(&s.minAvailable, "min-available", 1, "how many pods must be able to run")
			f.StringVar(&s.taskName, "task-name", "task", "name of the task")
			f.StringVar(&s.scheduler, "scheduler-name", "default-scheduler", "the scheduler; Elastic's GPU scheduler extends the default one")
		},
		spec: func(s *submission, f *form) map[string]any {
			return map[string]any{
				"schedulerName": s.scheduler, "minAvailable": int64(s.minAvailable),
				"tasks": []any{map[string]any{"name": s.taskName, "replicas": int64(s.workers), "template": s.template(f, &f.roles[0])}},
			}
		},
	},
	{
		names: []string{"etjob", "et"}, kind: "kai.alibabacloud.com/trainingjob", short: "elastic Horovod, with the et-operator; each of its pods is queued by itself",
		apiVersion: "kai.alibabacloud.com/v1alpha1", object: "TrainingJob", container: "et",
		roles: []role{
			{name: "launcher", restart: "Never", count: one},
			{name: "worker", gpus: true, idle: true, restart: "Never", count: workers},
		},
		flags: func(s *submission, f *flagSet) {
			f.IntVar(&s.minWorkers, "min-workers", 1, "fewest workers that scalein leaves")
			f.IntVar(&s.maxWorkers, "max-workers", 1000, "most workers that scaleout makes")
			f.StringVar(&s.cleanPolicy, "clean-task-policy", "Running", "which pods to delete when the job has ended: Running, None or All")
		},
		spec: etSpec,
	},
	{
		names: []string{"job", "batch"}, kind: "batch/job", short: "a Kubernetes Job; every pod runs the command",
		apiVersion: "batch/v1", object: "Job", container: "main",
		roles: []role{{name: "main", gpus: true, restart: "Never", count: workers}},
		spec: func(s *submission, f *form) map[string]any {
			spec := map[string]any{
				"parallelism": int64(s.workers), "completions": int64(s.workers),
				"template": s.template(f, &f.roles[0]), "podFailurePolicy": disruptionsIgnored(),
			}
			if s.workers > 1 {
				spec["completionMode"] = "Indexed"
			}
			if s.retry > 0 {
				spec["backoffLimit"] = int64(s.retry)
			} else {
				spec["backoffLimit"] = int64(0)
			}
			return spec
		},
	},
	{
		names: []string{"jobset"}, kind: "jobset.x-k8s.io/jobset", short: "a JobSet with one group of workers that know each other by name",
		apiVersion: "jobset.x-k8s.io/v1alpha2", object: "JobSet", container: "main",
		roles: []role{{name: "worker", gpus: true, restart: "Never", count: workers}},
		spec: func(s *submission, f *form) map[string]any {
			spec := map[string]any{"replicatedJobs": []any{map[string]any{"name": "worker", "replicas": int64(1), "template": map[string]any{
				"spec": map[string]any{
					"parallelism": int64(s.workers), "completions": int64(s.workers), "completionMode": "Indexed", "backoffLimit": int64(0),
					"template": s.template(f, &f.roles[0]),
				},
			}}}}
			if s.retry > 0 {
				spec["failurePolicy"] = map[string]any{"maxRestarts": int64(s.retry)}
			}
			return spec
		},
	},
}

// disruptionsIgnored is the policy by which a pod that was taken away from a Job (its node went down, was drained, or had to
// make way) is replaced, and does not count as a failure of the Job.
func disruptionsIgnored() map[string]any {
	return map[string]any{"rules": []any{map[string]any{
		"action": "Ignore", "onPodConditions": []any{map[string]any{"type": string(corev1.DisruptionTarget), "status": string(corev1.ConditionTrue)}},
	}}}
}

// formNamed finds a form by any of its names.
func formNamed(name string) *form {
	for i := range forms {
		if slices.Contains(forms[i].names, name) {
			return &forms[i]
		}
	}
	return nil
}

func boolCount(b bool) int {
	if b {
		return 1
	}
	return 0
}

var mpiRoles = []role{
	{name: "Launcher", restart: "Never", count: one},
	{name: "Worker", gpus: true, idle: true, restart: "Never", count: workers},
}

func mpiSpec(s *submission, f *form) map[string]any {
	spec := s.replicated(f, "mpiReplicaSpecs")
	spec["slotsPerWorker"] = int64(max(1, s.gpus))
	return spec
}

func etSpec(s *submission, f *form) map[string]any {
	worker := map[string]any{"replicas": int64(s.workers), "template": s.template(f, &f.roles[1])}
	worker["minReplicas"], worker["maxReplicas"] = int64(s.minWorkers), int64(s.maxWorkers)
	spec := map[string]any{"cleanPodPolicy": s.cleanPolicy, "etReplicaSpecs": map[string]any{
		"launcher": map[string]any{"replicas": int64(1), "template": s.template(f, &f.roles[0])}, "worker": worker,
	}}
	if s.retry > 0 {
		spec["backoffLimit"] = int64(s.retry)
	}
	return spec
}

func runPolicyFlags(s *submission, f *flagSet) {
	f.StringVar(&s.cleanPolicy, "clean-task-policy", "Running", "which pods to delete when the job has ended: Running, None or All")
	f.DurationVar(&s.activeDeadline, "running-timeout", 0, "end the job after so long")
	f.DurationVar(&s.ttl, "ttl-after-finished", 0, "delete the job so long after its end")
}

// replicated is the spec of the kinds that have their roles in a map.
func (s *submission) replicated(f *form, field string) map[string]any {
	groups := map[string]any{}
	for i := range f.roles {
		r := &f.roles[i]
		if n := r.count(s); n > 0 {
			groups[r.name] = map[string]any{"replicas": int64(n), "restartPolicy": r.restart, "template": s.template(f, r)}
		}
	}
	policy := map[string]any{}
	if s.cleanPolicy != "" {
		policy["cleanPodPolicy"] = s.cleanPolicy
	}
	if s.retry > 0 {
		policy["backoffLimit"] = int64(s.retry)
	}
	if s.activeDeadline > 0 {
		policy["activeDeadlineSeconds"] = int64(s.activeDeadline.Seconds())
	}
	if s.ttl > 0 {
		policy["ttlSecondsAfterFinished"] = int64(s.ttl.Seconds())
	}
	return map[string]any{"runPolicy": policy, field: groups}
}

func raySpec(s *submission, f *form) map[string]any {
	cluster := map[string]any{
		"headGroupSpec": map[string]any{"rayStartParams": map[string]any{}, "template": s.template(f, &f.roles[0])},
	}
	if s.rayVersion != "" {
		cluster["rayVersion"] = s.rayVersion
	}
	if s.workers > 0 {
		n := int64(s.workers)
		cluster["workerGroupSpecs"] = []any{map[string]any{
			"groupName": "workers", "replicas": n, "minReplicas": n, "maxReplicas": n,
			"rayStartParams": map[string]any{}, "template": s.template(f, &f.roles[1]),
		}}
	}
	spec := map[string]any{"entrypoint": s.command, "shutdownAfterJobFinishes": s.shutdown, "rayClusterSpec": cluster}
	if s.retry > 0 {
		spec["backoffLimit"] = int64(s.retry)
	}
	return spec
}

func sparkSpec(s *submission, _ *form) map[string]any {
	executor := map[string]any{"instances": int64(s.workers), "cores": int64(s.executorCPU), "memory": s.executorMemory}
	if s.gpus > 0 {
		executor["gpu"] = map[string]any{"name": "nvidia.com/gpu", "quantity": int64(s.gpus)}
	}
	spec := map[string]any{
		"type": "Scala", "mode": "cluster", "image": s.image, "sparkVersion": s.sparkVersion,
		"mainClass": s.mainClass, "mainApplicationFile": s.jar,
		"restartPolicy": map[string]any{"type": "Never"},
		"driver":        map[string]any{"cores": int64(s.driverCPU), "memory": s.driverMemory, "serviceAccount": s.sparkAccount},
		"executor":      executor,
	}
	if s.command != "" {
		spec["arguments"] = []any{s.command}
	}
	if s.retry > 0 {
		spec["restartPolicy"] = map[string]any{"type": "OnFailure", "onFailureRetries": int64(s.retry)}
	}
	return spec
}
