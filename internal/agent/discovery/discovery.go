package discovery

import (
	"context"
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Card is a card as its node sees it.
type Card struct {
	Index    int
	UUID     string
	Model    string // as people write it: H100-80G
	Path     string
	MemoryMB int64
	NUMA     int
	Links    []Link
	// Problem says why the card must not be used; empty means it is well.
	Problem string
	// Elsewhere says why the GPU scheduler must leave the card alone: it has the other allocation path.
	Elsewhere string `json:",omitempty"`
	Load      *Load
	// UsedMB is memory in use, by any process.
	UsedMB int64
	// Instances it is divided into now.
	Instances []Instance
}

// Instance is a part of a card with memory and compute of its own (MIG).
type Instance struct {
	UUID, Profile string
	Start         int
	// ID is the driver's number of it on its card, Slices its part of the card's compute.
	ID, Slices int `json:"-"`
}

// Link is a connection to another card of the node.
type Link struct {
	To        int
	Bandwidth int64 // GB/s, both ways
	Kind      string
}

// Kinds of links.
const (
	NVLink = "NVLink"
	PCIe   = "PCIe"
)

// Load is how busy a card is, in percent, and what it draws, in watts. Core is Unknown where the driver does not say.
type Load struct{ Core, Memory, Power int }

// Unknown is the core load of a divided card whose driver says nothing about its instances.
const Unknown = -1

// Process has something on a card, by the driver's word.
type Process struct {
	PID      int
	MemoryMB int64
}

// Source knows which cards a node has.
type Source interface {
	// Cards of the node, by index. An error means nothing is known, not that
	// there are none.
	Cards(ctx context.Context, node *corev1.Node) ([]Card, error)
	// Serves says whether this source knows the node's cards.
	Serves(node *corev1.Node) bool
	// Processes that have something on a card. An error means nothing is known.
	Processes(ctx context.Context, uuid string) ([]Process, error)
}

// None has no cards: a node whose containers use those of others.
type None struct{}

// Cards are none.
func (None) Cards(context.Context, *corev1.Node) ([]Card, error) { return nil, nil }

// Serves no node.
func (None) Serves(*corev1.Node) bool { return false }

// Processes are none.
func (None) Processes(context.Context, string) ([]Process, error) { return nil, nil }

// products are the names cards go by, with the memory their maker advertises.
var products = map[string][]int{
	"T4": {16}, "V100": {16, 32}, "A10": {24}, "A30": {24}, "A40": {48}, "A100": {40, 80}, "L4": {24}, "L40": {48}, "L40S": {48},
	"H20": {96, 141}, "H100": {80, 94}, "H200": {141}, "B200": {180, 192},
}

// shortModel turns a driver's name for a card ("NVIDIA A100-SXM4-40GB") and
// its memory into the short one. Drivers report less memory than is
// advertised: the nearest size of that product is meant.
func shortModel(name string, memoryMB int64) string {
	chip := strings.TrimPrefix(strings.TrimPrefix(name, "NVIDIA "), "Tesla ")
	chip, _, _ = strings.Cut(chip, " ")
	chip, _, _ = strings.Cut(chip, "-")
	gigabytes := int(math.Round(float64(memoryMB) / 1024))
	best := gigabytes
	for i, size := range products[chip] {
		if i == 0 || abs(size-gigabytes) < abs(best-gigabytes) {
			best = size
		}
	}
	return fmt.Sprintf("%s-%dG", chip, best)
}

func abs(n int) int { return max(n, -n) }
