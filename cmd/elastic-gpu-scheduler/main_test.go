package main

import (
	"slices"
	"testing"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
)

func TestOldFlags(t *testing.T) {
	got := oldFlags([]string{"-priority=spread", "-mode", "gpushare,qgpu", "-kubeconf", "/k", "--config=c", "-h", "-kubeconf=/k", "-"})
	want := []string{"--priority=spread", "--mode", "gpushare,qgpu", "--kubeconfig", "/k", "--config=c", "-h", "--kubeconfig=/k", "-"}
	if !slices.Equal(got, want) {
		t.Fatalf("got %q", got)
	}
}

func TestEnvironmentOfTheOldScheduler(t *testing.T) {
	t.Setenv("PORT", "4711")
	t.Setenv("THREADNESS", "3")
	if cfg := defaults(); cfg.Extender.BindAddress != ":4711" || cfg.Workers != 3 {
		t.Fatalf("address %s, workers %d", cfg.Extender.BindAddress, cfg.Workers)
	}
	t.Setenv("PORT", "")
	t.Setenv("THREADNESS", "many")
	if cfg := defaults(); cfg.Extender.BindAddress != ":39999" || cfg.Workers != 8 {
		t.Fatalf("address %s, workers %d", cfg.Extender.BindAddress, cfg.Workers)
	}
}

func TestAdvertisedAddress(t *testing.T) {
	t.Setenv("POD_IP", "10.1.2.3")
	for want, cfg := range map[string]v1alpha1.Extender{
		"10.1.2.3:39999": {BindAddress: ":39999"},
		"host:1":         {BindAddress: ":39999", AdvertiseAddress: "host:1"},
	} {
		if got := advertised(cfg); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
