package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/internal/version"
)

// A cluster on paper: it answers reads from a file of objects. The commands run
// as they are, down to the wire.
type paper struct{ objects []*unstructured.Unstructured }

// readPaper reads testdata/cluster.yaml, in which {{ago "3h30m"}} is a time.
func readPaper(t *testing.T) *paper {
	t.Helper()
	ago := func(text string) (string, error) {
		d, err := time.ParseDuration(text)
		return time.Now().Add(-d).UTC().Format(time.RFC3339), err
	}
	file, err := template.New("cluster.yaml").Funcs(template.FuncMap{"ago": ago}).ParseFiles("testdata/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := file.Execute(&text, nil); err != nil {
		t.Fatal(err)
	}
	objects, err := deploy.Decode(text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return &paper{objects}
}

// place is where an object is read: its collection, and its name.
func place(object *unstructured.Unstructured) (collection, name string) {
	plural, _ := apimeta.UnsafeGuessKindToResource(object.GroupVersionKind())
	group := "/apis/" + object.GetAPIVersion()
	if plural.Group == "" {
		group = "/api/" + object.GetAPIVersion()
	}
	return group + "/" + plural.Resource, object.GetName()
}

var inNamespace = regexp.MustCompile(`/namespaces/([^/]+)/`)

func (p *paper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reply := func(code int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body)
	}
	switch r.URL.Path {
	case "/version":
		reply(http.StatusOK, map[string]any{"gitVersion": "v1.37.1"})
		return
	case "/apis/visibility.elasticai.io/v1alpha1":
		reply(http.StatusOK, map[string]any{"kind": "APIResourceList"})
		return
	}
	namespace := ""
	if m := inNamespace.FindStringSubmatch(r.URL.Path); m != nil {
		namespace = m[1]
	}
	path := inNamespace.ReplaceAllString(r.URL.Path, "/")
	items, list := []any{}, map[string]any(nil)
	for _, object := range p.objects {
		collection, name := place(object)
		if path == collection {
			list = map[string]any{"kind": object.GetKind() + "List", "apiVersion": object.GetAPIVersion()}
		}
		switch {
		case namespace != "" && object.GetNamespace() != namespace:
		case path == collection+"/"+name:
			reply(http.StatusOK, object.Object)
			return
		case path == collection:
			items = append(items, object.Object)
		}
	}
	if list == nil {
		reply(http.StatusNotFound, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "message": "there is none", "code": http.StatusNotFound})
		return
	}
	list["items"] = items
	reply(http.StatusOK, list)
}

// Every table there is, in every form, as the commands print it from the
// cluster of testdata/cluster.yaml: each file of testdata/tables is a session of
// commands and what they print.
func TestTables(t *testing.T) {
	server := httptest.NewServer(readPaper(t))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: paper,
clusters: [{name: paper, cluster: {server: %q}}], contexts: [{name: paper, context: {cluster: paper, namespace: nlp}}]}`, server.URL), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", kubeconfig)
	files, err := filepath.Glob("testdata/tables/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sessions: %v", err)
	}
	said := ""
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		said += string(data)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { play(t, file) })
	}
	for _, cmd := range shown(Root("elastic")) {
		if !strings.Contains(said, "$ "+cmd) {
			t.Errorf("no session shows what %q prints", cmd)
		}
	}
}

// shown are the commands that print things of a cluster, but for those whose
// answers have golden files of their own: submit in job, plan in explain, and in
// test/cli what creates crons and scales.
func shown(cmd *cobra.Command) []string {
	var list []string
	for _, sub := range cmd.Commands() {
		if slices.Contains([]string{"submit", "plan", "scalein", "scaleout"}, sub.Name()) || sub.Flag("schedule") != nil {
			continue
		}
		if sub.Flag("output") != nil && sub.Flag("kubeconfig") != nil {
			list = append(list, sub.CommandPath())
		}
		list = append(list, shown(sub)...)
	}
	return list
}

// play runs the commands of a session and compares what they print.
func play(t *testing.T, file string) {
	t.Helper()
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(string(want)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "$" {
			continue
		}
		code, stdout, stderr := run(words[1], words[2:]...)
		got.WriteString(line)
		got.WriteString(steady(stdout + stderr))
		if code != 0 {
			fmt.Fprintf(&got, "(exit status %d)\n", code)
		}
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got.String() != string(want) {
		t.Errorf("the commands must print\n%s\nbut print\n%s", want, got.String())
	}
}

var (
	timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
	seconds   = regexp.MustCompile(`(?i)(seconds"?: )\d+`)
)

// steady leaves out what differs from run to run.
func steady(out string) string {
	out = strings.ReplaceAll(out, version.String(), "<version>")
	return seconds.ReplaceAllString(timestamp.ReplaceAllString(out, "<when>"), "${1}<n>")
}
