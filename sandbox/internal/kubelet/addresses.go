package kubelet

import (
	"fmt"
	"net/netip"
	"sync"
)

// addresses gives out the addresses of a network, each to one pod or node at a time.
type addresses struct {
	network netip.Prefix

	mu   sync.Mutex
	last netip.Addr
	used map[netip.Addr]bool
}

func newAddresses(network netip.Prefix) *addresses {
	return &addresses{network: network, last: network.Addr(), used: map[netip.Addr]bool{}}
}

// take gives out the next free address, going round so that one is not reused at once.
func (a *addresses) take() (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for ip, first := a.last.Next(), a.last; ip != first; ip = ip.Next() {
		if !a.network.Contains(ip) {
			ip = a.network.Addr()
			if ip == first {
				break
			}
			continue
		}
		if !a.used[ip] {
			a.used[ip], a.last = true, ip
			return ip.String(), nil
		}
	}
	return "", fmt.Errorf("no free address in %s", a.network)
}

// use marks an address that is taken already.
func (a *addresses) use(text string) {
	if ip, err := netip.ParseAddr(text); err == nil && a.network.Contains(ip) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.used[ip] = true
	}
}

func (a *addresses) free(text string) {
	if ip, err := netip.ParseAddr(text); err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.used, ip)
	}
}
