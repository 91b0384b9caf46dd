package web

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"sigs.k8s.io/yaml"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/internal/certs"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// page is elastic-web as the chart runs it, beside two teams.
type page struct {
	*sandbox.Cluster
	address string
	mutual  certs.Mutual // of the page and of the proxy in front of it
}

// TestInCluster has two teams look at one server: by tokens, and through a proxy.
func TestInCluster(t *testing.T) {
	p := &page{Cluster: sandbox.For(t, sandbox.Options{})}
	p.Make(t, sandbox.Flavor("any", nil), sandbox.ClusterQueue("red", "any", "2"), sandbox.ClusterQueue("blue", "any", "2"))
	for _, team := range []string{"red", "blue"} {
		p.Make(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}, sandbox.LocalQueue(team, "main", team))
		job := sandbox.Job(team, team+"-secret", "main", 1, "1")
		p.Make(t, job)
		p.WorkloadOf(t, job) // there is something to see
		p.Make(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "ada"}},
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "look"}, Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{"kueue.x-k8s.io"}, Resources: []string{"workloads", "localqueues"}, Verbs: []string{"get", "list", "watch"}},
				{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
			}},
			&rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "look"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "look"},
				Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: team, Name: "ada"}, {Kind: "Group", APIGroup: rbacv1.GroupName, Name: "team-" + team}},
			})
	}
	p.serve(t)

	red, blue := p.token(t, "red", "ada"), p.token(t, "blue", "ada")
	for team, token := range map[string]string{"red": red, "blue": blue} {
		client := p.browser(t, nil)
		seen := p.seen(t, client, "", http.Header{"Authorization": {"Bearer " + token}})
		other := map[string]string{"red": "blue", "blue": "red"}[team]
		if !strings.Contains(seen, team+"-secret") || strings.Contains(seen, other+"-secret") {
			t.Errorf("%s sees %s", team, seen)
		}
		// Asking for the other's namespace does not help.
		if seen := p.seen(t, client, "?namespaces="+other, http.Header{"Authorization": {"Bearer " + token}}); strings.Contains(seen, other+"-secret") {
			t.Errorf("%s sees %s", team, seen)
		}
	}
	forged := http.Header{"X-Remote-User": {"eva"}, "X-Remote-Group": {"team-red"}}
	if code, body := p.ask(t, p.browser(t, nil), "/api/me", forged); code != http.StatusUnauthorized {
		t.Errorf("headers without a certificate: %d %s", code, body)
	}
	proxy, err := tls.X509KeyPair(p.mutual.ClientCertificate, p.mutual.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	front := p.browser(t, &proxy)
	if seen := p.seen(t, front, "?namespaces=red,blue", forged); !strings.Contains(seen, "red-secret") || strings.Contains(seen, "blue-secret") {
		t.Errorf("one of team-red sees %s", seen)
	}
	if code, body := p.ask(t, front, "/api/me", http.Header{"X-Remote-User": {"eva"}, "X-Remote-Group": {"system:masters"}}); code != http.StatusUnauthorized {
		t.Errorf("a group of Kubernetes' own: %d %s", code, body)
	}
	if os.Getenv("ELASTIC_BROWSER") != "" {
		browse(t, "cluster.test.mjs", "ELASTIC_LINK=https://"+p.address, "ELASTIC_RED="+red, "ELASTIC_BLUE="+blue)
	}
}

// serve starts the program with its own account, and the rights to impersonate and to read queues, which are all that it has.
func (p *page) serve(t *testing.T) {
	t.Helper()
	for _, folder := range []string{"web", "web-proxy", "web-history"} {
		objects, err := deploy.Program(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			p.Make(t, object)
		}
	}
	var err error
	if p.mutual, err = certs.MakeMutual("elastic-web", []string{"127.0.0.1"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("tls.crt", p.mutual.ServerCertificate)
	write("tls.key", p.mutual.ServerKey)
	cfg := v1alpha1.NewWebConfiguration()
	cfg.BindAddress, cfg.Health.BindAddress, cfg.CertDir = "127.0.0.1:0", "127.0.0.1:0", dir
	cfg.History = true
	cfg.Proxy = &v1alpha1.AuthenticatingProxy{ClientCAFile: write("ca.crt", p.mutual.CA), AllowedNames: []string{"kube-scheduler"}} // as MakeMutual calls the client
	file, err := yaml.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := write("kubeconfig", kubeconfigOf(t, p.REST, p.token(t, "elastic-queue", "elastic-web")))
	cmd := exec.Command(filepath.Join(sandbox.Root(), "bin", "elastic-web"), "--config", write("web.yaml", file), "--kubeconfig", kubeconfig, "--until-stdin-closes", "--log-format=json")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stderr)
	for p.address == "" && lines.Scan() {
		var line struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving the page" {
			p.address = line.Address
		}
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	if _, _, err := net.SplitHostPort(p.address); err != nil {
		t.Fatal("elastic-web ended before it served")
	}
}

func kubeconfigOf(t *testing.T, config *rest.Config, token string) []byte {
	t.Helper()
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"it": {Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"me": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"it": {Cluster: "it", AuthInfo: "me"}},
		CurrentContext: "it",
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (p *page) token(t *testing.T, namespace, name string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := p.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// browser is a client that knows the page's certificate, and shows one of its own if it has one.
func (p *page) browser(t *testing.T, own *tls.Certificate) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.mutual.CA)
	config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if own != nil {
		config.Certificates = []tls.Certificate{*own}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (p *page) ask(t *testing.T, c *http.Client, path string, headers http.Header) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = headers
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// seen is all that the stream sends before it says that this is all.
func (p *page) seen(t *testing.T, c *http.Client, query string, headers http.Header) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://%s/api/stream%s", p.address, query), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = headers
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var all strings.Builder
	for lines := bufio.NewReader(answer.Body); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ended: %v after %s", err, all.String())
		}
		if strings.TrimSpace(line) == "event: ready" {
			return all.String()
		}
		all.WriteString(line)
	}
}
