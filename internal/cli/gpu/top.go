// Package gpu has the commands that show cards.
package gpu

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/local"
)

// Command is "elastic gpu".
func Command() *cobra.Command {
	cmd := &cobra.Command{Use: "gpu", Short: "Show the cards of a cluster"}
	cmd.AddCommand(topCommand())
	return cmd
}

func topCommand() *cobra.Command {
	var name, kubeconfig, output string
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show every card with who holds what",
		Example: `  elastic gpu top
  elastic gpu top --name b          # of a local cluster
  elastic gpu top -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := connect(name, kubeconfig)
			if err != nil {
				return err
			}
			cards, err := read(cmd.Context(), c)
			if err != nil {
				return err
			}
			switch output {
			case "":
				return table(cmd.OutOrStdout(), cards)
			case "json":
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(cards)
			}
			return fmt.Errorf("output %q is not known: json, or leave it out", output)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "a local cluster, as 'elastic up --name' made it")
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; default $KUBECONFIG")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json")
	return cmd
}

func connect(name, kubeconfig string) (client.Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	if name != "" {
		cluster, err := local.Open(name)
		if err != nil {
			return nil, err
		}
		rules.ExplicitPath = cluster.Kubeconfig()
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster (set KUBECONFIG, or give --kubeconfig or --name): %w", err)
	}
	scheme := runtime.NewScheme()
	if err := egpu.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// Card is one line of the table.
type Card struct {
	Node    string   `json:"node"`
	Index   int      `json:"index"`
	Model   string   `json:"model"`
	State   string   `json:"state"`
	Core    int64    `json:"core"` // held, in percent
	Memory  int64    `json:"memory"`
	Total   int64    `json:"totalMemory"`
	Load    *int     `json:"load,omitempty"` // measured, in percent
	Holders []Holder `json:"holders"`
}

// Holder of a piece of a card. Core is in percent, memory in MiB.
type Holder struct {
	Name   string `json:"name"`
	Core   int64  `json:"core"`
	Memory int64  `json:"memory"`
}

var errNoCards = errors.New("this cluster has no GPU objects: elastic-gpu-agent makes one for each card")

func read(ctx context.Context, c client.Client) ([]Card, error) {
	list := &egpu.GPUList{}
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("reading the cards: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errNoCards
	}
	cards := make([]Card, len(list.Items))
	for i := range list.Items {
		cards[i] = cardOf(&list.Items[i])
	}
	slices.SortFunc(cards, func(a, b Card) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Index, b.Index)) })
	return cards, nil
}

func cardOf(g *egpu.GPU) Card {
	card := Card{Node: g.Spec.NodeName, Index: g.Spec.Index, Model: g.Spec.Model, Total: g.Spec.Memory, Holders: []Holder{}}
	card.State = cmp.Or(g.Status.State, "-")
	if g.Status.Message != "" {
		card.State += ": " + g.Status.Message
	}
	if g.Status.Load != nil {
		card.Load = &g.Status.Load.Core
	}
	for key, held := range g.Status.Allocated {
		h := Holder{Name: key}
		for _, container := range held.Containers {
			h.Core += container.Resource.Name(egpu.ResourceCore, "").Value()
			h.Memory += container.Resource.Name(egpu.ResourceMemory, "").Value()
		}
		card.Core += h.Core
		card.Memory += h.Memory
		card.Holders = append(card.Holders, h)
	}
	slices.SortFunc(card.Holders, func(a, b Holder) int { return cmp.Compare(a.Name, b.Name) })
	return card
}

func table(out io.Writer, cards []Card) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NODE\tCARD\tMODEL\tCORE\tMEMORY\tLOAD\tSTATE\tHELD BY")
	for _, c := range cards {
		load := "-"
		if c.Load != nil {
			load = fmt.Sprintf("%d%%", *c.Load)
		}
		var holders []string
		for _, h := range c.Holders {
			holders = append(holders, fmt.Sprintf("%s (%d%%, %d MiB)", h.Name, h.Core, h.Memory))
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%d%%\t%d/%d MiB\t%s\t%s\t%s\n",
			c.Node, c.Index, cmp.Or(c.Model, "-"), c.Core, c.Memory, c.Total, load, c.State, cmp.Or(strings.Join(holders, ", "), "-"))
	}
	return w.Flush()
}
