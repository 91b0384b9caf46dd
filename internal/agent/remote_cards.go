package agent

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/remotegpu"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/internal/gpu/request"
)

// remoteCards connects containers of this node with cards of others, and those of others with ours.
type remoteCards struct {
	node     *Node
	identity *remotegpu.Identity
	clients  *remotegpu.Clients
	client   client.Client
	// asking: who has proved nothing yet has the API server asked once at a time.
	asking sync.Mutex
}

// republish is how often it is looked whether the node still says how to reach its agent.
const republish = 30 * time.Second

// remoteClients is the backend of containers whose cards are on another node.
func (n *Node) remoteClients() (*remotegpu.Clients, error) {
	identity, err := remotegpu.NewIdentity(n.Name)
	if err != nil {
		return nil, err
	}
	r := &remoteCards{node: n, identity: identity}
	engines := map[string]remotegpu.Engine{}
	for name, files := range n.Config.Remote.Engines {
		engines[name] = remotegpu.Engine{Files: files}
	}
	if _, other := engines[request.DefaultEngine]; !other {
		if engines[request.DefaultEngine], err = n.ownEngine(); err != nil {
			return nil, err
		}
	}
	r.clients = &remotegpu.Clients{
		Dir: filepath.Join(n.Config.StateDir, "remote"), Engines: engines,
		Relay: &remotegpu.Relay{Identity: identity, Find: r.find, Log: n.Log.WithName("remote")},
	}
	n.remote = r
	return r.clients, nil
}

// clientVersion changes with the client's wire format: containers that run stay with the file they have.
const clientVersion = "3"

// ownEngine is native/remote, which is in the agent's image beside the library.
func (n *Node) ownEngine() (remotegpu.Engine, error) {
	engine := remotegpu.Engine{Files: map[string]string{}}
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	for _, name := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} {
		file, err := installLibrary(filepath.Join(filepath.Dir(n.Config.Library), name), filepath.Join(n.Config.StateDir, "lib", "remote-"+clientVersion))
		if err != nil {
			return remotegpu.Engine{}, err
		}
		// Where the loaders of Debian and of Red Hat look by themselves.
		for _, folder := range []string{"/usr/lib/" + triplet, "/usr/lib64"} {
			engine.Files[filepath.Join(folder, name)] = file
		}
	}
	return engine, nil
}

// RemoteCards runs what connects nodes; nil where cards of other nodes are not used.
func (n *Node) RemoteCards(c client.Client) manager.Runnable {
	if n.remote == nil {
		return nil
	}
	n.remote.client = c
	return n.remote
}

// Start serves until ctx ends. Programs come back to the next agent by themselves.
func (r *remoteCards) Start(ctx context.Context) error {
	log := r.node.Log.WithName("remote")
	defer r.clients.Relay.End()
	if err := r.clients.Resume(ctx); err != nil {
		log.Error(err, "a container's way to its card is not open again")
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.node.Config.Remote.BindAddress)
	if err != nil {
		return err
	}
	address, err := r.advertised(listener.Addr().String())
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	var publishing sync.WaitGroup
	publishing.Go(func() { r.publish(ctx, remoteAgent{address, r.identity.Authority()}) })
	defer publishing.Wait()
	defer cancel()
	gateway := &remotegpu.Gateway{Identity: r.identity, Peers: r.peers, Dial: r.dial, Served: r.served, Log: log}
	return gateway.Serve(ctx, listener)
}

// advertised is where other agents reach this one.
func (r *remoteCards) advertised(bound string) (string, error) {
	if a := r.node.Config.Remote.AdvertiseAddress; a != "" {
		return a, nil
	}
	host, port, err := net.SplitHostPort(bound)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = os.Getenv("POD_IP")
	}
	if host == "" {
		return "", errors.New("set devicePlugin.remote.advertiseAddress or $POD_IP: agents of other nodes must know where this one is")
	}
	return net.JoinHostPort(host, port), nil
}

// remoteAgent is how other agents reach and know one, in its node's annotation.
type remoteAgent struct {
	Address   string `json:"address"`
	Authority []byte `json:"authority"`
}

// publish on the node how to reach this agent, and again where somebody took it away.
func (r *remoteCards) publish(ctx context.Context, is remoteAgent) {
	text, err := json.Marshal(is)
	if err != nil {
		panic(err) // strings and bytes
	}
	for {
		node := &corev1.Node{}
		err := r.client.Get(ctx, client.ObjectKey{Name: r.node.Name}, node)
		if err == nil && node.Annotations[egpu.RemoteAgentAnnotation] != string(text) {
			before := node.DeepCopy()
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, egpu.RemoteAgentAnnotation, string(text))
			err = r.client.Status().Patch(ctx, node, client.MergeFrom(before))
		}
		wait := republish
		if err != nil && ctx.Err() == nil {
			r.node.Log.Error(err, "the node does not say yet how other agents reach this one, trying again")
			wait = time.Second
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// agentOf a node, as the node says.
func (r *remoteCards) agentOf(ctx context.Context, name string) (remoteAgent, error) {
	node, is := &corev1.Node{}, remoteAgent{}
	if err := r.node.Cache.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return is, err
	}
	text := node.Annotations[egpu.RemoteAgentAnnotation]
	if text == "" {
		return is, fmt.Errorf("node %s does not say how to reach its agent (annotation %s): does elastic-gpu-agent run there with devicePlugin.remote?", name, egpu.RemoteAgentAnnotation)
	}
	return is, json.Unmarshal([]byte(text), &is)
}

// device of a claim, as the API server has it now.
func (r *remoteCards) device(ctx context.Context, name string, claim string) (*egpu.ElasticGPU, error) {
	device := &egpu.ElasticGPU{}
	if err := r.node.API.Get(ctx, client.ObjectKey{Name: name}, device); err != nil {
		return nil, err
	}
	if ref := device.Spec.ClaimRef; ref == nil || string(ref.UID) != claim || !request.IsServed(device) {
		return nil, fmt.Errorf("ElasticGPU %s is another claim's by now", name)
	}
	return device, nil
}

// find where the card of a claim is.
func (r *remoteCards) find(ctx context.Context, to share.Remote) (remotegpu.Target, error) {
	device, err := r.device(ctx, to.Device, string(to.Claim))
	if err != nil {
		return remotegpu.Target{}, err
	}
	if device.Spec.RemoteGPU.NodeName == r.node.Name {
		return remotegpu.Target{Server: func(ctx context.Context) (*net.UnixConn, error) { return r.dialHere(ctx, string(to.Claim)) }}, nil
	}
	is, err := r.agentOf(ctx, device.Spec.RemoteGPU.NodeName)
	if err != nil {
		return remotegpu.Target{}, err
	}
	peers, err := remotegpu.Pool(is.Authority)
	return remotegpu.Target{Address: is.Address, Peers: peers}, err
}

// server is the slot that serves a claim here.
func (r *remoteCards) server(claim string) (slots.Grant, error) {
	grants, err := r.node.slots.Grants()
	if err != nil {
		return slots.Grant{}, err
	}
	at := slices.IndexFunc(grants, func(g slots.Grant) bool { return claim != "" && string(g.Serves) == claim })
	if at < 0 {
		return slots.Grant{}, remotegpu.ErrNotServed
	}
	return grants[at], nil
}

func (r *remoteCards) served(claim string) bool {
	_, err := r.server(claim)
	return err == nil
}

func (r *remoteCards) dial(ctx context.Context, claim string) (net.Conn, error) {
	server, err := r.dialServer(ctx, claim)
	if err != nil {
		return nil, err
	}
	return server, nil
}

// dialServer that has its share: it may have started just now, and listen in a moment.
func (r *remoteCards) dialServer(ctx context.Context, claim string) (*net.UnixConn, error) {
	for {
		grant, err := r.server(claim)
		if err != nil {
			return nil, err
		}
		server, err := remotegpu.DialSocket(ctx, r.node.shares.RunFolder(grant.ID), remotegpu.ServerSocket)
		if err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
			return server, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(socketPoll):
		}
	}
}

// How often it is looked for what is awaited: a server's socket, and a server.
const (
	socketPoll = 50 * time.Millisecond
	serverPoll = 200 * time.Millisecond
)

// awaitServer of a container that is about to start: its programs use the card at once, and one that finds none fails.
func (r *remoteCards) awaitServer(ctx context.Context, to *share.Remote) error {
	why := ""
	for {
		device, err := r.device(ctx, to.Device, string(to.Claim))
		switch {
		case err == nil && device.Status.Reason == egpu.ReasonServed:
			return nil
		case err == nil:
			why = device.Status.Message
		case ctx.Err() == nil:
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("ElasticGPU %s has no server yet: %s", to.Device, cmp.Or(why, "none is made"))
		case <-time.After(serverPoll):
		}
	}
}

// dialHere dials the server of a claim for a container of this node: on the same terms as for one of another.
func (r *remoteCards) dialHere(ctx context.Context, claim string) (*net.UnixConn, error) {
	nodes, err := r.userNodes(ctx, claim)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(nodes, r.node.Name) {
		return nil, errNoUser
	}
	return r.dialServer(ctx, claim)
}

var errNoUser = errors.New("no pod uses the claim")

// userNodes are the nodes where pods use a claim that is served here.
func (r *remoteCards) userNodes(ctx context.Context, claim string) ([]string, error) {
	r.asking.Lock()
	defer r.asking.Unlock()
	grant, err := r.server(claim)
	if err != nil {
		return nil, err
	}
	device, err := r.device(ctx, grant.Device, claim)
	if err != nil {
		return nil, err
	}
	pods := &corev1.PodList{}
	if err := r.node.API.List(ctx, pods, client.InNamespace(device.Spec.ClaimRef.Namespace)); err != nil {
		return nil, err
	}
	var nodes []string
	for i := range pods.Items {
		if on := pods.Items[i].Spec.NodeName; on != "" && !slices.Contains(nodes, on) && isUser(&pods.Items[i], device.Spec.ClaimRef.Name) {
			nodes = append(nodes, on)
		}
	}
	return nodes, nil
}

// peers are the agents of the nodes where pods use a claim that is served here.
func (r *remoteCards) peers(ctx context.Context, claim string) (*x509.CertPool, error) {
	nodes, err := r.userNodes(ctx, claim)
	if err != nil {
		return nil, err
	}
	var authorities [][]byte
	var unknown error
	for _, on := range nodes {
		is, err := r.agentOf(ctx, on)
		if err != nil {
			unknown = errors.Join(unknown, err)
			continue
		}
		authorities = append(authorities, is.Authority)
	}
	if len(authorities) == 0 {
		return nil, cmp.Or(unknown, errNoUser)
	}
	return remotegpu.Pool(authorities...)
}

// isUser says whether a pod uses a claim, and has not ended.
func isUser(pod *corev1.Pod, claim string) bool {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return !ended && slices.ContainsFunc(request.Uses(pod), func(u request.Use) bool { return u.Claim == claim })
}
