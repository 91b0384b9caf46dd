// Package crds brings the CRDs of other projects' jobs into a test's cluster:
// from their own Go modules, at pinned versions, as the module proxy has them.
package crds

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/elastic-ai/elastic/deploy"
)

// source is where CRDs are found: files of a module.
type source struct {
	module string
	files  []string
	sum    string // for a module the checksum database does not know
}

const (
	trainingOperator    = "github.com/kubeflow/training-operator@v1.9.3"
	notebookController  = "github.com/kubeflow/kubeflow/components/notebook-controller"
	trainingOperatorOld = "github.com/kubeflow/training-operator@v1.8.1" // the last with MXJob
)

var upstream = []source{
	{module: "sigs.k8s.io/jobset@v0.12.0", files: []string{"config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"}},
	{module: trainingOperator, files: []string{
		"manifests/base/crds/kubeflow.org_tfjobs.yaml", "manifests/base/crds/kubeflow.org_pytorchjobs.yaml",
		"manifests/base/crds/kubeflow.org_xgboostjobs.yaml", "manifests/base/crds/kubeflow.org_paddlejobs.yaml",
		"manifests/base/crds/kubeflow.org_jaxjobs.yaml",
	}},
	{module: trainingOperatorOld, files: []string{"manifests/base/crds/kubeflow.org_mxjobs.yaml"}},
	{module: "github.com/kubeflow/mpi-operator@v0.7.0", files: []string{"manifests/base/kubeflow.org_mpijobs.yaml"}},
	{module: "github.com/kubeflow/trainer/v2@v2.2.0", files: []string{
		"manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
		"manifests/base/crds/trainer.kubeflow.org_clustertrainingruntimes.yaml",
		"manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml",
	}},
	{module: "github.com/ray-project/kuberay/ray-operator@v1.6.0", files: []string{
		"config/crd/bases/ray.io_rayclusters.yaml", "config/crd/bases/ray.io_rayjobs.yaml", "config/crd/bases/ray.io_rayservices.yaml",
	}},
	{module: "github.com/kubeflow/spark-operator/v2@v2.4.0", files: []string{"config/crd/bases/sparkoperator.k8s.io_sparkapplications.yaml"}},
	{module: "github.com/project-codeflare/appwrapper@v1.1.2", files: []string{"config/crd/bases/workload.codeflare.dev_appwrappers.yaml"}},
	{module: "sigs.k8s.io/lws@v0.7.0", files: []string{"config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml"}},
	{module: "github.com/kserve/kserve@v0.15.0", files: []string{"config/crd/minimal/serving.kserve.io_inferenceservices.yaml"}},
	{
		module: notebookController + "@v0.0.0-20220728153354-fc09bd1eefb8", sum: "h1:IPD3fr1CTTtpT5Z7udPfQgawCyHsWK9vytFHaBLjIUI=",
		files: []string{"config/crd/bases/kubeflow.org_notebooks.yaml"},
	},
	{module: "github.com/argoproj/argo-workflows/v3@v3.7.0", files: []string{"manifests/base/crds/minimal/argoproj.io_workflows.yaml"}},
}

var mpiJobV1 = []source{{module: trainingOperator, files: []string{"manifests/base/crds/kubeflow.org_mpijobs.yaml"}}}

// All are the CRDs of every kind of job that has one to be had.
func All() ([]*unstructured.Unstructured, error) {
	objects, err := load(upstream)
	if err != nil {
		return nil, err
	}
	made, err := volcano()
	return append(objects, made...), err
}

// Unchecked serves a kind of another project whose own CRD cannot be had as a module: whatever is in the object is taken.
func Unchecked(group, kind string) *unstructured.Unstructured {
	plural := strings.ToLower(kind) + "s"
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names": map[string]any{"kind": kind, "plural": plural, "singular": strings.ToLower(kind), "listKind": kind + "List"},
			"versions": []any{map[string]any{"name": "v1alpha1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		},
	}}
}

// volcano makes the CRD of Volcano's Job from the types of its module, in the
// way the project makes it: the module has no file of it.
func volcano() ([]*unstructured.Unstructured, error) {
	_, file, _, _ := runtime.Caller(0)
	cmd := exec.Command("go", "tool", "controller-gen", "crd:generateEmbeddedObjectMeta=true,maxDescLen=0",
		"paths=volcano.sh/apis/pkg/apis/batch/v1alpha1", "output:stdout")
	cmd.Dir = filepath.Join(filepath.Dir(file), "volcano")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("making the CRD of Volcano's Job: %w\n%s", err, stderr.String())
	}
	return deploy.Decode(out)
}

// MPIJobV1 is the MPIJob of the training operator, which a cluster has instead
// of the MPI operator's.
func MPIJobV1() ([]*unstructured.Unstructured, error) { return load(mpiJobV1) }

// CertManager are the kinds of cert-manager that the chart makes objects of.
func CertManager() ([]*unstructured.Unstructured, error) {
	return load([]source{{module: "github.com/cert-manager/cert-manager@v1.21.0", files: []string{
		"deploy/crds/cert-manager.io_certificates.yaml", "deploy/crds/cert-manager.io_issuers.yaml",
	}}})
}

// ProvisioningRequests is the kind by which cluster-autoscaler is asked for nodes.
func ProvisioningRequests() ([]*unstructured.Unstructured, error) {
	return load([]source{{module: "k8s.io/autoscaler/cluster-autoscaler/apis@v0.0.0-20240830133931-adfbe7e45277", files: []string{
		"config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml",
	}}})
}

// NodeClaims is the kind by which Karpenter is asked for a node.
func NodeClaims() ([]*unstructured.Unstructured, error) {
	return load([]source{{module: "sigs.k8s.io/karpenter@v1.14.1", files: []string{"pkg/apis/crds/karpenter.sh_nodeclaims.yaml"}}})
}

// Karpenter are all kinds that Karpenter and its simulated provider want.
func Karpenter() ([]*unstructured.Unstructured, error) {
	return load([]source{{module: "sigs.k8s.io/karpenter@v1.14.1", files: []string{
		"pkg/apis/crds/karpenter.sh_nodeclaims.yaml", "pkg/apis/crds/karpenter.sh_nodepools.yaml", "pkg/apis/crds/karpenter.sh_nodeoverlays.yaml",
		"pkg/apis/crds/autoscaling.x-k8s.io_capacitybuffers.yaml", "kwok/apis/crds/karpenter.kwok.sh_kwoknodeclasses.yaml",
	}}})
}

func load(sources []source) ([]*unstructured.Unstructured, error) {
	folders, err := download(sources)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for i, s := range sources {
		for _, name := range s.files {
			data, err := os.ReadFile(filepath.Join(folders[i], name))
			if err != nil {
				return nil, err
			}
			found, err := deploy.Decode(data)
			if err != nil {
				return nil, fmt.Errorf("%s of %s: %w", name, s.module, err)
			}
			objects = append(objects, found...)
		}
	}
	return objects, nil
}

// download fetches the modules, or finds them in the module cache.
func download(sources []source) ([]string, error) {
	args := []string{"mod", "download", "-json"}
	for _, s := range sources {
		args = append(args, s.module)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = os.TempDir() // in no module: the versions named count, and no others
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GONOSUMDB="+notebookController)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("downloading the modules with the CRDs: %w\n%s%s", err, out, stderr.String())
	}
	folders, sums := map[string]string{}, map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var module struct{ Path, Version, Dir, Sum string }
		err := decoder.Decode(&module)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		folders[module.Path+"@"+module.Version] = module.Dir
		sums[module.Path+"@"+module.Version] = module.Sum
	}
	var in []string
	for _, s := range sources {
		if folders[s.module] == "" {
			return nil, fmt.Errorf("go mod download said nothing of %s", s.module)
		}
		if s.sum != "" && sums[s.module] != s.sum {
			return nil, fmt.Errorf("%s has the checksum %s, not %s", s.module, sums[s.module], s.sum)
		}
		in = append(in, folders[s.module])
	}
	return in, nil
}
