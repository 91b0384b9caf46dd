package controlplane

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// writeSchedulerConfig writes the scheduler's configuration file: the user's,
// where one is given, with the connection and the leader election of a sandbox.
func writeSchedulerConfig(path, userFile, kubeconfig string) error {
	config := map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1",
		"kind":       "KubeSchedulerConfiguration",
	}
	if userFile != "" {
		data, err := os.ReadFile(userFile)
		if err != nil {
			return fmt.Errorf("scheduler configuration: %w", err)
		}
		if err := yaml.Unmarshal(data, &config); err != nil {
			return fmt.Errorf("scheduler configuration %s: %w", userFile, err)
		}
	}
	connection := section(config, "clientConnection")
	connection["kubeconfig"] = kubeconfig
	for key, value := range map[string]any{"qps": clientQPS, "burst": clientBurst} {
		if _, given := connection[key]; !given {
			connection[key] = value
		}
	}
	section(config, "leaderElection")["leaderElect"] = false
	// Its profile of every lock would be paid for by the whole process.
	if _, given := config["enableContentionProfiling"]; !given {
		config["enableContentionProfiling"] = false
	}
	data, err := yaml.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

func section(config map[string]any, name string) map[string]any {
	s, ok := config[name].(map[string]any)
	if !ok {
		s = map[string]any{}
		config[name] = s
	}
	return s
}
