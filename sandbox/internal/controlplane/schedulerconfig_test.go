package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

const userConfig = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {qps: 7}
leaderElection: {leaderElect: true}
extenders:
- urlPrefix: http://127.0.0.1:1
  filterVerb: filter
profiles:
- schedulerName: mine
`

// TestSchedulerConfig reads what is written the way the scheduler does.
func TestSchedulerConfig(t *testing.T) {
	dir := t.TempDir()
	user := filepath.Join(dir, "user.yaml")
	if err := os.WriteFile(user, []byte(userConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file      string
		qps       float32
		profile   string
		extenders int
	}{
		"own":    {"", clientQPS, "default-scheduler", 0},
		"user's": {user, 7, "mine", 1},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "scheduler.yaml")
			if err := writeSchedulerConfig(path, c.file, "/k"); err != nil {
				t.Fatal(err)
			}
			got, err := scheduleroptions.LoadConfigFromFile(klog.Background(), path)
			if err != nil {
				t.Fatal(err)
			}
			if got.ClientConnection.Kubeconfig != "/k" || got.ClientConnection.QPS != c.qps || got.LeaderElection.LeaderElect {
				t.Errorf("got %+v, leader election %v", got.ClientConnection, got.LeaderElection.LeaderElect)
			}
			if got.Profiles[0].SchedulerName != c.profile || len(got.Extenders) != c.extenders {
				t.Errorf("got profile %s and %d extenders", got.Profiles[0].SchedulerName, len(got.Extenders))
			}
		})
	}
}

func TestSchedulerConfigNamesTheFile(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("a: [b"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{bad, bad + ".missing"} {
		err := writeSchedulerConfig(filepath.Join(t.TempDir(), "out"), file, "/k")
		if err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: got %v", file, err)
		}
	}
}
