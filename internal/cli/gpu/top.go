// Package gpu has the commands that show cards.
package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/reach"
	"github.com/elastic-ai/elastic/internal/cli/screen"
)

// Command is "elastic gpu".
func Command() *cobra.Command {
	cmd := &cobra.Command{Use: "gpu", Aliases: []string{"gpus", "card", "cards"}, Short: "Show the cards of a cluster"}
	flags := &reach.Flags{}
	flags.AddTo(cmd)
	// As it was before: the name of a local cluster.
	cmd.PersistentFlags().StringVar(&flags.Local, "name", "", "the same as --local")
	_ = cmd.PersistentFlags().MarkHidden("name")
	cmd.AddCommand(listCommand(flags), TopCommand("top", flags), describeCommand(flags))
	return cmd
}

// cardsCommand reads all cards and prints them in a way.
func cardsCommand(flags *reach.Flags, use, short, example string, print func(s screen.Screen, cards []Card, wide bool)) *cobra.Command {
	return reach.List[Card]{
		What: "cards", Read: func(ctx context.Context, c *reach.Cluster) ([]Card, error) { return read(ctx, c) },
		Name: func(c *Card) string { return "gpu/" + c.Name }, Print: print,
	}.Make(&cobra.Command{Use: use, Short: short, Example: example}, flags)
}

// TopCommand shows every card with who holds what; it is also "top gpu".
func TopCommand(use string, flags *reach.Flags) *cobra.Command {
	return cardsCommand(flags, use, "Show every card with who holds what", "  elastic gpu top\n  elastic gpu top -o json",
		func(s screen.Screen, cards []Card, wide bool) { table(cards).Print(s, wide) })
}

func listCommand(flags *reach.Flags) *cobra.Command {
	return cardsCommand(flags, "list", "List the cards by node and model", "  elastic gpu list", func(s screen.Screen, cards []Card, wide bool) {
		t := &screen.Table{Columns: []screen.Column{{Name: "NAME", Cut: true}, {Name: "NODE", Cut: true}, {Name: "CARD"}, {Name: "MODEL", Cut: true}, {Name: "MEMORY"}, {Name: "FREE CORE"}, {Name: "FREE MEMORY"}, {Name: "STATE", Cut: true, Paint: screen.ByStatus}}}
		for _, c := range cards {
			t.Add(c.Name, c.Node, c.Index, cmp.Or(c.Model, "-"), fmt.Sprintf("%d MiB", c.Total), fmt.Sprintf("%d%%", max(0, 100-c.Core)), fmt.Sprintf("%d MiB", max(0, c.Total-c.Memory)), c.State)
		}
		t.Print(s, wide)
	})
}

func describeCommand(flags *reach.Flags) *cobra.Command {
	var output screen.Output
	cmd := &cobra.Command{
		Use: "describe CARD", Short: "Show one card and its holders", Example: "  elastic gpu describe h100-80g-0-3", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			g := &egpu.GPU{}
			if err := c.Get(cmd.Context(), client.ObjectKey{Name: args[0]}, g); err != nil {
				if apierrors.IsNotFound(err) {
					return fmt.Errorf("there is no card %q: 'elastic gpu list' shows those there are", args[0])
				}
				return err
			}
			card := cardOf(g)
			return output.Print(cmd.OutOrStdout(), card, []string{"gpu/" + card.Name}, func(s screen.Screen, _ bool) { printCard(s, &card, g.Spec.UUID) })
		},
	}
	output.AddTo(cmd)
	return cmd
}

func printCard(s screen.Screen, c *Card, uuid string) {
	for _, field := range [][2]string{
		{"Name", c.Name}, {"Node", c.Node}, {"Card", fmt.Sprint(c.Index)}, {"Model", cmp.Or(c.Model, "-")}, {"UUID", cmp.Or(uuid, "-")},
		{"State", s.Paint(screen.ByStatus(c.State), c.State)}, {"Core", fmt.Sprintf("%d%% of 100%%", c.Core)}, {"Memory", fmt.Sprintf("%d of %d MiB", c.Memory, c.Total)}, {"Load", c.load()},
	} {
		fmt.Fprintf(s, "%-9s%s\n", field[0]+":", field[1])
	}
	if len(c.Holders) == 0 {
		return
	}
	fmt.Fprintln(s)
	t := &screen.Table{Columns: []screen.Column{{Name: "HELD BY", Cut: true}, {Name: "CORE"}, {Name: "MEMORY"}}}
	for _, h := range c.Holders {
		t.Add(h.Name, fmt.Sprintf("%d%%", h.Core), fmt.Sprintf("%d MiB", h.Memory))
	}
	t.Print(s, false)
}

// Card is one line of the table.
type Card struct {
	Name    string   `json:"name"`
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
	card := Card{Name: g.Name, Node: g.Spec.NodeName, Index: g.Spec.Index, Model: g.Spec.Model, Total: g.Spec.Memory, Holders: []Holder{}}
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

func (c *Card) load() string {
	if c.Load == nil {
		return "-"
	}
	return fmt.Sprintf("%d%%", *c.Load)
}

func table(cards []Card) *screen.Table {
	t := &screen.Table{Columns: []screen.Column{
		{Name: "NODE", Cut: true}, {Name: "CARD"}, {Name: "MODEL", Cut: true}, {Name: "CORE"}, {Name: "MEMORY"}, {Name: "LOAD"}, {Name: "STATE", Cut: true, Paint: screen.ByStatus}, {Name: "HELD BY", Cut: true},
	}}
	for i := range cards {
		c := &cards[i]
		var holders []string
		for _, h := range c.Holders {
			holders = append(holders, fmt.Sprintf("%s (%d%%, %d MiB)", h.Name, h.Core, h.Memory))
		}
		t.Add(c.Node, c.Index, cmp.Or(c.Model, "-"), fmt.Sprintf("%d%%", c.Core), fmt.Sprintf("%d/%d MiB", c.Memory, c.Total), c.load(), c.State, cmp.Or(strings.Join(holders, ", "), "-"))
	}
	return t
}
