package web

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
)

// Session is one set of rights: a client with them, and what it sees.
type Session struct {
	*cluster.Client
	who   string
	state *State
	ready <-chan struct{}
	stop  context.CancelFunc

	// guarded by the sessions' lock
	tabs int
	used time.Time
}

const (
	mostSessions = 64
	// mostOfOne are one person's: each choice of namespaces is another session.
	mostOfOne   = 4
	idleSession = 10 * time.Minute
	flushEvery  = 250 * time.Millisecond
	// mostHeld are one person's tabs and logs at a time.
	mostHeld = 32
)

// held counts the requests of each person that last: those that send what comes.
type held struct {
	mu  sync.Mutex
	has map[string]int
}

// hold one more, until it is released.
func (h *held) hold(who string) (release func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.has[who] >= mostHeld {
		return nil, fmt.Errorf("you have %d tabs and logs open already: close one", mostHeld)
	}
	if h.has == nil {
		h.has = map[string]int{}
	}
	h.has[who]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.has[who]--; h.has[who] == 0 {
			delete(h.has, who)
		}
	}, nil
}

// sessions by who is asking and for which namespaces.
type sessions struct {
	ctx context.Context
	// pinned sessions never end: a laptop's has the history of six hours.
	pinned bool
	prices map[string]float64

	mu  sync.Mutex
	all map[string]*Session
}

func newSessions(ctx context.Context, pinned bool, prices map[string]float64) *sessions {
	s := &sessions{ctx: ctx, pinned: pinned, prices: prices, all: map[string]*Session{}}
	go s.tidy()
	return s
}

// enter finds or begins a session, and counts a tab in it until leave.
func (all *sessions) enter(who person, namespaces []string) (*Session, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	namespaces = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(namespaces), who.client.Namespace))))
	key := who.key + " " + strings.Join(namespaces, ",")
	s := all.all[key]
	if s == nil {
		if all.of(who.key) >= mostOfOne && !all.endOldest(who.key) {
			return nil, fmt.Errorf("you look at %d choices of namespaces already: close a tab", mostOfOne)
		}
		if len(all.all) >= mostSessions && !all.endOldest("") {
			return nil, fmt.Errorf("%d people look at this server already: close a tab, or try again later", mostSessions)
		}
		s = begin(all.ctx, who, namespaces, all.prices)
		all.all[key] = s
	}
	s.tabs++
	s.used = time.Now()
	return s, nil
}

func (all *sessions) leave(s *Session) {
	all.mu.Lock()
	defer all.mu.Unlock()
	s.tabs--
	s.used = time.Now()
}

// of counts the sessions of someone.
func (all *sessions) of(who string) (n int) {
	for _, s := range all.all {
		if s.who == who {
			n++
		}
	}
	return n
}

// endOldest ends the session unused for longest, of one person or of all; false where all are in use.
func (all *sessions) endOldest(who string) bool {
	oldest := ""
	for key, s := range all.all {
		if s.tabs == 0 && (who == "" || s.who == who) && (oldest == "" || s.used.Before(all.all[oldest].used)) {
			oldest = key
		}
	}
	if oldest == "" {
		return false
	}
	all.all[oldest].stop()
	delete(all.all, oldest)
	return true
}

// tidy ends sessions that nobody looks at.
func (all *sessions) tidy() {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-all.ctx.Done():
			return
		case now := <-tick.C:
			all.mu.Lock()
			for key, s := range all.all {
				if !all.pinned && s.tabs == 0 && now.Sub(s.used) > idleSession {
					s.stop()
					delete(all.all, key)
				}
			}
			all.mu.Unlock()
		}
	}
}

// begin watches with a person's rights.
func begin(ctx context.Context, who person, namespaces []string, prices map[string]float64) *Session {
	ctx, stop := context.WithCancel(ctx)
	s := &Session{Client: who.client, who: who.key, state: NewState(), stop: stop}
	s.state.prices.prices = prices
	s.ready = s.state.follow(ctx, who.client, namespaces)
	go s.run(ctx)
	return s
}

// run sends changes and takes samples until the session ends.
func (s *Session) run(ctx context.Context) {
	flush, sample := time.NewTicker(flushEvery), time.NewTicker(sampleEvery)
	defer flush.Stop()
	defer sample.Stop()
	select {
	case <-s.ready:
		s.state.sample(time.Now())
	case <-ctx.Done():
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-flush.C:
			s.state.flush()
		case now := <-sample.C:
			s.state.sample(now)
		}
	}
}

// whoAmI is the person's name as the API server knows it.
func whoAmI(ctx context.Context, c *cluster.Client) (string, error) {
	review, err := c.Core.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}
