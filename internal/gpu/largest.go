package gpu

import "context"

// LargestCard is the most memory any card has, in MiB; 0 while no card is known.
func (s *Shell) LargestCard(ctx context.Context) (largest int64, err error) {
	err = s.do(ctx, func() {
		for _, m := range s.machines {
			if m.told == nil {
				continue
			}
			for i := range m.told.Cards {
				largest = max(largest, m.told.Cards[i].Memory)
			}
		}
	})
	return largest, err
}
