// Package cloudoffers says what the nodes of flavors cost that are bought: the controller of CloudOffers.
//
// assess.go reads a price table and finds what is meant, a pure function of the object and the table; controller.go writes
// that into the object's status. The queue's loop reads prices from there and nowhere else, so a new leader has the same
// prices as the one before, and everybody can see them.
//
// Words: docs/design/glossary.md. Design: docs/design/clouds.md.
package cloudoffers
