// Package clients tests Elastic with clients that others wrote, as they are.
//
// Kueueviz's backend is not among them: its module is called kueueviz, so it is no part of sigs.k8s.io/kueue's module, and
// the module proxy has none of that name (tried in November 2026). Its examples are applied in test/examples.
package clients
