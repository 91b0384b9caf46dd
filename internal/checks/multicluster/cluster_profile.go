package multicluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdlatest "k8s.io/client-go/tools/clientcmd/api/latest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// profileKind is what an inventory of clusters writes for each of them.
var profileKind = schema.GroupVersionKind{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Kind: "ClusterProfile"}

// execExtension is what a profile tells the program that gets credentials, in the words of client-go.
const execExtension = "client.authentication.k8s.io/exec"

// profiles reads ClusterProfiles. A profile says where a cluster is; which program gets its credentials, and how that is
// called, the configuration alone says. Messages are Kueue's.
type profiles struct {
	reader    client.Reader // nil where there is no such CRD
	namespace string
	providers []kueueconfig.ClusterProfileAccessProvider
}

// watchProfiles has those of one namespace watched by a cache of its own, whose rights need reach no further.
func watchProfiles(mgr ctrl.Manager, namespace string) (cache.Cache, error) {
	_, err := mgr.GetRESTMapper().RESTMapping(profileKind.GroupKind(), profileKind.Version)
	if apimeta.IsNoMatchError(err) {
		mgr.GetLogger().WithName("multikueue").Info("ClusterProfiles are not watched until the next start: there is no such CRD")
		return nil, nil //nolint:nilnil // nothing is to be watched
	}
	if err != nil {
		return nil, err
	}
	ours, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(), DefaultNamespaces: map[string]cache.Config{namespace: {}},
	})
	if err != nil {
		return nil, err
	}
	return ours, mgr.Add(ours)
}

func emptyProfile() client.Object {
	profile := &unstructured.Unstructured{}
	profile.SetGroupVersionKind(profileKind)
	return profile
}

// accessProvider is one way to reach a profile's cluster.
type accessProvider struct {
	Name    string              `json:"name"`
	Cluster clientcmdv1.Cluster `json:"cluster"`
}

// config of a cluster by its profile, and what it was made of.
func (p *profiles) config(ctx context.Context, name string) (*rest.Config, []byte, string, error) {
	access, err := p.read(ctx, name)
	if err != nil {
		return nil, nil, "BadClusterProfile", err
	}
	config, err := p.connect(access)
	if err != nil {
		return nil, nil, "BadClusterProfile", err
	}
	if !hasHostname(strings.ToLower(config.Host)) {
		return nil, nil, "BadRestConfig", errors.New("untrusted server endpoint")
	}
	text, err := json.Marshal(access)
	return config, text, "BadClusterProfile", err
}

// read finds the first provider of the configuration that the profile has, too.
func (p *profiles) read(ctx context.Context, name string) (accessProvider, error) {
	if p.reader == nil {
		return accessProvider{}, fmt.Errorf("no CRD of %s was installed when the program started", profileKind.GroupKind())
	}
	found := emptyProfile()
	if err := p.reader.Get(ctx, types.NamespacedName{Namespace: p.namespace, Name: name}, found); err != nil {
		return accessProvider{}, err
	}
	if len(p.providers) == 0 {
		return accessProvider{}, errors.New("no access provider configured")
	}
	text, err := json.Marshal(found)
	if err != nil {
		return accessProvider{}, err
	}
	var profile struct {
		Status struct {
			AccessProviders     []accessProvider `json:"accessProviders"`
			CredentialProviders []accessProvider `json:"credentialProviders"` // as older inventories call them
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &profile); err != nil {
		return accessProvider{}, err
	}
	for _, known := range p.providers {
		for _, has := range slices.Concat(profile.Status.AccessProviders, profile.Status.CredentialProviders) {
			if has.Name == known.Name {
				return has, nil
			}
		}
	}
	return accessProvider{}, fmt.Errorf("no matching cluster accessor found for cluster profile %q", name)
}

// connect has credentials come from the program that the configuration names. Of the profile it takes the address, the
// authority and what is meant for that program; none of it names a file or a command here.
func (p *profiles) connect(access accessProvider) (*rest.Config, error) {
	cluster := clientcmdapi.NewCluster()
	if err := clientcmdlatest.Scheme.Convert(&access.Cluster, cluster, nil); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(p.providers, func(known kueueconfig.ClusterProfileAccessProvider) bool { return known.Name == access.Name })
	program := p.providers[at].ExecConfig.DeepCopy()
	program.InteractiveMode = clientcmdapi.NeverExecInteractiveMode
	if about, given := cluster.Extensions[execExtension]; given {
		program.Config = about
	}
	config := &rest.Config{
		Host: cluster.Server, TLSClientConfig: rest.TLSClientConfig{CAData: cluster.CertificateAuthorityData}, ExecProvider: program,
	}
	if cluster.ProxyURL != "" {
		proxy, err := url.Parse(cluster.ProxyURL)
		if err != nil {
			return nil, err
		}
		config.Proxy = http.ProxyURL(proxy)
	}
	return config, nil
}

// validateProviders finds what no program could be started with.
func validateProviders(providers []kueueconfig.ClusterProfileAccessProvider) error {
	var problems []error
	for i, provider := range providers {
		at := fmt.Sprintf("multiKueue.clusterProfile.accessProviders[%d]", i)
		exec := provider.ExecConfig
		for field, value := range map[string]string{"name": provider.Name, "execConfig.command": exec.Command, "execConfig.apiVersion": exec.APIVersion} {
			if value == "" {
				problems = append(problems, fmt.Errorf("%s.%s: must be specified", at, field))
			}
		}
		switch exec.InteractiveMode {
		case clientcmdapi.NeverExecInteractiveMode, clientcmdapi.IfAvailableExecInteractiveMode, clientcmdapi.AlwaysExecInteractiveMode:
		default:
			problems = append(problems, fmt.Errorf("%s.execConfig.interactiveMode: %q must be Never, IfAvailable or Always", at, exec.InteractiveMode))
		}
	}
	return errors.Join(problems...)
}
