package multicluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kubeconfigDir is where files must be if paths are validated.
const kubeconfigDir = "/etc/multikueue/kubeconfigs"

// sources reads kubeconfigs. Reasons and messages are Kueue's.
type sources struct {
	reader    client.Reader // uncached: Secrets do not stay in memory
	namespace string
	// folder limits paths to what is below it; "" for no limit.
	folder string
	// profiles say where clusters are; nil where ClusterProfiles are not read.
	profiles *profiles
}

// config of a cluster and the text it was made of, or the reason there is none.
func (s sources) config(ctx context.Context, cluster *kueue.MultiKueueCluster) (*rest.Config, []byte, string, error) {
	source := cluster.Spec.ClusterSource.KubeConfig
	if profile := cluster.Spec.ClusterSource.ClusterProfileRef; profile != nil && s.profiles != nil {
		return s.profiles.config(ctx, profile.Name)
	}
	if source == nil {
		return nil, nil, "MultiKueueClusterProfileFeatureDisabled", errors.New("MultiKueueClusterProfile feature gate is disabled")
	}
	read := s.fromSecret
	if source.LocationType == kueue.PathLocationType {
		read = s.fromFile
	}
	text, err := read(ctx, source.Location)
	if err != nil {
		return nil, nil, "BadKubeConfig", err
	}
	config, err := parse(text)
	if err != nil {
		return nil, nil, "InsecureKubeConfig", err
	}
	return config, text, "", nil
}

func (s sources) fromSecret(ctx context.Context, name string) ([]byte, error) {
	secret := &corev1.Secret{}
	err := s.reader.Get(ctx, types.NamespacedName{Namespace: s.namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "Secret"}, name) // in the words of a cache, as Kueue says it
	}
	if err != nil {
		return nil, err
	}
	text, found := secret.Data[kueue.MultiKueueConfigSecretKey]
	if !found {
		return nil, fmt.Errorf("key %q not found in secret %q", kueue.MultiKueueConfigSecretKey, name)
	}
	return text, nil
}

var errPathNotAllowed = errors.New("kubeconfig path is not under the allowed prefix")

func (s sources) fromFile(_ context.Context, path string) ([]byte, error) {
	if s.folder == "" {
		return os.ReadFile(path)
	}
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%w: path must be absolute", errPathNotAllowed)
	}
	folder, err := filepath.EvalSymlinks(s.folder)
	if err != nil {
		return nil, fmt.Errorf("%w: %q is not under %q", errPathNotAllowed, path, s.folder)
	}
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, fmt.Errorf("cannot resolve kubeconfig path symlinks: %w", err)
	}
	if !strings.HasPrefix(file, folder+string(filepath.Separator)) {
		return nil, fmt.Errorf("%w: %q is not under %q", errPathNotAllowed, file, folder)
	}
	return os.ReadFile(file)
}

// parse reads a kubeconfig that someone else has written: it must not make this program read files,
// run programs, or trust an unverified server.
func parse(text []byte) (*rest.Config, error) {
	file, err := clientcmd.Load(text)
	if err != nil {
		return nil, fmt.Errorf("failed to parse kubeconfig(apiconfig): %w", err)
	}
	for _, user := range file.AuthInfos {
		if user.TokenFile != "" {
			return nil, errors.New("tokenFile is not allowed")
		}
		if user.ClientCertificate != "" || user.ClientKey != "" {
			return nil, errors.New("client certificate file paths are not allowed, use client-certificate-data and client-key-data")
		}
	}
	for name, cluster := range file.Clusters {
		switch {
		case cluster.InsecureSkipTLSVerify:
			return nil, fmt.Errorf("insecure TLS verification is not allowed for cluster %s", name)
		case cluster.CertificateAuthority != "":
			return nil, fmt.Errorf("certificate-authority file paths are not allowed, use certificate-authority-data for cluster %s", name)
		case cluster.Server == "":
			return nil, fmt.Errorf("server URL is required for cluster %s", name)
		}
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return nil, err
	}
	switch {
	case !hasHostname(strings.ToLower(config.Host)):
		return nil, errors.New("untrusted server endpoint")
	case config.Username != "" || config.Password != "":
		return nil, errors.New("basic auth is not allowed")
	case config.ExecProvider != nil:
		return nil, errors.New("exec plugins are not allowed")
	case config.AuthProvider != nil:
		return nil, errors.New("auth providers are not allowed")
	}
	return config, nil
}

func hasHostname(server string) bool {
	at, err := url.Parse(server)
	if err != nil {
		return false
	}
	host := at.Hostname()
	return net.ParseIP(host) != nil || len(validation.IsDNS1123Subdomain(host)) == 0
}
