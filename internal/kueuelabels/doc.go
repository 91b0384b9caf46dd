// Package kueuelabels has the names of Kueue's labels and annotations that several packages read
// and that Kueue's API packages do not define.
//
// Words: docs/design/glossary.md.
package kueuelabels
