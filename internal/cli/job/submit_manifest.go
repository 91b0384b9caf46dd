package job

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

type flagSet = pflag.FlagSet

// defaultWorkingDir is arena's.
const defaultWorkingDir = "/root"

// submission holds the flags of a submit.
type submission struct {
	name, image, command, shell, workingDir string
	gpus, workers, retry                    int
	gpuPercent                              int // of --gpus below one
	gpuMemory                               string
	gpuCore                                 int
	rdma, gang                              bool
	hostNetwork, hostIPC, hostPID           bool
	shareMemory, pullPolicy                 string

	envs, data, dataDirs, annotations, labels        []string
	tolerations, selectors, configFiles, pullSecrets []string
	devices                                          []string
	priority, workloadPriority, queue, scheduler     string
	maxTime                                          time.Duration
	tensorboard                                      bool
	tensorboardImage, logdir                         string
	person                                           string    // of --user
	host                                             *hostRoot // of --image host

	// by the prefix of a role's flags; "" for those without one.
	roles map[string]*roleFlags

	// flags of single kinds
	ps                                         int
	chief, evaluator                           bool
	successPolicy, cleanPolicy, nprocPerNode   string
	activeDeadline, ttl                        time.Duration
	rayVersion                                 string
	shutdown                                   bool
	mainClass, jar, sparkVersion, sparkAccount string
	driverCPU, executorCPU                     int
	driverMemory, executorMemory               string
	minAvailable, minWorkers, maxWorkers       int
	taskName                                   string
	indexes                                    string // of --array
}

type roleFlags struct {
	image, cpu, cpuLimit, memory, memoryLimit string
	gpus, port                                int
	selectors                                 []string
}

// cardsFlag is --gpus: whole cards, or hundredths of one.
type cardsFlag struct{ s *submission }

func (f cardsFlag) String() string {
	switch {
	case f.s == nil:
		return "0"
	case f.s.gpuPercent > 0:
		return strconv.FormatFloat(float64(f.s.gpuPercent)/100, 'f', -1, 64)
	}
	return strconv.Itoa(f.s.gpus)
}

func (cardsFlag) Type() string { return "number" }

func (f cardsFlag) Set(text string) error {
	if n, err := strconv.Atoi(text); err == nil && n >= 0 {
		f.s.gpus, f.s.gpuPercent = n, 0
		return nil
	}
	share, err := strconv.ParseFloat(text, 64)
	percent := math.Round(share * 100)
	if err != nil || math.IsNaN(share) || percent < 1 || percent > 99 || math.Abs(share*100-percent) > 1e-9 {
		return errors.New("write whole cards, as in 2, or hundredths of one, as in 0.25")
	}
	f.s.gpus, f.s.gpuPercent = 0, int(percent)
	return nil
}

// addFlags adds the flags of a form to a submit command.
func (s *submission) addFlags(f *form, flags *flagSet) {
	flags.StringVar(&s.name, "name", "", "name of the job (required)")
	flags.StringVar(&s.image, "image", "", "image of its containers; host is the root of this machine, where 'elastic up --cards' runs")
	flags.StringVar(&s.person, "user", "", "with --image host, the person whose rights and home the job has (default the one who submits it)")
	flags.Var(cardsFlag{s}, "gpus", "cards for each worker: whole ones, or a share of one, as in 0.5")
	flags.StringVar(&s.gpuMemory, "gpumemory", "", "memory of one card for each worker: 8 or 8Gi are GiB, 512Mi are MiB")
	flags.IntVar(&s.gpuCore, "gpucore", 0, "percent of one card for each worker")
	if f.kind != "sparkoperator.k8s.io/sparkapplication" {
		flags.IntVar(&s.workers, "workers", 1, "number of workers")
	}
	flags.IntVar(&s.retry, "retry", 0, "how often to try again")
	flags.StringVar(&s.workingDir, "working-dir", defaultWorkingDir, "directory the command runs in")
	flags.StringVar(&s.shell, "shell", "sh", "shell that runs the command: sh or bash")
	flags.BoolVar(&s.rdma, "rdma", false, "with an RDMA device in each pod")
	flags.BoolVar(&s.gang, "gang", false, "all pods or none: always so in a queue")
	flags.StringArrayVarP(&s.envs, "env", "e", nil, "environment variable, NAME=VALUE (repeatable)")
	flags.StringArrayVarP(&s.data, "data", "d", nil, "mount a volume claim, CLAIM:/PATH (repeatable)")
	flags.StringArrayVar(&s.dataDirs, "data-dir", nil, "mount a directory of the node, /PATH or /NODE/PATH:/PATH (repeatable)")
	flags.StringArrayVarP(&s.annotations, "annotation", "a", nil, "annotation of the job and its pods, KEY=VALUE (repeatable)")
	flags.StringArrayVarP(&s.labels, "label", "l", nil, "label of the job and its pods, KEY=VALUE (repeatable)")
	flags.StringArrayVar(&s.tolerations, "toleration", nil, "taint to put up with: KEY, KEY=VALUE:EFFECT,OPERATOR, or all (repeatable)")
	flags.StringArrayVar(&s.selectors, "selector", nil, "label its nodes must have, KEY=VALUE (repeatable)")
	flags.StringArrayVar(&s.configFiles, "config-file", nil, "file to bring along, HERE:/PATH/THERE (repeatable)")
	flags.StringArrayVar(&s.devices, "device", nil, "other device for each worker, RESOURCE=COUNT (repeatable)")
	flags.StringArrayVar(&s.pullSecrets, "image-pull-secret", nil, "secret for a private registry (repeatable)")
	flags.StringVar(&s.pullPolicy, "image-pull-policy", "", "Always, IfNotPresent or Never")
	flags.StringVarP(&s.priority, "priority", "p", "", "PriorityClass of its pods, which the queue goes by too")
	flags.StringVar(&s.workloadPriority, "workload-priority", "", "WorkloadPriorityClass: the queue goes by it, kube-scheduler does not")
	flags.StringVar(&s.queue, "queue", "", "the queue it waits in")
	flags.DurationVar(&s.maxTime, "time", 0, "longest it may run; a known end lets others be planned behind it")
	flags.StringVar(&s.shareMemory, "share-memory", "", "size of /dev/shm")
	flags.BoolVar(&s.hostNetwork, "hostNetwork", false, "in the node's network")
	flags.BoolVar(&s.hostIPC, "hostIPC", false, "in the node's IPC namespace")
	flags.BoolVar(&s.hostPID, "hostPID", false, "in the node's PID namespace")
	flags.BoolVar(&s.tensorboard, "tensorboard", false, "with a TensorBoard beside it")
	flags.StringVar(&s.tensorboardImage, "tensorboard-image", "tensorflow/tensorflow:2.15.0", "image of the TensorBoard")
	flags.StringVar(&s.logdir, "logdir", "/training_logs", "where the TensorBoard reads, on a volume both mount")
	if flags.Lookup("scheduler-name") == nil {
		flags.StringVar(&s.scheduler, "scheduler", "", "scheduler of its pods")
	}
	s.roles = map[string]*roleFlags{}
	for i := range f.roles {
		s.addRole(&f.roles[i], flags)
	}
	if f.flags != nil {
		f.flags(s, flags)
	}
	flags.SetNormalizeFunc(oldNames)
}

func (s *submission) addRole(r *role, flags *flagSet) {
	if s.roles[r.prefix] != nil {
		return
	}
	own := &roleFlags{}
	s.roles[r.prefix] = own
	dash, of := "", "each pod"
	if r.prefix != "" {
		dash, of = r.prefix+"-", "each "+r.prefix
		flags.StringVar(&own.image, dash+"image", "", "image of "+of+" (default --image)")
		flags.IntVar(&own.gpus, dash+"gpus", -1, "whole cards for "+of)
		flags.IntVar(&own.port, dash+"port", 0, "port "+of+" listens on")
		flags.StringArrayVar(&own.selectors, dash+"selector", nil, "label the nodes of "+of+" must have, instead of --selector (repeatable)")
	} else {
		own.gpus = -1
	}
	flags.StringVar(&own.cpu, dash+"cpu", "", "cpus for "+of)
	flags.StringVar(&own.cpuLimit, dash+"cpu-limit", "", "most cpus for "+of)
	flags.StringVar(&own.memory, dash+"memory", "", "memory for "+of)
	flags.StringVar(&own.memoryLimit, dash+"memory-limit", "", "most memory for "+of)
}

// oldNames accepts arena's older spellings: workingDir, psCpu, taskImages.
func oldNames(_ *flagSet, name string) pflag.NormalizedName {
	switch name {
	case "hostNetwork", "hostIPC", "hostPID":
		return pflag.NormalizedName(name)
	case "head-gpu", "worker-gpu":
		return pflag.NormalizedName(name + "s")
	}
	var b strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' {
			if i > 0 && !strings.HasSuffix(b.String(), "-") {
				b.WriteByte('-')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return pflag.NormalizedName(strings.Replace(b.String(), "-c-p-u", "-cpu", 1))
}

// read takes the command in and checks what can be checked without a cluster.
func (s *submission) read(f *form, args []string) error {
	s.command = unquoted(strings.TrimSpace(strings.Join(args, " ")))
	if err := s.settleHost(); err != nil {
		return err
	}
	switch {
	case s.name == "":
		return errors.New("give the job a name with --name")
	case s.command == "" && f.container != "":
		return errNoCommand
	case s.image == "" && f.container != "":
		return errors.New("give the image of its containers with --image")
	}
	if problems := validation.IsDNS1123Label(s.name); len(problems) > 0 {
		return fmt.Errorf("%q cannot be a job's name: %s", s.name, problems[0])
	}
	if s.gpuPercent > 0 {
		if s.gpuCore > 0 {
			return errors.New("give either --gpus or --gpucore for a share of a card")
		}
		s.gpuCore = s.gpuPercent
	}
	if s.gpus > 0 && (s.gpuCore > 0 || s.gpuMemory != "") {
		return errors.New("give either --gpus, for whole cards, or --gpucore and --gpumemory, for a share of one")
	}
	if s.gpuMemory != "" {
		if _, err := mebibytes(s.gpuMemory); err != nil {
			return err
		}
	}
	return s.checkQuantities()
}

// errNoCommand is arena's wording.
var errNoCommand = errors.New("not found command args: write the command at the end, as in \"python train.py\"")

func (s *submission) checkQuantities() error {
	for prefix, r := range s.roles {
		for flag, value := range map[string]string{"cpu": r.cpu, "cpu-limit": r.cpuLimit, "memory": r.memory, "memory-limit": r.memoryLimit} {
			if value == "" {
				continue
			}
			if _, err := resource.ParseQuantity(value); err != nil {
				return fmt.Errorf("--%s %q is not an amount: write 4 or 500m for cpus, 16Gi for memory", strings.TrimPrefix(prefix+"-"+flag, "-"), value)
			}
		}
	}
	for flag, list := range map[string][]string{"env": s.envs, "annotation": s.annotations, "label": s.labels, "selector": s.selectors, "device": s.devices} {
		for _, pair := range list {
			if !strings.Contains(pair, "=") {
				return fmt.Errorf("--%s %q has no '=': write NAME=VALUE", flag, pair)
			}
		}
	}
	for _, pair := range s.configFiles {
		if _, there, ok := strings.Cut(pair, ":"); !ok || !path.IsAbs(there) {
			return fmt.Errorf("--config-file %q: write HERE:/PATH/THERE", pair)
		}
	}
	for _, pair := range s.data {
		if _, there, ok := strings.Cut(pair, ":"); !ok || !path.IsAbs(there) {
			return fmt.Errorf("--data %q: write CLAIM:/PATH", pair)
		}
	}
	return nil
}

// unquoted removes one pair of quotes around a whole command: arena's users write "'python
// train.py'", because arena passed it through templates.
func unquoted(command string) string {
	if len(command) < 2 {
		return command
	}
	for _, quote := range []string{"'", `"`} {
		inner := strings.TrimSuffix(strings.TrimPrefix(command, quote), quote)
		if len(inner) == len(command)-2 && !strings.Contains(inner, quote) {
			return inner
		}
	}
	return command
}

// mebibytes reads --gpumemory: a plain number is GiB, as in arena.
func mebibytes(text string) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
		return n << 10, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Value() < 1<<20 {
		return 0, fmt.Errorf("--gpumemory %q is not an amount of memory: write 8 or 8Gi for GiB, 512Mi for MiB", text)
	}
	return q.Value() >> 20, nil
}

// objects are the job and the objects that belong to it.
func (s *submission) objects(f *form, namespace string) ([]*unstructured.Unstructured, error) {
	metadata := map[string]any{"name": s.name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	labels := pairs(s.labels)
	if s.queue != "" {
		labels[kinds.QueueNameLabel] = s.queue
	}
	if s.workloadPriority != "" {
		labels[kinds.PriorityClassLabel] = s.workloadPriority
	}
	if s.maxTime > 0 {
		labels[kinds.MaxExecTimeLabel] = strconv.FormatInt(int64(s.maxTime.Seconds()), 10)
	}
	setMap(metadata, "labels", labels)
	setMap(metadata, "annotations", pairs(s.annotations))
	job := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": f.apiVersion, "kind": f.object, "metadata": metadata, "spec": f.spec(s, f),
	}}
	out := []*unstructured.Unstructured{job}
	if len(s.configFiles) > 0 {
		files, err := s.configMap(namespace)
		if err != nil {
			return nil, err
		}
		out = append(out, files)
	}
	if s.tensorboard {
		out = append(out, s.tensorboards(namespace)...)
	}
	return out, nil
}

// template is the pod template of a role.
func (s *submission) template(f *form, r *role) map[string]any {
	own := s.roles[r.prefix]
	container := map[string]any{"name": f.container, "image": cmp.Or(own.image, s.image)}
	if s.pullPolicy != "" {
		container["imagePullPolicy"] = s.pullPolicy
	}
	if !r.idle {
		container["command"] = []any{s.shell, "-c", s.command}
		if s.workingDir != "" {
			container["workingDir"] = s.workingDir
		}
	}
	if own.port > 0 {
		container["ports"] = []any{map[string]any{"name": f.container + "-port", "containerPort": int64(own.port)}}
	}
	if env := s.environment(); len(env) > 0 {
		container["env"] = env
	}
	setMap(container, "resources", s.resources(r, own))
	if s.rdma {
		container["securityContext"] = map[string]any{"capabilities": map[string]any{"add": []any{"IPC_LOCK"}}}
	}
	pod := map[string]any{}
	volumes, mounts := s.volumes()
	if len(mounts) > 0 {
		pod["volumes"], container["volumeMounts"] = volumes, mounts
	}
	pod["containers"] = []any{container}
	if r.restart != "" && !strings.HasPrefix(f.apiVersion, "kubeflow.org/") {
		pod["restartPolicy"] = r.restart
	}
	s.podPlace(pod, own)
	if s.host != nil {
		s.host.apply(pod, container, s.envs)
	}
	template := map[string]any{"spec": pod}
	metadata := map[string]any{}
	setMap(metadata, "labels", pairs(s.labels))
	setMap(metadata, "annotations", pairs(s.annotations))
	setMap(template, "metadata", metadata)
	return template
}

// podPlace is where pods may run and what they may do there.
func (s *submission) podPlace(pod map[string]any, own *roleFlags) {
	selectors := own.selectors
	if len(selectors) == 0 {
		selectors = s.selectors
	}
	setMap(pod, "nodeSelector", pairs(selectors))
	if list := tolerations(s.tolerations); len(list) > 0 {
		pod["tolerations"] = list
	}
	for field, value := range map[string]bool{"hostNetwork": s.hostNetwork, "hostIPC": s.hostIPC, "hostPID": s.hostPID} {
		if value {
			pod[field] = true
		}
	}
	if s.priority != "" {
		pod["priorityClassName"] = s.priority
	}
	if s.scheduler != "" {
		pod["schedulerName"] = s.scheduler
	}
	var secrets []any
	for _, name := range s.pullSecrets {
		secrets = append(secrets, map[string]any{"name": name})
	}
	if len(secrets) > 0 {
		pod["imagePullSecrets"] = secrets
	}
}

func (s *submission) environment() []any {
	var env []any
	for _, pair := range s.envs {
		name, value, _ := strings.Cut(pair, "=")
		env = append(env, map[string]any{"name": name, "value": value})
	}
	return env
}

func (s *submission) resources(r *role, own *roleFlags) map[string]any {
	requests, limits := map[string]any{}, map[string]any{}
	for name, pair := range map[string][2]string{"cpu": {own.cpu, own.cpuLimit}, "memory": {own.memory, own.memoryLimit}} {
		if pair[0] != "" {
			requests[name] = pair[0]
		}
		if limit := cmp.Or(pair[1], pair[0]); limit != "" {
			limits[name] = limit
		}
	}
	gpus := own.gpus
	if gpus < 0 && r.gpus {
		gpus = s.gpus
	}
	if gpus > 0 {
		limits["nvidia.com/gpu"] = strconv.Itoa(gpus)
	}
	if r.gpus {
		if s.gpuCore > 0 {
			limits[string(egpu.ResourceCore)] = strconv.Itoa(s.gpuCore)
		}
		if s.gpuMemory != "" {
			size, _ := mebibytes(s.gpuMemory) // read has checked it
			limits[string(egpu.ResourceMemory)] = strconv.FormatInt(size, 10)
		}
		maps.Copy(limits, pairs(s.devices))
	}
	if s.rdma {
		limits["rdma/hca"] = "1"
	}
	out := map[string]any{}
	setMap(out, "requests", requests)
	setMap(out, "limits", limits)
	return out
}

func (s *submission) volumes() (volumes, mounts []any) {
	add := func(name string, source map[string]any, at, sub string) {
		source["name"] = name
		if !slices.ContainsFunc(volumes, func(v any) bool { return v.(map[string]any)["name"] == name }) {
			volumes = append(volumes, source)
		}
		mount := map[string]any{"name": name, "mountPath": at}
		if sub != "" {
			mount["subPath"] = sub
		}
		mounts = append(mounts, mount)
	}
	for _, pair := range s.data {
		claim, at, _ := strings.Cut(pair, ":")
		add("data-"+claim, map[string]any{"persistentVolumeClaim": map[string]any{"claimName": claim}}, at, "")
	}
	for i, pair := range s.dataDirs {
		from, at, ok := strings.Cut(pair, ":")
		if !ok {
			at = from
		}
		add(fmt.Sprintf("dir-%d", i), map[string]any{"hostPath": map[string]any{"path": from}}, at, "")
	}
	for i, pair := range s.configFiles {
		_, at, _ := strings.Cut(pair, ":")
		add("files", map[string]any{"configMap": map[string]any{"name": s.name + "-files"}}, at, fileKey(i, at))
	}
	if s.shareMemory != "" {
		add("dshm", map[string]any{"emptyDir": map[string]any{"medium": "Memory", "sizeLimit": s.shareMemory}}, "/dev/shm", "")
	}
	return volumes, mounts
}

func fileKey(i int, there string) string { return fmt.Sprintf("%d-%s", i, path.Base(there)) }

// configMap has the files of the job.
func (s *submission) configMap(namespace string) (*unstructured.Unstructured, error) {
	data := map[string]any{}
	for i, pair := range s.configFiles {
		here, there, _ := strings.Cut(pair, ":")
		content, err := os.ReadFile(here)
		if err != nil {
			return nil, fmt.Errorf("--config-file: %w", err)
		}
		data[fileKey(i, there)] = string(content)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": s.name + "-files", "namespace": namespace}, "data": data,
	}}, nil
}

// tensorboards are a TensorBoard and its service.
func (s *submission) tensorboards(namespace string) []*unstructured.Unstructured {
	name := s.name + "-tensorboard"
	labels := map[string]any{"app": name}
	volumes, mounts := s.volumes()
	container := map[string]any{
		"name": "tensorboard", "image": s.tensorboardImage, "command": []any{"tensorboard", "--host=0.0.0.0", "--port=6006", "--logdir=" + s.logdir},
		"ports": []any{map[string]any{"containerPort": int64(6006)}},
	}
	pod := map[string]any{"containers": []any{container}}
	if len(mounts) > 0 {
		pod["volumes"], container["volumeMounts"] = volumes, mounts
	}
	metadata := func() map[string]any {
		return map[string]any{"name": name, "namespace": namespace, "labels": maps.Clone(labels)}
	}
	return []*unstructured.Unstructured{
		{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(), "spec": map[string]any{
			"replicas": int64(1), "selector": map[string]any{"matchLabels": maps.Clone(labels)},
			"template": map[string]any{"metadata": map[string]any{"labels": maps.Clone(labels)}, "spec": pod},
		}}},
		{Object: map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": metadata(), "spec": map[string]any{
			"selector": maps.Clone(labels), "ports": []any{map[string]any{"port": int64(6006), "targetPort": int64(6006)}},
		}}},
	}
}

// tolerations in arena's forms: "all", "key", "key=value:effect,operator".
func tolerations(list []string) []any {
	var out []any
	for _, text := range list {
		if text == "all" {
			out = append(out, map[string]any{"operator": "Exists"})
			continue
		}
		t := map[string]any{"operator": "Exists"}
		text, operator, hasOperator := strings.Cut(text, ",")
		text, effect, hasEffect := strings.Cut(text, ":")
		key, value, hasValue := strings.Cut(text, "=")
		t["key"] = key
		if hasValue && value != "" {
			t["operator"], t["value"] = "Equal", value
		}
		if hasOperator {
			t["operator"] = operator
		}
		if hasEffect {
			t["effect"] = effect
		}
		out = append(out, t)
	}
	return out
}

func pairs(list []string) map[string]any {
	out := map[string]any{}
	for _, pair := range list {
		key, value, _ := strings.Cut(pair, "=")
		out[key] = value
	}
	return out
}

func setMap(in map[string]any, field string, value map[string]any) {
	if len(value) > 0 {
		in[field] = value
	}
}
