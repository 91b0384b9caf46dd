package job

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

// Volume is a PersistentVolumeClaim that jobs can mount with --data. Its annotations say to whom it
// belongs and what is on it.
type Volume struct {
	Name        string   `json:"name"`
	Namespace   string   `json:"namespace"`
	AccessModes []string `json:"accessModes"`
	Description string   `json:"description,omitempty"`
	Owner       string   `json:"owner,omitempty"`
	Seconds     int64    `json:"ageSeconds"`
}

func dataCommand(flags *cluster.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "data", Short: "Show the volumes that jobs can mount"}
	var all bool
	list := cluster.List[Volume]{
		What: "volumes", Name: func(v *Volume) string { return "persistentvolumeclaim/" + v.Name },
		Read: func(ctx context.Context, c *cluster.Client) ([]Volume, error) {
			if all {
				return volumesOf(ctx, c, "", time.Now())
			}
			return volumesOf(ctx, c, c.Namespace, time.Now())
		},
		Print: func(s output.Writer, volumes []Volume, wide bool) { volumeTable(volumes, all).Print(s, wide) },
	}.Make(&cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List the volumes that are ready", Example: "  elastic data list"}, flags)
	allNamespaces(list, &all)
	cmd.AddCommand(list)
	return cmd
}

func volumesOf(ctx context.Context, c client.Reader, namespace string, now time.Time) ([]Volume, error) {
	claims := &corev1.PersistentVolumeClaimList{}
	if err := c.List(ctx, claims, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	volumes := []Volume{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.DeletionTimestamp != nil || claim.Status.Phase != corev1.ClaimBound {
			continue
		}
		v := Volume{
			Name: claim.Name, Namespace: claim.Namespace, Description: claim.Annotations["description"], Owner: claim.Annotations["owner"],
			Seconds: int64(now.Sub(claim.CreationTimestamp.Time).Seconds()), AccessModes: []string{},
		}
		for _, mode := range claim.Spec.AccessModes {
			if !slices.Contains(v.AccessModes, string(mode)) {
				v.AccessModes = append(v.AccessModes, string(mode))
			}
		}
		volumes = append(volumes, v)
	}
	return volumes, nil
}

func volumeTable(volumes []Volume, all bool) *output.Table {
	t := &output.Table{Columns: []output.Column{{Name: "NAME", Cut: true}, {Name: "ACCESSMODE"}, {Name: "DESCRIPTION", Cut: true}, {Name: "OWNER"}, {Name: "AGE"}}}
	if all {
		t.Columns = slices.Insert(t.Columns, 1, output.Column{Name: "NAMESPACE", Cut: true})
	}
	for _, v := range volumes {
		cells := []any{v.Name, strings.Join(v.AccessModes, ","), v.Description, v.Owner, output.Duration(time.Duration(v.Seconds) * time.Second)}
		if all {
			cells = slices.Insert(cells, 1, any(v.Namespace))
		}
		t.Add(cells...)
	}
	return t
}
