package main

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var one = resource.NewQuantity(1, resource.DecimalSI)

// testWebhook: the API server asks a webhook at a loopback URL.
func testWebhook(t *testing.T, p *process) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "refused by the test"}}
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	url, none, fail := server.URL+"/validate", admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail
	client := p.client(t)
	_, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "test"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "refuse.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      &url,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"podtemplates"}},
			}},
			FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tries := 0
	eventually(t, "the webhook refuses", func() bool {
		tries++
		_, err := client.CoreV1().PodTemplates("default").Create(t.Context(), &corev1.PodTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("t%d", tries)},
			Template:   corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		}, metav1.CreateOptions{})
		return err != nil && strings.Contains(err.Error(), "refused by the test")
	})
	if err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), "test", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testAggregation: an API served by a program on loopback is reached through the
// API server, which passes the user on.
func testAggregation(t *testing.T, p *process) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "test.example.com/v1", "resources": []any{},
			"user": r.Header.Get("X-Remote-User"),
		})
	}))
	t.Cleanup(server.Close)
	_, text, _ := net.SplitHostPort(server.Listener.Addr().String())
	port, _ := strconv.Atoi(text)
	manifest := fmt.Sprintf(`{"apiVersion":"v1","kind":"List","items":[
		{"apiVersion":"v1","kind":"Service","metadata":{"name":"test-api","namespace":"default"},
		 "spec":{"type":"ExternalName","externalName":"localhost"}},
		{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.test.example.com"},
		 "spec":{"group":"test.example.com","version":"v1","groupPriorityMinimum":100,"versionPriority":100,
		 "insecureSkipTLSVerify":true,"service":{"name":"test-api","namespace":"default","port":%d}}}]}`, port)
	file := t.TempDir() + "/api.json"
	write(t, file, manifest)
	p.kubectl(t, "create", "-f", file)
	client := p.client(t)
	var answer []byte
	eventually(t, "the aggregated API answers", func() bool {
		var err error
		answer, err = client.Discovery().RESTClient().Get().AbsPath("/apis/test.example.com/v1").DoRaw(t.Context())
		return err == nil
	})
	if !strings.Contains(string(answer), `"user":"sandbox-admin"`) {
		t.Errorf("the API does not learn the user: %s", answer)
	}
	p.kubectl(t, "delete", "-f", file)
}
