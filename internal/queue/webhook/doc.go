// Package webhook refuses queue objects that make no sense, in Kueue's words,
// and gives new ones what they need. What the CRDs' own rules refuse is not
// repeated here.
//
// The rules are functions from an object, and the one it replaces, to a list
// of errors; setup.go hands them to the API server.
package webhook
