package mig

// Partition is an instance that a card could be divided into: a profile at one of its places.
type Partition struct {
	Profile string
	// Start and Size are its slices of the card's memory, Slices those of its compute.
	Start, Size, Slices uint32
	MemoryMB            int64
}
