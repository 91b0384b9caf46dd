package gpu

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RunForTest runs the loop of a shell that tests feed by hand, as a leader.
func (s *Shell) RunForTest(ctx context.Context) {
	s.FollowForTest(ctx)
	_ = s.do(ctx, s.lead)
}

// FollowForTest is RunForTest for a replica that does not lead.
func (s *Shell) FollowForTest(ctx context.Context) {
	close(s.ready)
	go s.loop(ctx)
}

// Feed hands objects to the shell, or that they are gone, all at once, and waits until it has them. As from a watch, they
// are the shell's own: a test may read into its objects while the shell works on.
func (s *Shell) Feed(gone bool, objects ...client.Object) {
	var messages []message
	for _, object := range objects {
		messages = append(messages, message{object: object.DeepCopyObject().(client.Object), gone: gone})
	}
	inOrder(messages)
	_ = s.do(context.Background(), func() {
		for _, m := range messages {
			s.handleSafely(m)
		}
	})
}

// FailFor has f called before each object is handled, asked about or published; what it panics with is a defect.
func (s *Shell) FailFor(f func(stage string, object client.Object)) {
	_ = s.do(context.Background(), func() { s.faults = f })
}
