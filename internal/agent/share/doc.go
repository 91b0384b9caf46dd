// Package share says what one container has of a node's cards: the scheduler's word, in its pod's
// annotations, put together with what the container or its claim asks for and with the cards that
// are there.
//
// Words: docs/design/glossary.md.
package share
