package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// Commands are the ones that start, end and use local clusters. page serves the page of one that is up.
func Commands(page Page) []*cobra.Command {
	return []*cobra.Command{upCommand(page), downCommand(), statusCommand(), kubeconfigCommand(), kubectlCommand(), loadImageCommand()}
}

// defaultNodes is a small cluster with two kinds of cards.
const defaultNodes = "2x8:H100-80G,4x4:A100-40G,2x0"

func addName(cmd *cobra.Command, name *string) {
	otherwise := DefaultName
	if env := os.Getenv("ELASTIC_NAME"); env != "" {
		otherwise = env
	}
	cmd.Flags().StringVar(name, "name", otherwise, "which local cluster; several run side by side (default also from $ELASTIC_NAME)")
}

func upCommand(page Page) *cobra.Command {
	var name string
	var detach bool
	options := UpOptions{Page: page}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start Kubernetes with simulated GPU nodes and Elastic on this machine",
		Long: `Start a real Kubernetes control plane with simulated GPU nodes, and Elastic's
programs in it, on this machine. Nothing else needs to be installed.

Without --detach it runs until Ctrl-C, which ends everything it started.`,
		Example: `  # A small cluster, in this terminal
  elastic up

  # In the background: 4 nodes with 8 H100, 8 nodes with 4 A100, 100 without cards
  elastic up --detach --nodes 4x8:H100-80G,8x4:A100-40G,100x0

  # A second one beside it
  elastic up --detach --name b

  # With two clouds to buy nodes from when the own ones are full, all simulated
  elastic up --detach --clouds

  # With a real kubelet and containers beside the simulated nodes (Linux, root)
  make build-node && elastic up --real-node

  # The cards of this machine, for several people (Linux, root)
  make build-node && elastic up --detach --cards`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := Open(name)
			if err != nil {
				return err
			}
			options.Out = cmd.OutOrStdout()
			if err := options.askForCards(cmd); err != nil {
				return err
			}
			if options.Cards && options.Clouds {
				return errors.New("--clouds sells simulated nodes, which run nothing beside the real one of --cards: leave one out")
			}
			if options.Cards && !cmd.Flags().Changed("nodes") {
				options.Nodes = "" // none is simulated beside real cards
			}
			switch {
			case detach:
				err = cluster.detach(cmd.Context(), options)
			case options.Cards:
				if err = options.useCards(cmd.Context()); err != nil {
					return err
				}
				fallthrough
			default:
				err = cluster.Up(cmd.Context(), options, func(State) { cluster.next(options) })
			}
			if running := (*AlreadyRunning)(nil); errors.As(err, &running) {
				fmt.Fprintf(options.Out, "Cluster %q: %v.\n", name, running)
				cluster.next(options)
				return nil
			}
			return err
		},
	}
	addName(cmd, &name)
	cmd.Flags().StringVar(&options.Nodes, "nodes", defaultNodes, "shape of the cluster: COUNTxCARDS:MODEL, comma between; COUNTx0 for nodes without cards")
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "run in the background; end it with 'elastic down'")
	cmd.Flags().StringVar((*string)(&options.GPUScheduler), "gpu-scheduler", string(AsExtender), "how pods with cards are scheduled: extender (kube-scheduler asks) or plugin (elastic-scheduler does)")
	cmd.Flags().BoolVar(&options.RealNode, "real-node", false, "add a node whose pods are real containers, with this machine's cards; Linux, root, and 'make build-node' first")
	cmd.Flags().BoolVar(&options.Cards, "cards", false, "use this machine's NVIDIA cards: a real node and a queue of them, and --image host for jobs on this machine's own programs; Linux, root, and 'make build-node' first")
	cmd.Flags().BoolVar(&options.Clouds, "clouds", false, "add two simulated clouds that sell nodes, and a queue that buys there what the cluster's own nodes do not have")
	cmd.Flags().BoolVar(&options.Sample, "sample", true, "set up a sample queue and send a job through it")
	cmd.Flags().StringArrayVar(&options.SandboxArgs, "sandbox-arg", nil, "argument for elastic-sandbox, as it is (repeatable)")
	return cmd
}

// next says what to type now.
func (c *Cluster) next(options UpOptions) {
	job := `--name=mine --queue=main --gpus=4 --image=busybox "sleep 60"`
	if options.Cards {
		job = "--name=mine --gpus=0.3 --gpumemory=8Gi --image=host -- python3 train.py"
	}
	if options.Clouds {
		job = `--name=mine --queue=main --workers=2 --gpus=8 --image=busybox "sleep 60"  # fills the nodes that are there`
	}
	flag, local := "", ""
	if c.Name != DefaultName {
		flag, local = " --name "+c.Name, " --local "+c.Name
	}
	if state, err := c.State(); err == nil && state.Page != "" {
		fmt.Fprintf(options.Out, "\nThe cluster in the browser, with your rights in it (give the link to nobody):\n  %s\n", state.Page)
	}
	fmt.Fprintf(options.Out, `
What to type next:
  %[2]s submit job%[3]s %[4]s
%[5]s  %[2]s list%[3]s
  %[2]s explain%[3]s mine                      # why a job waits, and what would let it in
  %[2]s queue list%[3]s
  %[2]s kubectl%[1]s get nodes                 # any kubectl command
  %[2]s kubectl%[1]s get clusterqueues,workloads -A
  export KUBECONFIG=$(%[2]s kubeconfig%[1]s)   # for your own tools
  %[2]s status
  %[2]s down%[1]s
`, flag, typed(), local, job, options.burst(flag, local))
}

// burst is what to type where there are clouds, after a job that fills the nodes of the cluster.
func (o *UpOptions) burst(flag, local string) string {
	if !o.Clouds {
		return ""
	}
	return fmt.Sprintf(`  %[2]s submit job%[3]s --name=more --queue=main --workers=2 --gpus=8 --image=busybox "sleep 60"  # nodes are bought for it
  %[2]s kubectl%[1]s get cloudoffers,simulatedclouds,nodeclaims
  %[2]s cost spent%[3]s                        # the bill
`, flag, typed(), local)
}

// typed is how this program is called from here: by name where the PATH leads
// to it, else by its path.
func typed() string {
	self, err := os.Executable()
	if err != nil {
		return "elastic"
	}
	if found, err := exec.LookPath("elastic"); err == nil {
		if found, err = filepath.Abs(found); err == nil && found == self {
			return "elastic"
		}
	}
	if dir, err := os.Getwd(); err == nil {
		if short, err := filepath.Rel(dir, self); err == nil && len(short) < len(self) {
			return short
		}
	}
	return self
}

// detach runs "up" in the background and shows what it says until it is ready.
func (c *Cluster) detach(ctx context.Context, options UpOptions) error {
	if c.Running() {
		state, _ := c.State()
		return &AlreadyRunning{State: state}
	}
	if err := os.MkdirAll(c.path("log"), 0o700); err != nil {
		return err
	}
	log, err := os.Create(c.path("log", "up.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"up", "--name", c.Name, "--nodes", options.Nodes, "--gpu-scheduler", string(options.GPUScheduler), fmt.Sprintf("--sample=%t", options.Sample), fmt.Sprintf("--real-node=%t", options.RealNode),
		fmt.Sprintf("--cards=%t", options.Cards), fmt.Sprintf("--clouds=%t", options.Clouds)}
	for _, arg := range options.SandboxArgs {
		args = append(args, "--sandbox-arg="+arg)
	}
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	shown := 0
	show := func() {
		data, _ := os.ReadFile(log.Name())
		_, _ = options.Out.Write(data[shown:])
		shown = len(data)
	}
	for {
		select {
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			<-ended
			show()
			return ctx.Err()
		case err := <-ended:
			show()
			return fmt.Errorf("the cluster ended while starting: %w", errors.Join(err, errEnded))
		case <-time.After(50 * time.Millisecond):
		}
		// State before log: what ready says is in the log by then.
		state, err := c.State()
		show()
		if err == nil && state.PID == cmd.Process.Pid && state.Phase == PhaseReady {
			if shownNext(log.Name()) {
				show()
				return nil
			}
		}
	}
}

// shownNext says the background process has printed its last line.
func shownNext(log string) bool {
	data, err := os.ReadFile(log)
	return err == nil && bytes.Contains(data, []byte("elastic down"))
}

func downCommand() *cobra.Command {
	var name string
	var all, retain bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End a local cluster",
		Long: `End a local cluster and delete its files. With --keep its objects
stay, and the next 'elastic up' finds them.`,
		Example: "  elastic down\n  elastic down --name b --keep\n  elastic down --all",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			clusters, err := chosen(name, all)
			if err != nil {
				return err
			}
			for _, cluster := range clusters {
				wasRunning, err := cluster.Down(30 * time.Second)
				if err != nil {
					return err
				}
				word := "was not running"
				if wasRunning {
					word = "has ended"
				}
				fmt.Fprintf(cmd.OutOrStdout(), "Cluster %q %s.\n", cluster.Name, word)
				if retain {
					continue
				}
				if err := cluster.Delete(); err != nil {
					return err
				}
			}
			return nil
		},
	}
	addName(cmd, &name)
	cmd.Flags().BoolVar(&all, "all", false, "every local cluster")
	cmd.Flags().BoolVar(&retain, "keep", false, "retain the cluster's objects for the next 'elastic up'")
	return cmd
}

func chosen(name string, all bool) ([]*Cluster, error) {
	if all {
		return List()
	}
	cluster, err := Open(name)
	return []*Cluster{cluster}, err
}

// statusRow is a local cluster as "status -o json" prints it.
type statusRow struct {
	Name    string `json:"name"`
	Running bool   `json:"running"`
	State   *State `json:"state,omitempty"`
}

func statusCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the local clusters and their programs",
		Example: "  elastic status\n  elastic status -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			clusters, err := List()
			if err != nil {
				return err
			}
			rows := []statusRow{}
			for _, cluster := range clusters {
				row := statusRow{Name: cluster.Name, Running: cluster.Running()}
				if state, err := cluster.State(); err == nil {
					row.State = &state
				}
				rows = append(rows, row)
			}
			switch output {
			case "json":
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(rows)
			case "":
				printStatus(cmd.OutOrStdout(), rows)
				return nil
			}
			return fmt.Errorf("output %q is not known: json, or leave it out", output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json")
	return cmd
}

func printStatus(out io.Writer, rows []statusRow) {
	if len(rows) == 0 {
		fmt.Fprintln(out, "No local cluster. Start one: elastic up")
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	defer func() { _ = table.Flush() }()
	fmt.Fprintln(table, "NAME\tSTATUS\tNODES\tSERVER\tPID\tMEMORY\tAGE")
	for _, row := range rows {
		if !row.Running || row.State == nil {
			fmt.Fprintf(table, "%s\tstopped\t-\t-\t-\t-\t-\n", row.Name)
			continue
		}
		s := row.State
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", row.Name, s.Phase, s.Nodes, s.Server, s.PID,
			memory(s.PID), time.Since(s.Started).Round(time.Second))
		for _, p := range s.Programs {
			metrics := "-"
			if p.Metrics != "" {
				metrics = "metrics http://" + p.Metrics + "/metrics"
			}
			fmt.Fprintf(table, "  %s\trunning\t\t%s\t%d\t%s\t\n", p.Name, metrics, p.PID, memory(p.PID))
		}
	}
}

func memory(pid int) string {
	bytes, ok := Memory(pid)
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%dMi", bytes>>20)
}

func kubeconfigCommand() *cobra.Command {
	var name, person string
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of a local cluster's kubeconfig, or the kubeconfig of a person who shares it",
		Long: `Print the path of a local cluster's kubeconfig. With --for, print the kubeconfig of a
person of this machine, who shares its cards by it: a namespace and a queue of their
own, in which pods run as them and with no right that they do not have at a shell.`,
		Example: "  export KUBECONFIG=$(elastic kubeconfig)\n  elastic kubeconfig --for alice | install -D -m 600 -o alice /dev/stdin ~alice/.kube/config",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := openRunning(name)
			if err != nil {
				return err
			}
			if person != "" {
				text, err := cluster.personKubeconfig(cmd.Context(), person)
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), cluster.Kubeconfig())
			return nil
		},
	}
	addName(cmd, &name)
	cmd.Flags().StringVar(&person, "for", "", "a person of this machine, who shares the cards that 'elastic up --cards' offers")
	return cmd
}

func kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl [--name CLUSTER] ARGS...",
		Short: "Run kubectl against a local cluster",
		Long: `Run kubectl (it comes with the sandbox) against a local cluster. A --name
given first chooses the cluster; everything else goes to kubectl.`,
		Example:            "  elastic kubectl get nodes\n  elastic kubectl --name b get pods -A",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := DefaultName
			if env := os.Getenv("ELASTIC_NAME"); env != "" {
				name = env
			}
			if len(args) >= 2 && args[0] == "--name" {
				name, args = args[1], args[2:]
			}
			cluster, err := openRunning(name)
			if err != nil {
				return err
			}
			path, err := sibling("elastic-sandbox")
			if err != nil {
				return err
			}
			if err := os.Setenv("KUBECONFIG", cluster.Kubeconfig()); err != nil {
				return err
			}
			return syscall.Exec(path, append([]string{"kubectl", "kubectl"}, args...), os.Environ())
		},
	}
}

// openRunning opens a cluster that must be up.
func openRunning(name string) (*Cluster, error) {
	cluster, err := Open(name)
	if err != nil {
		return nil, err
	}
	if !cluster.Running() {
		return nil, fmt.Errorf("cluster %q is not running: start it with 'elastic up --name %s'", name, name)
	}
	return cluster, nil
}
