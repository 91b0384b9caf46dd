package visibility

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue"
)

// authority signs client certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{}
	a.cert, a.key = a.sign(t, "ca", true)
	return a
}

func (a authority) sign(t *testing.T, name string, ca bool) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IsCA: ca, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// stage is a queue that knows one workload, held back by one of another
// namespace.
type stage struct{}

func (stage) Explain(_ context.Context, key admission.Key) (v1alpha1.WorkloadStanding, error) {
	switch key.Name {
	case "elsewhere":
		return v1alpha1.WorkloadStanding{}, queue.ErrNotLeading
	case "job-a":
		return v1alpha1.WorkloadStanding{State: "Pending", HeldBy: []v1alpha1.WorkloadRef{
			{Namespace: "mine", Name: "job-b", Job: "job/b"}, {Namespace: "theirs", Name: "job-c", Job: "job/c", ClusterQueue: "cq"},
		}}, nil
	}
	return v1alpha1.WorkloadStanding{}, queue.ErrUnknown
}

func (stage) Plan(_ context.Context, wl *kueue.Workload) (v1alpha1.PlanStatus, error) {
	return v1alpha1.PlanStatus{StartsNow: *wl.Spec.Priority == 7, WorkloadStanding: v1alpha1.WorkloadStanding{LocalQueue: string(wl.Spec.QueueName)}}, nil
}

func (stage) PlanQuotas(_ context.Context, spec *v1alpha1.QuotaPlanSpec) (v1alpha1.QuotaPlanStatus, error) {
	if spec.Quotas[0].ClusterQueue == "nowhere" {
		return v1alpha1.QuotaPlanStatus{}, fmt.Errorf("%w: there is no queue nowhere", queue.ErrNotAsked)
	}
	return v1alpha1.QuotaPlanStatus{Pending: 2, Sooner: []v1alpha1.PlannedStart{
		{WorkloadRef: v1alpha1.WorkloadRef{Namespace: "mine", Name: "job-b", Job: "job/b"}}, {WorkloadRef: v1alpha1.WorkloadRef{Namespace: "theirs", Name: "job-c", Job: "job/c", ClusterQueue: "cq"}},
	}}, nil
}

func (stage) Budgets(_ context.Context, localQueue admission.Key) ([]v1alpha1.Budget, []v1alpha1.Spending, error) {
	if localQueue.Name != "main" {
		return nil, nil, queue.ErrUnknown
	}
	return []v1alpha1.Budget{{Target: "Cohort/org", Period: "Week", Spent: "3"}}, []v1alpha1.Spending{{Period: "Week", GPUHours: "2", Dollars: "5"}}, nil
}

func TestServer(t *testing.T) {
	api, stranger := newAuthority(t), newAuthority(t)
	frontCert, _ := api.sign(t, "front-proxy", false)
	nosy, _ := api.sign(t, "kubelet", false)
	foreign, _ := stranger.sign(t, "front-proxy", false)
	published := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"}, Data: map[string]string{
		"requestheader-client-ca-file":       string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.cert.Raw})),
		"requestheader-allowed-names":        `["front-proxy"]`,
		"requestheader-username-headers":     `["X-Remote-User"]`,
		"requestheader-group-headers":        `["X-Remote-Group"]`,
		"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	}}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "seven"}, Value: 7}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(published, class).WithInterceptorFuncs(interceptor.Funcs{
		// Ann may do what she likes in "mine", and nothing elsewhere; Eve may in all. Max may ask about quotas, and see "mine".
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
			review := obj.(*authorizationv1.SubjectAccessReview)
			review.Status.Allowed = review.Spec.Extra["scopes/a"][0] == "x" &&
				(review.Spec.User == "eve" || review.Spec.User == "ann" && review.Spec.ResourceAttributes.Namespace == "mine" ||
					review.Spec.User == "max" && (review.Spec.ResourceAttributes.Resource == "quotaplans" || review.Spec.ResourceAttributes.Namespace == "mine"))
			return nil
		},
	}).Build()
	server := New(c, c, Explanations(stage{}), Plans(stage{}, c), QuotaPlans(stage{}), Budgets(stage{}))
	const base = "/apis/visibility.elasticai.io/v1alpha1"
	for _, test := range []struct {
		name         string
		cert         *x509.Certificate
		user         string
		method, path string
		body         string
		code         int
		want         string
	}{
		{"no certificate", nil, "ann", "GET", "/namespaces/mine/explanations/job-a", "", 401, "come through the API server"},
		{"another CA's certificate", foreign, "ann", "GET", "/namespaces/mine/explanations/job-a", "", 401, "not the API server's"},
		{"another name", nosy, "ann", "GET", "/namespaces/mine/explanations/job-a", "", 401, "may not speak for users"},
		{"nobody", frontCert, "", "GET", "/namespaces/mine/explanations/job-a", "", 401, "does not name the user"},
		{"her own", frontCert, "ann", "GET", "/namespaces/mine/explanations/job-a", "", 200, `"heldBy":[{"namespace":"mine","name":"job-b","job":"job/b","priority":0},{"clusterQueue":"cq","priority":0}]`},
		{"one who sees all", frontCert, "eve", "GET", "/namespaces/mine/explanations/job-a", "", 200, `{"namespace":"theirs","name":"job-c","job":"job/c","clusterQueue":"cq","priority":0}`},
		{"her LocalQueue's budgets", frontCert, "ann", "GET", "/namespaces/mine/budgetreports/main", "", 200, `"budgets":[{"target":"Cohort/org","period":"Week"`},
		{"those of no LocalQueue", frontCert, "ann", "GET", "/namespaces/mine/budgetreports/other", "", 404, "not found"},
		{"another's budgets", frontCert, "ann", "GET", "/namespaces/theirs/budgetreports/main", "", 403, "may not get it"},
		{"another's", frontCert, "bob", "GET", "/namespaces/mine/explanations/job-a", "", 403, "may not get it"},
		{"not hers", frontCert, "ann", "GET", "/namespaces/theirs/explanations/job-c", "", 403, "may not get it"},
		{"unknown", frontCert, "ann", "GET", "/namespaces/mine/explanations/job-x", "", 404, "not found"},
		{"not leading", frontCert, "ann", "GET", "/namespaces/mine/explanations/elsewhere", "", 503, "does not lead"},
		{"discovery", frontCert, "ann", "GET", "", "", 200, `"name":"explanations","singularName":"","namespaced":true,"kind":"Explanation","verbs":["get"]`},
		{"wrong verb", frontCert, "ann", "DELETE", "/namespaces/mine/explanations/job-a", "", 404, "no such resource"},
		{"plan", frontCert, "ann", "POST", "/namespaces/mine/plans", `{"spec":{"workload":{"queueName":"main","podSets":[{"name":"main","count":1}],"priorityClassRef":{"kind":"WorkloadPriorityClass","name":"seven"}}}}`, 201, `"status":{"startsNow":true,"state":"","localQueue":"main"}`},
		{"plan with no such priority", frontCert, "ann", "POST", "/namespaces/mine/plans", `{"spec":{"workload":{"podSets":[{"name":"main","count":1}],"priorityClassRef":{"kind":"WorkloadPriorityClass","name":"eight"}}}}`, 400, "there is no WorkloadPriorityClass"},
		{"empty plan", frontCert, "ann", "POST", "/namespaces/mine/plans", `{}`, 400, "nothing to plan for"},
		{"quotas", frontCert, "max", "POST", "/quotaplans", `{"spec":{"quotas":[{"clusterQueue":"cq","nominal":"8"}]}}`, 201, `"sooner":[{"namespace":"mine","name":"job-b","job":"job/b","priority":0},{"clusterQueue":"cq","priority":0}]`},
		{"quotas of a queue that is not there", frontCert, "max", "POST", "/quotaplans", `{"spec":{"quotas":[{"clusterQueue":"nowhere"}]}}`, 400, "there is no queue nowhere"},
		{"no quotas", frontCert, "max", "POST", "/quotaplans", `{}`, 400, "nothing would change"},
		{"a tenant's question about quotas", frontCert, "ann", "POST", "/quotaplans", `{"spec":{"quotas":[{"clusterQueue":"cq","nominal":"8"}]}}`, 403, "may not create"},
		{"plan elsewhere", frontCert, "ann", "POST", "/namespaces/theirs/plans", `{}`, 403, "may not create"},
	} {
		request := httptest.NewRequest(test.method, base+test.path, strings.NewReader(test.body))
		if test.cert != nil {
			request.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{test.cert}}
		}
		request.Header.Set("X-Remote-User", test.user)
		request.Header.Set("X-Remote-Extra-Scopes%2fa", "x")
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, request)
		if answer.Code != test.code || !strings.Contains(answer.Body.String(), test.want) {
			t.Errorf("%s: got %d %s, want %d with %s", test.name, answer.Code, answer.Body.String(), test.code, test.want)
		}
		if !json.Valid(answer.Body.Bytes()) {
			t.Errorf("%s: no JSON: %s", test.name, answer.Body.String())
		}
		if test.code == http.StatusServiceUnavailable && answer.Header().Get("Retry-After") == "" {
			t.Errorf("%s: clients must be told to try again", test.name)
		}
	}
}
