package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
)

// hostImage is what --image host says: the root of the machine itself, as "elastic up --cards" offers it.
const hostImage = "host"

// What a node says that offers its root, and the image of links that goes with it.
const (
	hostRootAnnotation    = "elasticai.io/host-root"
	hostFoldersAnnotation = "elasticai.io/host-folders"
	hostImageName         = "registry.local/host:1"
)

// hostRoot is the root of a machine that containers run on, and the person they run as.
type hostRoot struct {
	node, dir string
	folders   []string
	person    *person
	// here is the folder that the job was submitted from, where that is the person's own.
	here string
	env  map[string]string
}

// person of this machine.
type person struct {
	uid, gid   int64
	groups     []any
	name, home string // home is empty where it is not theirs
}

// carried are the variables of the shell that a job on the machine's root has as well: where programs and libraries
// are looked for.
var carried = []string{"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CUDA_HOME", "LANG", "LC_ALL"}

// settleHost finds what --image host needs; other images need nothing. A job on the machine need not be named, and its
// queue is the machine's.
func (s *submission) settleHost() error {
	if s.image != hostImage {
		if s.person != "" {
			return errors.New("--user is for --image host")
		}
		return nil
	}
	if s.name == "" {
		s.name = "job-" + rand.String(5)
	}
	if s.queue == "" {
		s.queue = "main"
	}
	who, err := findPerson(s.person)
	if err != nil {
		return err
	}
	s.host = &hostRoot{person: who, env: map[string]string{"HOME": cmp.Or(who.home, "/tmp"), "USER": who.name, "LOGNAME": who.name}}
	for _, name := range carried {
		if value, ok := os.LookupEnv(name); ok {
			s.host.env[name] = value
		}
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	if s.workingDir == defaultWorkingDir {
		s.workingDir = here
	}
	if ownedBy(here, who.uid) && (who.home == "" || here != who.home && !strings.HasPrefix(here, who.home+"/")) {
		s.host.here = here
	}
	return nil
}

// findPerson by name or number; without one, the one who types, also behind sudo.
func findPerson(named string) (*person, error) {
	if named == "" {
		named = strconv.Itoa(os.Getuid())
		if behind := os.Getenv("SUDO_UID"); named == "0" && behind != "" {
			named = behind
		}
	}
	u, err := user.Lookup(named)
	if number, notNumber := strconv.ParseUint(named, 10, 31); err != nil && notNumber == nil {
		if u, err = user.LookupId(named); err != nil { // a number without a name
			return checked(&person{uid: int64(number), gid: int64(number), name: named})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("--user: %w", err)
	}
	p := &person{name: u.Username, home: u.HomeDir}
	if p.uid, err = strconv.ParseInt(u.Uid, 10, 64); err != nil {
		return nil, err
	}
	if p.gid, err = strconv.ParseInt(u.Gid, 10, 64); err != nil {
		return nil, err
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		if id, err := strconv.ParseInt(g, 10, 64); err == nil && id != p.gid && id != 0 {
			p.groups = append(p.groups, id)
		}
	}
	return checked(p)
}

func checked(p *person) (*person, error) {
	if p.uid == 0 {
		return nil, errors.New("root's jobs do not run on the machine's own root: name the person whose they are with --user")
	}
	if info, err := os.Stat(p.home); err != nil || !info.IsDir() || p.home == "/" || !ownedBy(p.home, p.uid) {
		p.home = ""
	}
	return p, nil
}

func ownedBy(path string, uid int64) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	status, ok := info.Sys().(*syscall.Stat_t)
	return ok && int64(status.Uid) == uid
}

// findHost finds the node that offers its root. That it is this machine is taken for granted: folders and people are
// looked up here.
func (s *submission) findHost(ctx context.Context, c *cluster.Client) error {
	if s.host == nil {
		return nil
	}
	if c == nil {
		return errors.New("--image host takes a cluster that 'elastic up --cards' started on this machine")
	}
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return fmt.Errorf("looking for the node that offers its root: %w", err)
	}
	i := slices.IndexFunc(nodes.Items, func(n corev1.Node) bool { return n.Annotations[hostRootAnnotation] != "" })
	if i < 0 {
		return errors.New("no node offers its machine's root as an image: 'elastic up --cards' does")
	}
	node := &nodes.Items[i]
	s.host.node, s.host.dir = node.Name, node.Annotations[hostRootAnnotation]
	s.host.folders = strings.Split(node.Annotations[hostFoldersAnnotation], ",")
	return nil
}

// apply has a pod run on the machine's root, as the person and with no right beyond theirs.
func (h *hostRoot) apply(pod, container map[string]any, given []string) {
	container["image"], container["imagePullPolicy"] = hostImageName, "Never"
	container["securityContext"] = map[string]any{
		"runAsUser": h.person.uid, "runAsGroup": h.person.gid, "runAsNonRoot": true, "allowPrivilegeEscalation": false,
		"readOnlyRootFilesystem": true, "capabilities": map[string]any{"drop": []any{"ALL"}},
		"seccompProfile": map[string]any{"type": "RuntimeDefault"},
	}
	volumes, _ := pod["volumes"].([]any)
	mounts, _ := container["volumeMounts"].([]any)
	add := func(name string, source map[string]any, at string, readOnly bool) {
		source["name"] = name
		volumes = append(volumes, source)
		mount := map[string]any{"name": name, "mountPath": at}
		if readOnly {
			mount["readOnly"] = true
		}
		mounts = append(mounts, mount)
	}
	folder := func(path string) map[string]any {
		return map[string]any{"hostPath": map[string]any{"path": path, "type": "Directory"}}
	}
	for i, name := range h.folders {
		add(fmt.Sprintf("host-%d", i), folder(filepath.Join(h.dir, name)), "/"+name, true)
	}
	add("tmp", map[string]any{"emptyDir": map[string]any{}}, "/tmp", false)
	if h.person.home != "" {
		add("home", folder(h.person.home), h.person.home, false)
	}
	if h.here != "" {
		add("here", folder(h.here), h.here, false)
	}
	pod["volumes"], container["volumeMounts"] = volumes, mounts
	env, _ := container["env"].([]any)
	for _, name := range slices.Sorted(maps.Keys(h.env)) {
		if !slices.ContainsFunc(given, func(pair string) bool { return strings.HasPrefix(pair, name+"=") }) {
			env = append(env, map[string]any{"name": name, "value": h.env[name]})
		}
	}
	container["env"] = env
	// The machine's network: its root has its names, and a workstation may have no bridges.
	pod["hostNetwork"], pod["automountServiceAccountToken"], pod["enableServiceLinks"] = true, false, false
	pod["nodeSelector"] = map[string]any{corev1.LabelHostname: h.node}
	if len(h.person.groups) > 0 {
		pod["securityContext"] = map[string]any{"supplementalGroups": h.person.groups}
	}
}
