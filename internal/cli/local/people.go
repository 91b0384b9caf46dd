package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hostRootAnnotation is what a node says that offers its machine's root as an image.
const hostRootAnnotation = "elasticai.io/host-root"

// personKubeconfig lets a person of this machine use its cluster, and returns their kubeconfig: a namespace of their
// name with a queue, in which pods run as them (deploy/workstation).
func (c *Cluster) personKubeconfig(ctx context.Context, name string) ([]byte, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return nil, fmt.Errorf("%q cannot be a namespace: %s", name, problems[0])
	}
	if u.Uid == "0" {
		return nil, errors.New("root has the whole cluster: 'elastic kubeconfig' names its file")
	}
	admin, cluster, err := connect(c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	node := &corev1.Node{}
	if err := cluster.Get(ctx, client.ObjectKey{Name: NodeName}, node); err != nil || node.Annotations[hostRootAnnotation] == "" {
		return nil, fmt.Errorf("people share a cluster that 'elastic up --cards' started: %w", errors.Join(err, errors.New("no node offers this machine")))
	}
	objects, err := objectsOf(u, node.Annotations[hostRootAnnotation])
	if err != nil {
		return nil, err
	}
	if err := apply(ctx, cluster, objects); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(c.Dir, "person-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "kubeconfig")
	if err := writeKubeconfig(ctx, cluster, admin, client.ObjectKey{Namespace: name, Name: name}, "", file); err != nil {
		return nil, err
	}
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return nil, err
	}
	config.Contexts[config.CurrentContext].Namespace = name
	return clientcmd.Write(*config)
}

// objectsOf a person in the cluster.
func objectsOf(u *user.User, root string) ([]*unstructured.Unstructured, error) {
	groups, err := u.GroupIds()
	if err != nil {
		return nil, err
	}
	space := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	space.Name = u.Username
	space.Labels = map[string]string{"elasticai.io/person": "true"}
	space.Annotations = map[string]string{
		"elasticai.io/uid": u.Uid, "elasticai.io/gid": u.Gid, "elasticai.io/groups": strings.Join(groups, ","), "elasticai.io/home": u.HomeDir, hostRootAnnotation: root,
	}
	account := &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}}
	account.Namespace, account.Name = u.Username, u.Username
	list := []client.Object{space, account, localQueue(u.Username)}
	subject := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: u.Username, Name: u.Username}}
	for _, role := range []string{"edit", "kueue-batch-user-role"} {
		binding := &rbacv1.RoleBinding{TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"}}
		binding.Namespace, binding.Name, binding.Subjects = u.Username, "elastic-"+role, subject
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		list = append(list, binding)
	}
	everywhere := &rbacv1.ClusterRoleBinding{TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"}}
	everywhere.Name, everywhere.Subjects = "elastic-workstation-"+u.Username, subject
	everywhere.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "elastic-workstation-person"}
	return plain(append(list, everywhere))
}

// plain objects, to be applied.
func plain(list []client.Object) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, object := range list {
		fields, err := apiruntime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		delete(fields, "status")
		objects = append(objects, &unstructured.Unstructured{Object: fields})
	}
	return objects, nil
}
