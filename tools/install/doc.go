// Package install tests that "go install" takes the programs and the sandbox, as the README says: it packs this tree's modules
// as a module proxy would serve them, and installs from there, with nothing else to be had from a network.
package install
