package main

import "testing"

// The run fails where a waiting job takes 2 KB or more.
func TestMemoryIsBounded(t *testing.T) {
	for bytes, fails := range map[float64]bool{1169: false, 2047: false, 2048: true, 5000: true} {
		if err := tooMuch(bytes, 200_000); (err != nil) != fails {
			t.Errorf("%v B: %v", bytes, err)
		}
	}
}
