// Package statedir is the folder one sandbox lives in: its layout, and the lock
// that shuts a second process out of it. The lock is the kernel's, so it goes
// with its process however that one ends.
package statedir
