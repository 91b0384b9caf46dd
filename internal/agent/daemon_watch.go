package agent

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/elastic-ai/elastic/internal/panics"
)

// daemonPoll is how often the daemons of cards that are shared in space are looked at.
const daemonPoll = 10 * time.Second

// DaemonWatch starts daemons of MPS again that have died while containers need them.
func (n *Node) DaemonWatch() manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if err := panics.Contain(n.Log, "daemons", n.Name, func() error { return n.restartDaemons(ctx) }); err != nil && ctx.Err() == nil {
				n.Log.Error(err, "a daemon of MPS does not run, and containers of its card get no launches")
			}
		}, daemonPoll)
		return nil
	})
}

// restartDaemons that have died, and tell the pods of their cards: what runs there has lost the card.
func (n *Node) restartDaemons(ctx context.Context) error {
	for _, daemons := range n.daemons {
		cards, err := daemons.Restart(ctx)
		for _, uuid := range cards {
			n.Log.Info("the MPS daemon of a card had died and was started again", "card", uuid)
			n.tellOfDaemon(ctx, uuid)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) tellOfDaemon(ctx context.Context, uuid string) {
	grants, err := n.slots.Grants()
	if err != nil || n.Events == nil {
		return
	}
	for i := range grants {
		for _, card := range grants[i].Cards {
			pod := &corev1.Pod{}
			if card.UUID == uuid && n.API.Get(ctx, grants[i].Pod, pod) == nil && pod.UID == grants[i].UID {
				n.Events.Eventf(pod, nil, corev1.EventTypeWarning, "SharingRestarted", "Watch",
					"the MPS daemon of card %d had ended and was started again: programs that used the card have lost it, and have to be started anew", card.Index)
			}
		}
	}
}
