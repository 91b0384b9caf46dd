package local

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// askForCards asks a person at a terminal whether to use this machine's cards, where it has some, all it takes is there,
// and nothing was said about them.
func (o *UpOptions) askForCards(cmd *cobra.Command) error {
	for _, said := range []string{"cards", "real-node", "nodes"} {
		if cmd.Flags().Changed(said) {
			return nil
		}
	}
	if runtime.GOOS != "linux" || os.Geteuid() != 0 || !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
		return nil
	}
	cards, err := cardsToUse(cmd.Context())
	if err != nil || len(cards) == 0 {
		return err
	}
	o.Cards, err = askYes(cmd.InOrStdin(), o.Out, cards)
	return err
}

// cardsToUse of this machine; none where something is missing that they take.
func cardsToUse(ctx context.Context) ([]Card, error) {
	for _, need := range MachineNeeds(ctx) {
		if !need.Met {
			return nil, nil
		}
	}
	return FindCards(ctx)
}

// askYes asks; an empty line and the end of what is typed mean no: the machine's cards may be somebody's.
func askYes(in io.Reader, out io.Writer, cards []Card) (bool, error) {
	var words []string
	for _, c := range cards {
		words = append(words, fmt.Sprintf("%s (%d MiB)", c.Model, c.Memory))
	}
	fmt.Fprintf(out, "This machine has cards: %s.\nUse them? No simulates some. [y/N] ", strings.Join(words, ", "))
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && err != io.EOF {
		return false, err
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}
