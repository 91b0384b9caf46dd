package nominalquota

import (
	"net/http"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// In a cluster that has Kueue's CRDs alone nothing watches QueuePolicies: a watch of what is not there ends the program when
// its informer has not synced in time. Where they are, the controller is there: a second of its name is refused.
func TestClustersWithoutPolicies(t *testing.T) {
	scheme := runtime.NewScheme()
	utilruntime.Must(kueue.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	for _, installed := range []bool{false, true} {
		mapper := apimeta.NewDefaultRESTMapper(nil)
		if installed {
			mapper.Add(v1alpha1.GroupVersion.WithKind("QueuePolicy"), apimeta.RESTScopeRoot)
		}
		mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{
			Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
			MapperProvider: func(*rest.Config, *http.Client) (apimeta.RESTMapper, error) { return mapper, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := Setup(mgr); err != nil {
			t.Fatal(err)
		}
		if err := Setup(mgr); (err != nil) != installed {
			t.Errorf("installed %t: the second time: %v", installed, err)
		}
	}
}
