// Package remotegpu has containers use cards of other nodes. A server in a pod of its own, on the card's node and with the
// claim's share, carries out the calls of the programs; what carries them is an engine (native/remote is ours):
//
//	program ─ client files ─ socket ─ Relay ══ TLS ══ Gateway ─ socket ─ server, under the library
//	└──────── pod's node, agent ──────────┘        └──── card's node, agent ────────────────┘
//
// The agents carry bytes and understand none of them. Each agent signs its certificates itself, with a key that never
// leaves it, and its node says which one that is; a certificate is for one claim. So an agent can pose as its own node
// alone, and who has the certificate of one claim reaches the server of that claim alone.
//
// Words: docs/design/glossary.md.
package remotegpu
