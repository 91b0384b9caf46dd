// Package gpu has the commands that show cards.
//
// Words: docs/design/glossary.md.
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
	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

// Command is "elastic gpu".
func Command() *cobra.Command {
	cmd := &cobra.Command{Use: "gpu", Aliases: []string{"gpus", "card", "cards"}, Short: "Show the cards of a cluster"}
	flags := &cluster.Flags{}
	flags.AddTo(cmd)
	// As it was before: the name of a local cluster.
	cmd.PersistentFlags().StringVar(&flags.Local, "name", "", "the same as --local")
	_ = cmd.PersistentFlags().MarkHidden("name")
	cmd.AddCommand(listCommand(flags), TopCommand("top", flags), describeCommand(flags))
	return cmd
}

// cardsCommand reads all cards and prints them in a way.
func cardsCommand(flags *cluster.Flags, use, short, example string, print func(s output.Writer, cards []Card, wide bool)) *cobra.Command {
	return cluster.List[Card]{
		What: "cards", Read: func(ctx context.Context, c *cluster.Client) ([]Card, error) { return read(ctx, c) },
		Name: func(c *Card) string { return "gpu/" + c.Name }, Print: print,
	}.Make(&cobra.Command{Use: use, Short: short, Example: example}, flags)
}

// TopCommand shows every card with the pods that have shares of it; it is also "top gpu".
func TopCommand(use string, flags *cluster.Flags) *cobra.Command {
	return cardsCommand(flags, use, "Show every card with the pods that have shares of it", "  elastic gpu top\n  elastic gpu top -o json",
		func(s output.Writer, cards []Card, wide bool) { table(cards).Print(s, wide) })
}

func listCommand(flags *cluster.Flags) *cobra.Command {
	return cardsCommand(flags, "list", "List the cards by node and model", "  elastic gpu list", func(s output.Writer, cards []Card, wide bool) {
		t := &output.Table{Columns: []output.Column{{Name: "NAME", Cut: true}, {Name: "NODE", Cut: true}, {Name: "CARD"}, {Name: "MODEL", Cut: true}, {Name: "MEMORY"}, {Name: "FREE CORE"}, {Name: "FREE MEMORY"}, {Name: "STATE", Cut: true, Paint: output.ByStatus}}}
		for _, c := range cards {
			t.Add(c.Name, c.Node, c.Index, cmp.Or(c.Model, "-"), fmt.Sprintf("%d MiB", c.Total), fmt.Sprintf("%d%%", max(0, 100-c.Core)), fmt.Sprintf("%d MiB", max(0, c.Total-c.Memory)), c.State)
		}
		t.Print(s, wide)
	})
}

// described is a card with what only a person wants to read.
type described struct {
	Card
	uuid string
}

func describeCommand(flags *cluster.Flags) *cobra.Command {
	return cluster.Describe[described]{
		Read: readOne, Name: func(d *described) string { return "gpu/" + d.Card.Name }, Print: printCard,
	}.Make(&cobra.Command{Use: "describe CARD", Short: "Show one card and the pods that have shares of it", Example: "  elastic gpu describe h100-80g-0-3"}, flags)
}

func readOne(ctx context.Context, c *cluster.Client, name string) (*described, error) {
	g := &egpu.GPU{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, g); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("there is no card %q: 'elastic gpu list' shows those there are", name)
		}
		return nil, err
	}
	return &described{Card: cardOf(g), uuid: g.Spec.UUID}, nil
}

func printCard(s output.Writer, c *described) {
	for _, field := range [][2]string{
		{"Name", c.Name}, {"Node", c.Node}, {"Card", fmt.Sprint(c.Index)}, {"Model", cmp.Or(c.Model, "-")}, {"UUID", cmp.Or(c.uuid, "-")},
		{"State", s.Paint(output.ByStatus(c.State), c.State)}, {"Core", fmt.Sprintf("%d%% of 100%%", c.Core)}, {"Memory", fmt.Sprintf("%d of %d MiB", c.Memory, c.Total)}, {"Load", c.load()},
	} {
		fmt.Fprintf(s, "%-9s%s\n", field[0]+":", field[1])
	}
	if len(c.Allocations) == 0 {
		return
	}
	fmt.Fprintln(s)
	t := &output.Table{Columns: []output.Column{{Name: "HELD BY", Cut: true}, {Name: "CORE"}, {Name: "MEMORY"}}}
	for _, h := range c.Allocations {
		t.Add(h.Name, fmt.Sprintf("%d%%", h.Core), fmt.Sprintf("%d MiB", h.Memory))
	}
	t.Print(s, false)
}

// Card is one line of the table.
type Card struct {
	Name        string       `json:"name"`
	Node        string       `json:"node"`
	Index       int          `json:"index"`
	Model       string       `json:"model"`
	State       string       `json:"state"`
	Core        int64        `json:"core"` // held, in percent
	Memory      int64        `json:"memory"`
	Total       int64        `json:"totalMemory"`
	Load        *int         `json:"load,omitempty"` // measured, in percent
	Allocations []Allocation `json:"holders"`
}

// Allocation is what a pod has of a card. Core is in percent, memory in MiB.
type Allocation struct {
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
	card := Card{Name: g.Name, Node: g.Spec.NodeName, Index: g.Spec.Index, Model: g.Spec.Model, Total: g.Spec.Memory, Allocations: []Allocation{}}
	card.State = cmp.Or(g.Status.State, "-")
	if g.Status.Message != "" {
		card.State += ": " + g.Status.Message
	}
	if g.Status.Load != nil {
		card.Load = &g.Status.Load.Core
	}
	for key, held := range g.Status.Allocated {
		h := Allocation{Name: key}
		for _, container := range held.Containers {
			h.Core += container.Resource.Name(egpu.ResourceCore, "").Value()
			h.Memory += container.Resource.Name(egpu.ResourceMemory, "").Value()
		}
		card.Core += h.Core
		card.Memory += h.Memory
		card.Allocations = append(card.Allocations, h)
	}
	slices.SortFunc(card.Allocations, func(a, b Allocation) int { return cmp.Compare(a.Name, b.Name) })
	return card
}

func (c *Card) load() string {
	if c.Load == nil {
		return "-"
	}
	return fmt.Sprintf("%d%%", *c.Load)
}

func table(cards []Card) *output.Table {
	t := &output.Table{Columns: []output.Column{
		{Name: "NODE", Cut: true}, {Name: "CARD"}, {Name: "MODEL", Cut: true}, {Name: "CORE"}, {Name: "MEMORY"}, {Name: "LOAD"}, {Name: "STATE", Cut: true, Paint: output.ByStatus}, {Name: "HELD BY", Cut: true},
	}}
	for i := range cards {
		c := &cards[i]
		var pods []string
		for _, h := range c.Allocations {
			pods = append(pods, fmt.Sprintf("%s (%d%%, %d MiB)", h.Name, h.Core, h.Memory))
		}
		t.Add(c.Node, c.Index, cmp.Or(c.Model, "-"), fmt.Sprintf("%d%%", c.Core), fmt.Sprintf("%d/%d MiB", c.Memory, c.Total), c.load(), c.State, cmp.Or(strings.Join(pods, ", "), "-"))
	}
	return t
}
