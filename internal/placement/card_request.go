package placement

import (
	"fmt"
	"math"

	"github.com/elastic-ai/elastic/internal/placement/policy"
)

// CardRequest is what one container requests of cards. The zero value requests none.
type CardRequest struct {
	// Count of different cards; each of them gives what the rest of the request says.
	Count int
	// Core is in thousandths of a card, 1000 at most.
	Core int64
	// Memory is in MiB.
	Memory int64
	// TFLOPS is turned into core by the rating of the card's model. It excludes Core.
	TFLOPS float64
	// Models names the card models that will do; empty means any.
	Models []string
	// Exclusive cards are not shared.
	Exclusive bool
	// Space says that the container runs at once with others of its card, instead of taking turns with them. A card is
	// shared in one of the two ways at a time.
	Space bool
}

// RequestError says what is wrong with a pod's request and what to write instead.
type RequestError struct {
	Container string
	Problem   string
}

func (e *RequestError) Error() string {
	if e.Container == "" {
		return e.Problem
	}
	return "container " + e.Container + ": " + e.Problem
}

// Percent makes a request from the two numbers of the wire contract: core in percent of a card
// (1 to 99 is a share of one card, 100 times n is n whole cards) and memory in MiB, either or both.
func Percent(core, memory int64) (CardRequest, error) {
	switch {
	case core < 0 || memory < 0:
		return CardRequest{}, &RequestError{Problem: "core and memory must not be negative"}
	case core == 0 && memory == 0:
		return CardRequest{}, nil
	case core >= 100 && core%100 != 0:
		return CardRequest{}, &RequestError{Problem: fmt.Sprintf(
			"core %d is neither a share of one card (1 to 99) nor whole cards (a multiple of 100): write %d or %d",
			core, core/100*100, (core/100+1)*100)}
	case core > 100*mostCards:
		return CardRequest{}, &RequestError{Problem: fmt.Sprintf("core %d: no node has %d cards", core, core/100)}
	case core >= 100:
		// Whole cards come with all of their memory; a memory request still rules out smaller cards.
		return CardRequest{Count: int(core / 100), Core: policy.Whole, Memory: memory, Exclusive: true}, nil
	}
	return CardRequest{Count: 1, Core: core * policy.Whole / 100, Memory: memory}, nil
}

// Validate says whether the request makes sense.
func (r *CardRequest) Validate() error {
	bad := func(format string, args ...any) error { return &RequestError{Problem: fmt.Sprintf(format, args...)} }
	switch {
	case r.Count < 0 || r.Core < 0 || r.Memory < 0 || r.TFLOPS < 0 || math.IsNaN(r.TFLOPS):
		return bad("a card request must not be negative")
	case r.Count == 0 && (r.Core > 0 || r.Memory > 0 || r.TFLOPS > 0 || r.Exclusive):
		return bad("the request does not say of how many cards")
	case r.Count > mostCards:
		return bad("%d cards on one node: at most %d", r.Count, mostCards)
	case r.Core > policy.Whole:
		return bad("core %d of one card: at most %d; ask for more cards instead", r.Core, policy.Whole)
	case r.Core > 0 && r.TFLOPS > 0:
		return bad("core and TFLOPS exclude each other")
	case r.Count > 0 && r.Core == 0 && r.Memory == 0 && r.TFLOPS == 0 && !r.Exclusive:
		return bad("cards without core, memory or TFLOPS: ask for a share or for exclusive cards")
	}
	return nil
}
