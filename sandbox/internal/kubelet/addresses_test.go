package kubelet

import (
	"net/netip"
	"testing"
)

func TestAddresses(t *testing.T) {
	a := newAddresses(netip.MustParsePrefix("10.0.0.0/29"))
	a.use("10.0.0.2")
	a.use("192.168.0.1") // not of this network
	a.use("")
	seen := map[string]bool{"10.0.0.2": true, "10.0.0.0": true} // in use; the network itself is never given out first
	for range 6 {
		ip, err := a.take()
		if err != nil {
			t.Fatal(err)
		}
		if seen[ip] {
			t.Fatalf("%s was given out twice", ip)
		}
		seen[ip] = true
	}
	if _, err := a.take(); err == nil {
		t.Fatal("took an eighth address out of a full network")
	}
	a.free("10.0.0.5")
	if ip, err := a.take(); err != nil || ip != "10.0.0.5" {
		t.Errorf("got %s, %v; want the freed one", ip, err)
	}
}
