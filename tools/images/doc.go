// Package images tests what "make release" makes. No registry can be reached from
// a test: it serves one on loopback, puts base images of its own into it, and
// has the real ko build, with the files a release is built with, into it.
package images
