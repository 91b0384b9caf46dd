// Package deploy holds what is installed into a cluster: the CRDs, and per
// program its service account, roles and webhooks. The files are the plain
// manifests; this package only reads them, and points webhooks elsewhere where
// a program runs outside the cluster.
package deploy

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

//go:embed crd/*.yaml queue/*.yaml gpu-scheduler/*.yaml gpu-scheduler/workload/*.yaml scheduler/*.yaml gpu-agent/*.yaml gpu-agent-dra/*.yaml gpu-agent-simulated/*.yaml gpu-remote/*.yaml workstation/*.yaml web/*.yaml web-proxy/*.yaml web-history/*.yaml samples/*.yaml
var files embed.FS

// converted are the CRDs whose versions differ, so that the API server asks
// elastic-queue to convert between them.
var converted = []string{
	"clusterqueues.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io",
	"multikueueclusters.kueue.x-k8s.io", "workloads.kueue.x-k8s.io",
}

// webhookService is where in-cluster webhooks go; label marks objects whose
// caBundle the program fills in.
const (
	webhookNamespace = "elastic-queue"
	webhookService   = "elastic-queue-webhook-service"
	label            = "elasticai.io/webhooks-of"
	queueWebhooks    = "elastic-queue-webhooks"
)

// CRDs are the definitions of all kinds.
func CRDs() ([]*unstructured.Unstructured, error) {
	objects, err := read("crd")
	if err != nil {
		return nil, err
	}
	for _, crd := range objects {
		if !slices.Contains(converted, crd.GetName()) {
			continue
		}
		crd.SetLabels(map[string]string{label: queueWebhooks})
		conversion := map[string]any{
			"strategy": "Webhook",
			"webhook": map[string]any{
				"conversionReviewVersions": []any{"v1"},
				"clientConfig": map[string]any{"service": map[string]any{
					"namespace": webhookNamespace, "name": webhookService, "path": "/convert",
				}},
			},
		}
		if err := unstructured.SetNestedMap(crd.Object, conversion, "spec", "conversion"); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// Program is what one program needs in the cluster besides its workload:
// the folder's name is the program's short one ("queue").
func Program(name string) ([]*unstructured.Unstructured, error) { return read(name) }

// Sample is an example by its file's name, without the ending.
func Sample(name string) ([]*unstructured.Unstructured, error) {
	return readFile("samples/" + name + ".yaml")
}

// SchedulerConfiguration is kube-scheduler's, with the GPU scheduler as its
// extender at a URL, asked with a certificate.
func SchedulerConfiguration(base string, ca, certificate, key []byte) ([]byte, error) {
	objects, err := readFile("gpu-scheduler/workload/kube-scheduler.yaml")
	if err != nil {
		return nil, err
	}
	for _, extender := range objects[0].Object["extenders"].([]any) {
		e := extender.(map[string]any)
		e["urlPrefix"] = strings.TrimSuffix(base, "/") + "/scheduler"
		e["tlsConfig"] = map[string]any{"caData": ca, "certData": certificate, "keyData": key}
	}
	return json.Marshal(objects[0].Object)
}

// PointWebhooksTo makes a program's webhooks among the objects go to a URL
// instead of the service in the cluster.
func PointWebhooksTo(program, base string, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if object.GetLabels()[label] != program+"-webhooks" {
			continue
		}
		switch object.GetKind() {
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			hooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
			if err != nil {
				return err
			}
			for _, hook := range hooks {
				redirect(hook.(map[string]any)["clientConfig"], base)
			}
			if err := unstructured.SetNestedSlice(object.Object, hooks, "webhooks"); err != nil {
				return err
			}
		case "CustomResourceDefinition":
			config, found, err := unstructured.NestedMap(object.Object, "spec", "conversion", "webhook", "clientConfig")
			if err != nil {
				return err
			}
			if !found {
				continue
			}
			redirect(config, base)
			if err := unstructured.SetNestedMap(object.Object, config, "spec", "conversion", "webhook", "clientConfig"); err != nil {
				return err
			}
		case "Service", "APIService":
			if err := toThisMachine(object, base); err != nil {
				return err
			}
		}
	}
	return nil
}

// toThisMachine makes a service a name for this machine, and the part of the
// API behind it one on that port: an APIService can name no URL.
func toThisMachine(object *unstructured.Unstructured, base string) error {
	to, err := url.Parse(base)
	if err != nil {
		return err
	}
	port, err := strconv.ParseInt(to.Port(), 10, 64)
	if err != nil {
		return fmt.Errorf("%s has no port: %w", base, err)
	}
	if object.GetKind() == "APIService" {
		return unstructured.SetNestedField(object.Object, port, "spec", "service", "port")
	}
	object.Object["spec"] = map[string]any{
		"type": "ExternalName", "externalName": "localhost",
		"ports": []any{map[string]any{"name": "webhook", "port": port}},
	}
	return nil
}

func redirect(clientConfig any, base string) {
	config := clientConfig.(map[string]any)
	path, _, _ := unstructured.NestedString(config, "service", "path")
	delete(config, "service")
	config["url"] = strings.TrimSuffix(base, "/") + path
}

func read(folder string) ([]*unstructured.Unstructured, error) {
	names, err := fs.Glob(files, folder+"/*.yaml")
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("nothing to deploy is called %q", folder)
	}
	var objects []*unstructured.Unstructured
	for _, name := range names {
		more, err := readFile(name)
		if err != nil {
			return nil, err
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

func readFile(name string) ([]*unstructured.Unstructured, error) {
	data, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	objects, err := Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return objects, nil
}

// Decode reads the objects of a YAML or JSON stream.
func Decode(data []byte) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	var objects []*unstructured.Unstructured
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(raw) == 0 {
			continue // a document of comments alone
		}
		object := &unstructured.Unstructured{}
		if err := utiljson.Unmarshal(raw, &object.Object); err != nil { // whole numbers stay whole
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}
