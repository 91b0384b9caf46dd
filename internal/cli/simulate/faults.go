package simulate

import (
	"fmt"

	"github.com/elastic-ai/elastic/internal/simulate/world"
)

func (in *inputs) readSpot(into *world.Faults) error {
	for _, text := range in.spot {
		spot, err := world.ParseSpot(text)
		if err != nil {
			return fmt.Errorf("--spot %w", err)
		}
		into.Spot = append(into.Spot, spot)
	}
	return nil
}

func (in *inputs) readStockOuts(into *world.Faults) error {
	for _, text := range in.stockOuts {
		out, err := world.ParseStockOut(text)
		if err != nil {
			return fmt.Errorf("--stock-out %w", err)
		}
		into.StockOuts = append(into.StockOuts, out)
	}
	return nil
}
