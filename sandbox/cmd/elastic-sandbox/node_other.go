//go:build !linux

package main

import "github.com/spf13/cobra"

// newNodeCommands is empty: real nodes take Linux.
func newNodeCommands() []*cobra.Command { return nil }
