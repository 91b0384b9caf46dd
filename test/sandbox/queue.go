package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/local"
)

// Queue is elastic-queue as it runs now.
func (c *Cluster) Queue(t *testing.T) local.ProgramState {
	t.Helper()
	return c.queue(t, 0)
}

// queue that runs now and is not the process that it was.
func (c *Cluster) queue(t *testing.T, was int) (runs local.ProgramState) {
	t.Helper()
	here := &local.Cluster{Dir: filepath.Join(c.Dir, "test")}
	Eventually(t, "elastic-queue runs", func(context.Context) error {
		state, err := here.State()
		if err != nil {
			return err
		}
		for _, p := range state.Programs {
			if p.Name == "elastic-queue" && p.PID != was && syscall.Kill(p.PID, 0) == nil {
				runs = p
				return nil
			}
		}
		return fmt.Errorf("programs are %v", state.Programs)
	})
	return runs
}

// QueueConfiguration is what elastic-queue runs with.
func (c *Cluster) QueueConfiguration(t *testing.T) *v1alpha1.QueueConfiguration {
	t.Helper()
	data, err := os.ReadFile(configurationFile(c.Queue(t)))
	if err != nil {
		t.Fatal(err)
	}
	cfg := &v1alpha1.QueueConfiguration{}
	if err := yaml.UnmarshalStrict(data, cfg); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func configurationFile(of local.ProgramState) string {
	return filepath.Join(filepath.Dir(of.Log), "config.yaml")
}

// Reconfigure has elastic-queue start again with another configuration.
func (c *Cluster) Reconfigure(t *testing.T, change func(*v1alpha1.QueueConfiguration)) {
	t.Helper()
	was, cfg := c.Queue(t), c.QueueConfiguration(t)
	change(cfg)
	data, err := yaml.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(configurationFile(was), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(was.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.queue(t, was.PID)
}

// Backdate has a condition of a workload begin earlier than it did. Nothing else says since when, so a
// test need not wait.
func (c *Cluster) Backdate(t *testing.T, wl *kueue.Workload, condition string, by time.Duration) {
	t.Helper()
	Eventually(t, condition+" of "+wl.Name+" begins "+by.String()+" earlier", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		since := apimeta.FindStatusCondition(wl.Status.Conditions, condition)
		if since == nil {
			return fmt.Errorf("conditions are %v", wl.Status.Conditions)
		}
		since.LastTransitionTime.Time = since.LastTransitionTime.Add(-by)
		return c.Status().Update(ctx, wl)
	})
}
