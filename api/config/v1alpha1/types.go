package v1alpha1

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsv1alpha1 "github.com/elastic-ai/elastic/api/jobs/v1alpha1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
)

// Group and Version are what a file's apiVersion says: "elasticai.io/v1alpha1".
const (
	Group   = "elasticai.io"
	Version = "v1alpha1"
)

// Common is what every program's file may set.
type Common struct {
	// Log says how much is logged and in which form.
	Log Log `json:"log,omitempty"`
	// Metrics is where /metrics is served; bindAddress "0" serves none.
	Metrics Metrics `json:"metrics,omitempty"`
	// Health is where /healthz and /readyz are served.
	Health Health `json:"health,omitempty"`
	// Pprof is where profiles are served; empty serves none.
	Pprof Endpoint `json:"pprof,omitempty"`
	// ClientConnection limits how fast the program talks to the API server.
	ClientConnection ClientConnection `json:"clientConnection,omitempty"`
}

// Shared gives the programs' scaffolding access to the common part of any file.
func (c *Common) Shared() *Common { return c }

// Log is the logging section.
type Log struct {
	// Level is debug, info, warn or error.
	Level string `json:"level,omitempty"`
	// Format is text or json.
	Format string `json:"format,omitempty"`
}

// Endpoint is an address to listen on.
type Endpoint struct {
	BindAddress string `json:"bindAddress,omitempty"`
}

// Metrics is an endpoint for Prometheus. On a loopback address it is plain HTTP; anywhere else it is
// served over TLS, to clients whose token may get /metrics.
type Metrics struct {
	Endpoint `json:",inline"`
	// Insecure serves plain HTTP to everyone, for what has its own protection in front.
	Insecure bool `json:"insecure,omitempty"`
	// CertDir has tls.crt and tls.key; without it, the certificate is self-signed.
	CertDir string `json:"certDir,omitempty"`
}

// Health is an endpoint for a kubelet's probes.
type Health struct {
	Endpoint `json:",inline"`
	// LivenessPath and ReadinessPath are /healthz and /readyz.
	LivenessPath  string `json:"livenessPath,omitempty"`
	ReadinessPath string `json:"readinessPath,omitempty"`
}

// ClientConnection is the client's rate limit, for each kind of object it
// writes; a negative qps switches it off.
type ClientConnection struct {
	QPS   float32 `json:"qps,omitempty"`
	Burst int     `json:"burst,omitempty"`
}

// LeaderElection makes one of several replicas active.
type LeaderElection struct {
	Enabled   *bool  `json:"enabled,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Name of the lease; empty takes the program's.
	Name          string          `json:"name,omitempty"`
	LeaseDuration metav1.Duration `json:"leaseDuration,omitempty"`
	RenewDeadline metav1.Duration `json:"renewDeadline,omitempty"`
	RetryPeriod   metav1.Duration `json:"retryPeriod,omitempty"`
}

// Webhook is where admission and conversion requests are served.
type Webhook struct {
	// Host to listen on; empty means every address.
	Host string `json:"host,omitempty"`
	Port int    `json:"port,omitempty"`
	// CertDir holds tls.crt, tls.key and ca.crt. They are created or renewed there, and the CA is
	// published to the API server.
	CertDir string `json:"certDir,omitempty"`
	// Namespace of the Secret; empty takes the lease's.
	Namespace string `json:"namespace,omitempty"`
	// DNSNames and IP addresses the certificate answers for.
	DNSNames []string `json:"dnsNames,omitempty"`
	// SecretName is where replicas share the certificate.
	SecretName string `json:"secretName,omitempty"`
	// ManageCertificate is true by default; false uses the files in CertDir as they are, and leaves
	// publishing the CA to whoever put them there.
	ManageCertificate *bool `json:"manageCertificate,omitempty"`
	// TLS limits versions and ciphers.
	TLS *kueueconfig.TLSOptions `json:"tls,omitempty"`
}

// Placement is whether admission considers nodes beside quota.
type Placement struct {
	// Enabled considers the nodes there are. Without it, nodes are considered only for flavors with a topology, as in
	// Kueue. By default it is true, unless Karpenter or cluster-autoscaler make nodes when pods wait for them.
	Enabled *bool `json:"enabled,omitempty"`
	// IgnoreAnnotatedPods does not count pods on their nodes that have a topology annotation and name no Workload, as Kueue
	// does: it takes them for pods of one that counts already. Anyone can write the annotation.
	IgnoreAnnotatedPods bool `json:"ignoreAnnotatedPods,omitempty"`
	// CountPodsAsAdmitted counts a pod in a topology with what its Workload was given for it, as Kueue does, rather than with
	// what the pod asks for.
	CountPodsAsAdmitted bool `json:"countPodsAsAdmitted,omitempty"`
	// MatchDomainsOnly does not ask which nodes a pod can be on in a topology that does not go down to hosts, as Kueue does:
	// taints, node selectors and affinity of the pod do not count there.
	MatchDomainsOnly bool `json:"matchDomainsOnly,omitempty"`
	// ReplaceNodesAnywhere sends the pods of a lost node to the fullest one that holds them, as Kueue does, though the
	// workload prefers that they are near the rest.
	ReplaceNodesAnywhere bool `json:"replaceNodesAnywhere,omitempty"`
}

// Resources is how what pods ask for counts against quota. The pods themselves
// are placed by what they ask for.
type Resources struct {
	// ExcludeResourcePrefixes leaves resources out that begin so.
	ExcludeResourcePrefixes []string `json:"excludeResourcePrefixes,omitempty"`
	// QuotaCheckStrategy is for workloads that ask for resources their ClusterQueue does not
	// declare: BlockUndeclared does not admit them, IgnoreUndeclared does not count those resources.
	QuotaCheckStrategy *kueueconfig.QuotaCheckStrategy `json:"quotaCheckStrategy,omitempty"`
	// Transformations count a resource as others.
	Transformations []kueueconfig.ResourceTransformation `json:"transformations,omitempty"`
	// DeviceClassMappings count devices that pods get by ResourceClaims.
	DeviceClassMappings []kueueconfig.DeviceClassMapping `json:"deviceClassMappings,omitempty"`
}

// CheapestDispatcher nominates clusters in the order of what a workload is expected to cost there, by their CloudOffers.
const CheapestDispatcher = "elasticai.io/cheapest"

// MultiKueue is how workloads are sent to other clusters.
type MultiKueue struct {
	// Origin marks what is ours in other clusters; default "multikueue". Managers
	// that share a cluster need one each.
	Origin string `json:"origin,omitempty"`
	// GCInterval is how often garbage is collected there; default 1m, 0: never.
	GCInterval *metav1.Duration `json:"gcInterval,omitempty"`
	// WorkerLostTimeout is how long a cluster may not answer before its workloads are sent to
	// another; default 15m.
	WorkerLostTimeout *metav1.Duration `json:"workerLostTimeout,omitempty"`
	// DispatcherName is the dispatcher that nominates clusters: one of Kueue's two, CheapestDispatcher, or one of another
	// controller's; default all at once.
	DispatcherName              string                                   `json:"dispatcherName,omitempty"`
	IncrementalDispatcherConfig *kueueconfig.IncrementalDispatcherConfig `json:"incrementalDispatcherConfig,omitempty"`
	// ExternalFrameworks are kinds with controllers that queue them, and can be sent.
	ExternalFrameworks []kueueconfig.MultiKueueExternalFramework `json:"externalFrameworks,omitempty"`
	// ClusterProfile is how clusters are reached that an inventory lists; with the gate MultiKueueClusterProfile.
	ClusterProfile ClusterProfile `json:"clusterProfile,omitempty"`
}

// ClusterProfile is how clusters of ClusterProfiles are reached.
type ClusterProfile struct {
	// AccessProviders are programs that get credentials, by the names that profiles give them; the first that a profile
	// has, too, is asked.
	AccessProviders []kueueconfig.ClusterProfileAccessProvider `json:"accessProviders,omitempty"`
}

// Visibility is where the API server finds the visibility API. It is served
// beside the webhooks in any case.
type Visibility struct {
	// Host to listen on; empty means every address.
	Host string `json:"host,omitempty"`
	// Port to serve it on as well; 0 for none.
	Port int `json:"port,omitempty"`
}

// QueueMetrics says which metrics of the queue exist beside the usual ones.
type QueueMetrics struct {
	// ClusterQueueResources adds quota and usage per flavor and resource.
	ClusterQueueResources bool `json:"clusterQueueResources,omitempty"`
	// LocalQueues are those with metrics of their own: all, or some by label.
	LocalQueues *kueueconfig.LocalQueueMetrics `json:"localQueues,omitempty"`
	// CustomLabels are labels and annotations of ClusterQueues, LocalQueues, cohorts and workloads that metrics
	// about them carry; with the gate CustomMetricLabels.
	CustomLabels []kueueconfig.ControllerMetricsCustomLabel `json:"customLabels,omitempty"`
}

// Controllers is how the job controllers work.
type Controllers struct {
	// Concurrency is how many jobs are reconciled at once, by kind and group as "Job.batch"; 8 for a
	// kind that is not named.
	Concurrency map[string]int `json:"concurrency,omitempty"`
	// ReportPodsReady says in the condition PodsReady of every Workload whether its pods are ready; absent
	// means yes. Where waitForPodsReady is set they are reported in any case, and with Kueue's file only there.
	ReportPodsReady *bool `json:"reportPodsReady,omitempty"`
	// CountSparkOverhead counts the memory overhead that Spark adds to a SparkApplication's pods, and a core for those that
	// name none: what they request. Absent, what the SparkApplication names counts alone, as in Kueue.
	CountSparkOverhead bool `json:"countSparkOverhead,omitempty"`
	// ReclaimKubeflowPods frees the quota of pods of Kubeflow's jobs that have succeeded while others run, as of a Job's.
	// Absent, they have it until the job ends, as in Kueue.
	ReclaimKubeflowPods bool `json:"reclaimKubeflowPods,omitempty"`
	// KeepSlicesUntilAdmitted ends the Workload of an elastic job when the larger one that replaces it is admitted. In Kueue
	// it ends when that one has its quota, and a check that then says no stops the job.
	KeepSlicesUntilAdmitted bool `json:"keepSlicesUntilAdmitted,omitempty"`
	// RecordSubmitters writes the name of the user who makes a job into its annotation elasticai.io/submitted-by, which nobody can
	// change, so that what was spent is known by user. Absent, nothing is written, as in Kueue.
	RecordSubmitters bool `json:"recordSubmitters,omitempty"`
	// CacheSyncTimeout is how long the informers may take to sync.
	CacheSyncTimeout *metav1.Duration `json:"cacheSyncTimeout,omitempty"`
}

// QueueConfiguration is the file of elastic-queue.
type QueueConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	Common          `json:",inline"`

	LeaderElection LeaderElection `json:"leaderElection,omitempty"`
	Webhook        Webhook        `json:"webhook,omitempty"`
	// Writers is how many status writes may be under way at once.
	Writers int `json:"writers,omitempty"`
	// Placement asks, before a workload is admitted, whether all its pods fit on
	// the nodes and cards there are.
	Placement Placement `json:"placement,omitempty"`
	// PreemptAfter is the preemption delay: how long a workload waits before it preempts running
	// ones, at most 1h. Capacity that becomes free in that time costs no running work. Absent, it preempts at once, as in Kueue.
	PreemptAfter *metav1.Duration `json:"preemptAfter,omitempty"`
	// PreemptionCooldown is how long a workload that another queue preempted preempts nobody in other queues beyond its
	// own queue's nominal quota, at most 1h. Absent, there is none, as in Kueue.
	PreemptionCooldown *metav1.Duration `json:"preemptionCooldown,omitempty"`
	// NoPreemptionRings preempts nobody who could come straight back, nor for a fair share that would make the other
	// preempt in turn. Kueue's rules allow that.
	NoPreemptionRings bool `json:"noPreemptionRings,omitempty"`
	// LeaveOutEventsUnderLoad leaves out events QuotaReserved and Admitted, of which the status tells as well, while
	// decisions wait to be written. Kueue records every one.
	LeaveOutEventsUnderLoad bool `json:"leaveOutEventsUnderLoad,omitempty"`
	// NoDecisions runs everything, but leaves admission and preemption to another scheduler.
	NoDecisions  bool         `json:"noDecisions,omitempty"`
	Visibility   Visibility   `json:"visibility,omitempty"`
	QueueMetrics QueueMetrics `json:"queueMetrics,omitempty"`
	Controllers  Controllers  `json:"controllers,omitempty"`
	// FeatureGates are Kueue's, by name.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
	// These are Kueue's, and mean the same. No integrations.frameworks means all.
	Integrations            *kueueconfig.Integrations            `json:"integrations,omitempty"`
	WaitForPodsReady        *kueueconfig.WaitForPodsReady        `json:"waitForPodsReady,omitempty"`
	ObjectRetentionPolicies *kueueconfig.ObjectRetentionPolicies `json:"objectRetentionPolicies,omitempty"`
	FairSharing             *kueueconfig.FairSharing             `json:"fairSharing,omitempty"`
	AdmissionFairSharing    *kueueconfig.AdmissionFairSharing    `json:"admissionFairSharing,omitempty"`
	// Resources and MultiKueue are Kueue's too, as far as they go.
	Resources  Resources  `json:"resources,omitempty"`
	MultiKueue MultiKueue `json:"multiKueue,omitempty"`
	// ManageJobsWithoutQueueName also suspends jobs that name no queue.
	ManageJobsWithoutQueueName bool `json:"manageJobsWithoutQueueName,omitempty"`
	// ManagedJobsNamespaceSelector limits queueing to namespaces with such labels;
	// jobs in other namespaces are not managed, even if they name a queue.
	ManagedJobsNamespaceSelector *metav1.LabelSelector `json:"managedJobsNamespaceSelector,omitempty"`
	// JobKinds are kinds of jobs beside the built-in ones, by a name of your
	// choice. The same can be said with JobKind objects, without a restart.
	JobKinds map[string]jobsv1alpha1.JobKindSpec `json:"jobKinds,omitempty"`
}

// GPUSchedulerConfiguration is the file of elastic-gpu-scheduler.
type GPUSchedulerConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	Common          `json:",inline"`

	LeaderElection LeaderElection `json:"leaderElection,omitempty"`
	Webhook        Webhook        `json:"webhook,omitempty"`
	Extender       Extender       `json:"extender,omitempty"`
	// Policy of the cluster: a name, as binpack, spread, random, fragmentation, topology or load; two
	// tiers, as "node=spread,card=binpack"; or a mix by weight, as "0.7*fragmentation+0.3*load".
	Policy string `json:"policy,omitempty"`
	// Policies are named ones that pods and classes may choose.
	Policies map[string]string `json:"policies,omitempty"`
	// PolicyWebhooks are external policies, asked over HTTP, by the names by which pods and classes choose them.
	PolicyWebhooks map[string]PolicyWebhook `json:"policyWebhooks,omitempty"`
	// Ratings are TFLOPS by card model, beside the built-in ones.
	Ratings map[string]float64 `json:"ratings,omitempty"`
	// Modes are the ways to ask for cards that are served: gpushare, qgpu, pgpu; empty means all.
	Modes []string `json:"modes,omitempty"`
	// SchedulerName is given to pods that ask for cards and name no scheduler; empty leaves them alone.
	SchedulerName string `json:"schedulerName,omitempty"`
	// HoldGangsFor is how long placements are reserved for the pods of a gang.
	HoldGangsFor metav1.Duration `json:"holdGangsFor,omitempty"`
	// Workers is how many ElasticGPUClaims are reconciled at once.
	Workers int `json:"workers,omitempty"`
	// RemoteEngines have programs use cards of other nodes, by the name that classes choose them by; ours is elastic.
	RemoteEngines map[string]RemoteServer `json:"remoteEngines,omitempty"`
}

// RemoteServer is the server's part of an engine for cards of other nodes.
type RemoteServer struct {
	// Image that it is in, and the Command that serves one claim; the address to listen on is its last argument.
	Image   string   `json:"image"`
	Command []string `json:"command"`
	// Memory of the node that each server may use, beside as much as its share has on the card; default 16Gi.
	Memory resource.Quantity `json:"memory,omitzero"`
}

// PolicyWebhook is a policy that is asked over HTTP.
type PolicyWebhook struct {
	URL string `json:"url"`
	// CABundle is what its certificate must be signed by; empty means the system's authorities.
	CABundle []byte `json:"caBundle,omitempty"`
	// Timeout after which the cluster's policy decides; default 2s.
	Timeout metav1.Duration `json:"timeout,omitempty"`
}

// Extender is where kube-scheduler asks.
type Extender struct {
	BindAddress string `json:"bindAddress,omitempty"`
	// AdvertiseAddress is where other replicas reach this one; empty takes $POD_IP, or the address itself.
	AdvertiseAddress string `json:"advertiseAddress,omitempty"`
	// TLS answers those alone who have the client's certificate. Without it the extender answers anyone who reaches
	// its address, and binds pods for them.
	TLS bool `json:"tls"`
	// SecretName is where replicas share the certificates, the client's included; in the namespace of the lease.
	SecretName string `json:"secretName,omitempty"`
	// CertDir has certificates that someone else makes: tls.crt and tls.key to serve with, which other replicas must
	// accept as a client's, too, and in ca.crt who signs clients. Empty has the program make them.
	CertDir string `json:"certDir,omitempty"`
}

// GPUAgentConfiguration is the file of elastic-gpu-agent.
type GPUAgentConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	Common          `json:",inline"`

	// NodeName is the node this agent serves; empty takes the host's name.
	NodeName string `json:"nodeName,omitempty"`
	// Simulate reports the cards of nodes' labels as real ones: those of the sandbox's simulated nodes, or,
	// with NodeName, of that one.
	Simulate     bool         `json:"simulate,omitempty"`
	DevicePlugin DevicePlugin `json:"devicePlugin,omitempty"`
	DRA          DRA          `json:"dra,omitempty"`
}

// DRA is how containers get cards by ResourceClaims.
type DRA struct {
	// Enabled serves ResourceClaims of the driver gpu.elasticgpu.io, beside the device plugin.
	Enabled bool `json:"enabled,omitempty"`
	// Cards that ResourceClaims give out on nodes that do not say so themselves (annotation
	// elasticgpu.io/dra-cards): "all", indexes as "0,1", or none. The GPU scheduler gives out the others.
	Cards string `json:"cards,omitempty"`
}

// DevicePlugin is how containers get their cards.
type DevicePlugin struct {
	// Enabled is true by default; without it the agent only reports cards.
	Enabled *bool `json:"enabled,omitempty"`
	// KubeletDir is where the kubelet has its sockets.
	KubeletDir string `json:"kubeletDir,omitempty"`
	// CDIDir is where the container runtime reads CDI specifications.
	CDIDir string `json:"cdiDir,omitempty"`
	// DriverDirs are looked through for the CDI specification of the node's driver.
	DriverDirs []string `json:"driverDirs,omitempty"`
	// StateDir is for the agent alone, at the same path for the container runtime.
	StateDir string `json:"stateDir,omitempty"`
	// Library is libelasticgpu.so, which is copied to StateDir.
	Library string `json:"library,omitempty"`
	// WholeCards has the node offer nvidia.com/gpu, too: where no other device plugin does.
	WholeCards bool `json:"wholeCards,omitempty"`
	// RemoteBackends are external ones, by the name that classes choose them by: the socket each listens on.
	RemoteBackends map[string]string `json:"remoteBackends,omitempty"`
	// QGPUDevices are patterns of the device paths that an ElasticGPU may name in spec.qGPU.paths.
	QGPUDevices []string `json:"qgpuDevices,omitempty"`
	// Remote is how containers use cards of other nodes.
	Remote RemoteCards `json:"remote,omitempty"`
	// DeviceRoot is where the agent's container sees the node's /dev: the folder that has it. Empty is the root.
	DeviceRoot string `json:"deviceRoot,omitempty"`
}

// RemoteCards is how containers use cards of other nodes.
type RemoteCards struct {
	// BindAddress is where agents of other nodes reach the cards of this one, over TLS that both sides prove themselves
	// by. Without it containers of this node use no cards of others, and others none of this one.
	BindAddress string `json:"bindAddress,omitempty"`
	// AdvertiseAddress is where they reach it; empty takes $POD_IP and BindAddress's port.
	AdvertiseAddress string `json:"advertiseAddress,omitempty"`
	// ServerNamespace is where the GPU scheduler has its servers.
	ServerNamespace string `json:"serverNamespace,omitempty"`
	// Engines by the name that classes choose them by: the files of each, by their path in containers, and where they are on
	// the node.
	Engines map[string]map[string]string `json:"engines,omitempty"`
}

// WebConfiguration is the file of elastic-web.
type WebConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	Common          `json:",inline"`

	// BindAddress is where the page is served, over TLS.
	BindAddress string `json:"bindAddress,omitempty"`
	// CertDir has tls.crt and tls.key, which are read again when they change. Empty has the program make a
	// certificate for DNSNames at each start, which no browser trusts.
	CertDir  string   `json:"certDir,omitempty"`
	DNSNames []string `json:"dnsNames,omitempty"`
	// ClusterName is shown in the page's corner.
	ClusterName string `json:"clusterName,omitempty"`
	// Prices of one card for an hour, by model, in Currency.
	Prices   map[string]float64 `json:"prices,omitempty"`
	Currency string             `json:"currency,omitempty"`
	// History has the program itself collect the last six hours of all queues, which takes the right to read ClusterQueues and
	// ResourceFlavors; who sees a queue sees its history. Without it, history is of the time someone looks.
	History bool `json:"history,omitempty"`
	// PrometheusURL is of a Prometheus with elastic-queue's metrics, for more than six hours.
	PrometheusURL string `json:"prometheusURL,omitempty"`
	// Proxy authenticates people in front of the page. Absent, they sign in with a token.
	Proxy *AuthenticatingProxy `json:"proxy,omitempty"`
}

// AuthenticatingProxy says in headers who a person is, and proves itself by a client certificate.
type AuthenticatingProxy struct {
	// ClientCAFile has who signs the proxy's certificate, and AllowedNames the common names it may have.
	ClientCAFile string   `json:"clientCAFile"`
	AllowedNames []string `json:"allowedNames"`
	// UserHeaders and GroupHeaders are where the user and the groups are; default X-Remote-User and X-Remote-Group.
	UserHeaders  []string `json:"userHeaders,omitempty"`
	GroupHeaders []string `json:"groupHeaders,omitempty"`
	// GroupSeparator is between groups in one header; empty: a header has one group, and may come several times.
	GroupSeparator string `json:"groupSeparator,omitempty"`
}

// Recommend sets what goes beyond Kueue's rules and is recommended.
func (c *QueueConfiguration) Recommend() {
	c.PreemptAfter = &metav1.Duration{Duration: time.Second}
	c.PreemptionCooldown = &metav1.Duration{Duration: time.Minute}
	c.NoPreemptionRings = true
	c.LeaveOutEventsUnderLoad = true
	c.Controllers.CountSparkOverhead, c.Controllers.ReclaimKubeflowPods, c.Controllers.KeepSlicesUntilAdmitted = true, true, true
	gates := map[string]bool{"RecomputeAssignmentUponPreemptionTargetsOverlap": true, "ShortWorkloadNames": true}
	maps.Copy(gates, c.FeatureGates)
	c.FeatureGates = gates
}

// NewQueueConfiguration returns the defaults of elastic-queue: decisions are Kueue's.
func NewQueueConfiguration() *QueueConfiguration {
	return &QueueConfiguration{
		TypeMeta:       typeMeta("QueueConfiguration"),
		Common:         commonDefaults(":8080", ":8081"),
		LeaderElection: leaderDefaults(),
		Webhook: Webhook{
			Port:       9443,
			CertDir:    "/tmp/elastic-queue/certs",
			DNSNames:   []string{"elastic-queue-webhook-service.elastic-queue.svc"},
			SecretName: "elastic-queue-webhooks",
		},
		Writers: 16,
	}
}

// NewGPUSchedulerConfiguration returns the defaults of elastic-gpu-scheduler.
func NewGPUSchedulerConfiguration() *GPUSchedulerConfiguration {
	return &GPUSchedulerConfiguration{
		TypeMeta:       typeMeta("GPUSchedulerConfiguration"),
		Common:         commonDefaults(":8082", ":8083"),
		LeaderElection: leaderDefaults(),
		Webhook: Webhook{
			Port:       9444,
			CertDir:    "/tmp/elastic-gpu-scheduler/certs",
			DNSNames:   []string{"elastic-gpu-scheduler.elastic-queue.svc"},
			SecretName: "elastic-gpu-scheduler-webhooks",
		},
		Extender:     Extender{BindAddress: ":39999", TLS: true, SecretName: "elastic-gpu-scheduler-extender"},
		HoldGangsFor: metav1.Duration{Duration: 2 * time.Minute},
		Workers:      8,
	}
}

// NewGPUAgentConfiguration returns the defaults of elastic-gpu-agent.
func NewGPUAgentConfiguration() *GPUAgentConfiguration {
	on := true
	return &GPUAgentConfiguration{
		TypeMeta: typeMeta("GPUAgentConfiguration"),
		Common:   commonDefaults(":8084", ":8085"),
		DevicePlugin: DevicePlugin{
			Enabled:     &on,
			KubeletDir:  "/var/lib/kubelet",
			CDIDir:      "/var/run/cdi",
			DriverDirs:  []string{"/etc/cdi", "/var/run/cdi"},
			StateDir:    "/var/lib/elastic-gpu",
			Library:     "/usr/lib/elastic-gpu/libelasticgpu.so",
			QGPUDevices: []string{"/dev/qgpu*"},
		},
	}
}

// NewWebConfiguration returns the defaults of elastic-web. It has no metrics of its own.
func NewWebConfiguration() *WebConfiguration {
	return &WebConfiguration{
		TypeMeta: typeMeta("WebConfiguration"), Common: commonDefaults("0", ":8087"),
		BindAddress: ":8443", DNSNames: []string{"elastic-web.elastic-queue.svc"}, ClusterName: "this cluster", Currency: "USD",
	}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: Group + "/" + Version, Kind: kind}
}

func commonDefaults(metrics, health string) Common {
	return Common{
		Log:              Log{Level: "info", Format: "text"},
		Metrics:          Metrics{Endpoint: Endpoint{BindAddress: metrics}},
		Health:           Health{Endpoint: Endpoint{BindAddress: health}, LivenessPath: "/healthz", ReadinessPath: "/readyz"},
		ClientConnection: ClientConnection{QPS: 300, Burst: 600},
	}
}

func leaderDefaults() LeaderElection {
	on := true
	return LeaderElection{
		Enabled:       &on,
		Namespace:     "elastic-queue",
		LeaseDuration: metav1.Duration{Duration: 15 * time.Second},
		RenewDeadline: metav1.Duration{Duration: 10 * time.Second},
		RetryPeriod:   metav1.Duration{Duration: 2 * time.Second},
	}
}
