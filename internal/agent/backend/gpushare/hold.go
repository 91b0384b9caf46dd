package gpushare

import (
	"context"
	"errors"
	"time"

	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/tenantfolder"
)

// holdTimeout is how long the processes of a share have until none of them has anything in flight. A kernel that waits for
// another process's ends when that one has caught up, one call after the other.
const holdTimeout = 30 * time.Second

// held is a process's answer to hold.
type held struct {
	answer
	Settled bool // nothing of it is in flight
}

// hold all processes of a share back before one of them moves: their kernels may wait for each other, and one that is held
// alone leaves another with a kernel that does not end. Who has nothing in flight lets one call through at a time, until
// nobody has. They wait until they are told to come in.
func (b *Backend) hold(ctx context.Context, folder *tenantfolder.Folder, s *share.Share, names []string) error {
	if len(names) < 2 {
		return nil // it ends what it has in flight as it moves
	}
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	for request := "hold"; ; {
		settled, err := b.holdOnce(ctx, folder, s, names, request)
		switch {
		case ctx.Err() != nil:
			return errors.New("what its processes have in flight does not end: they may wait for one elsewhere")
		case err != nil:
			return err
		case !settled:
		case request == "hold":
			return nil // nobody was let through since
		}
		if request == "hold" {
			request = "hold step"
		} else {
			request = "hold"
		}
	}
}

// holdOnce asks each process, and says whether none of them has anything in flight.
func (b *Backend) holdOnce(ctx context.Context, folder *tenantfolder.Folder, s *share.Share, names []string, request string) (bool, error) {
	answers, failed := make([]held, len(names)), make([]error, len(names))
	inLanes(len(names), func(i int) { _, failed[i] = b.exchange(ctx, folder, s, names[i], request, &answers[i]) })
	settled := true
	for i := range answers {
		if old := refusal(""); errors.As(failed[i], &old) {
			failed[i], answers[i].Settled = nil, true // a library that cannot be held ahead
		}
		settled = settled && answers[i].Settled
	}
	return settled, errors.Join(failed...)
}
