package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
)

// market is a cloud. What it has sold is in the file ledger of its folder, which outlives this process, as a cloud does;
// the file "table" has what it sells, as price tables of CloudOffers do, and may change at any time; the file "out" has the zones that are sold out: "a", "a/spot" for its spot machines, or "a/spot/1" for all but one. The rest is Karpenter's own simulated provider.
type market struct {
	*kwok.CloudProvider
	client client.Client
	folder string
	mu     sync.Mutex
}

// Entry is a line of the ledger. test/operators reads it.
type Entry struct {
	Event    string    `json:"event"` // bought, refused, ended
	Claim    types.UID `json:"claim"`
	Name     string    `json:"name"`
	Workload string    `json:"workload"`
	Zone     string    `json:"zone"`
	Spot     bool      `json:"spot"`
	Price    float64   `json:"price"` // an hour, when it was bought
	At       time.Time `json:"at"`
}

// Create sells a machine, once for each NodeClaim, whenever and however often it is asked.
func (m *market) Create(ctx context.Context, claim *v1.NodeClaim) (*v1.NodeClaim, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	labels := map[string]string{}
	for _, r := range claim.Spec.Requirements {
		if r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 {
			labels[r.Key] = r.Values[0]
		}
	}
	zone, spot := labels[corev1.LabelTopologyZone], labels[v1.CapacityTypeLabelKey] == v1.CapacityTypeSpot
	open, err := m.open()
	if err != nil {
		return nil, err
	}
	sold, err := m.machine(labels[corev1.LabelTopologyRegion], zone, labels[corev1.LabelInstanceTypeStable], spot)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(open, func(e Entry) bool { return e.Claim == claim.UID }) {
		event := "bought"
		if m.isOut(zone, spot, open) {
			event = "refused"
		}
		if err := m.write(Entry{Event: event, Claim: claim.UID, Name: claim.Name, Workload: claim.Labels["elasticai.io/workload-uid"], Zone: zone, Spot: spot, Price: sold.price}); err != nil {
			return nil, err
		}
		if event == "refused" {
			return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("zone %s is sold out", zone))
		}
	}
	node := m.node(claim, labels, sold)
	if err := m.client.Create(ctx, node); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	out := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels}}
	out.Status.ProviderID, out.Status.Capacity, out.Status.Allocatable = node.Spec.ProviderID, node.Status.Capacity, node.Status.Allocatable
	return out, nil
}

// isOut says that a zone sells no machine now.
func (m *market) isOut(zone string, spot bool, open []Entry) bool {
	text, _ := os.ReadFile(filepath.Join(m.folder, "out"))
	for _, out := range strings.Fields(string(text)) {
		name, kind, _ := strings.Cut(out, "/")
		if name != zone || kind != "" && !spot {
			continue
		}
		most := 0
		if _, number, some := strings.Cut(kind, "/"); some {
			most, _ = strconv.Atoi(number)
		}
		sold := 0
		for _, e := range open {
			if e.Zone == zone && e.Spot {
				sold++
			}
		}
		if kind == "" || sold >= most {
			return true
		}
	}
	return false
}

// machine is what is sold at a place.
type machine struct {
	price float64
	has   corev1.ResourceList
}

// machine reads the table for one place. Who orders what it does not sell hears so.
func (m *market) machine(region, zone, kind string, spot bool) (found machine, err error) {
	text, err := os.ReadFile(filepath.Join(m.folder, "table"))
	if err != nil {
		return found, err
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil || len(rows) == 0 {
		return found, fmt.Errorf("the table of the cloud: %w", err)
	}
	for _, row := range rows[1:] {
		of := map[string]string{}
		for i, name := range rows[0] {
			of[name] = row[i]
		}
		if of["region"] != region || of["zone"] != zone || of["instance_type"] != kind {
			continue
		}
		price := of["price_usd_hour"]
		if spot {
			price = of["spot_usd_hour"]
		}
		if found.price, err = strconv.ParseFloat(price, 64); err != nil {
			return found, fmt.Errorf("%s in zone %s has no price: %w", kind, zone, err)
		}
		found.has = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
		for name, column := range map[corev1.ResourceName]string{corev1.ResourceCPU: "vcpus", corev1.ResourceMemory: "memory_gib", "nvidia.com/gpu": "gpu_count"} {
			text := of[column]
			if name == corev1.ResourceMemory {
				text += "Gi"
			}
			if found.has[name], err = resource.ParseQuantity(text); err != nil {
				return found, fmt.Errorf("column %s of %s: %w", column, kind, err)
			}
		}
		return found, nil
	}
	return found, fmt.Errorf("nobody sells %s in %s, zone %s", kind, region, zone)
}

// node is the one that the sandbox plays for a machine.
func (m *market) node(claim *v1.NodeClaim, labels map[string]string, sold machine) *corev1.Node {
	for key, value := range claim.Labels {
		labels[key] = value
	}
	labels[corev1.LabelHostname], labels[corev1.LabelArchStable], labels[corev1.LabelOSStable] = claim.Name, "amd64", "linux"
	has := sold.has
	cards := has["nvidia.com/gpu"]
	for name, value := range map[string]string{ // what NVIDIA's discovery finds on a node
		"gpu.present": "true", "gpu.product": "NVIDIA-H100-80GB-HBM3", "gpu.count": cards.String(), "gpu.memory": "81559",
	} {
		labels["nvidia.com/"+name] = value
	}
	labels["elasticgpu.io/gpu-model"] = "H100-80G"
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Name, Labels: labels, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}},
		Spec:       corev1.NodeSpec{ProviderID: "kwok://" + claim.Name, Taints: []corev1.Taint{v1.UnregisteredNoExecuteTaint}},
		Status: corev1.NodeStatus{
			Capacity: has, Allocatable: has, Phase: corev1.NodePending,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.9.0.1"}, {Type: corev1.NodeHostName, Address: claim.Name}},
		},
	}
}

// Delete ends a machine.
func (m *market) Delete(ctx context.Context, claim *v1.NodeClaim) error {
	if err := m.end(ctx, claim.UID); err != nil {
		return err
	}
	return cloudprovider.NewNodeClaimNotFoundError(errors.New("the machine has ended"))
}

func (m *market) end(ctx context.Context, uid types.UID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	open, err := m.open()
	if err != nil {
		return err
	}
	for _, e := range open {
		if e.Claim != uid {
			continue
		}
		if err := m.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: e.Name}}); client.IgnoreNotFound(err) != nil {
			return err
		}
		e.Event = "ended"
		return m.write(e)
	}
	return nil
}

// endUnclaimed ends machines whose NodeClaim is gone, as the providers of real clouds do: Karpenter may be killed between a
// purchase and the note of it.
func (m *market) endUnclaimed(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Second):
		}
		m.mu.Lock()
		open, err := m.open()
		m.mu.Unlock()
		if err != nil {
			return err
		}
		for _, e := range open {
			claim := &v1.NodeClaim{}
			err := m.client.Get(ctx, types.NamespacedName{Name: e.Name}, claim)
			if apierrors.IsNotFound(err) || err == nil && claim.UID != e.Claim {
				if err := m.end(ctx, e.Claim); err != nil {
					fmt.Fprintln(os.Stderr, err) // again in two seconds
				}
			}
		}
	}
}

// open are the machines that are paid for now.
func (m *market) open() ([]Entry, error) {
	file, err := os.Open(filepath.Join(m.folder, "ledger"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var open []Entry
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var e Entry
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // it was killed while it wrote; nothing was sold
		}
		switch e.Event {
		case "bought":
			open = append(open, e)
		case "ended":
			open = slices.DeleteFunc(open, func(o Entry) bool { return o.Claim == e.Claim })
		}
	}
	return open, nil
}

// write adds a line to the ledger, in one write.
func (m *market) write(e Entry) error {
	e.At = time.Now().UTC()
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(m.folder, "ledger"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append([]byte("\n"), append(line, '\n')...)) // a line that was cut off ends here
	return errors.Join(err, file.Close())
}
