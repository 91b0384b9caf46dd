package simulate

import (
	"fmt"
	"strings"
	"time"

	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// spotDown is how long it takes until another spot node comes, unless it is said.
const spotDown = 10 * time.Minute

func (in *inputs) readSpot(into *world.Faults) error {
	for _, text := range in.spot {
		times, nodes, _ := strings.Cut(text, "@")
		every, down, given := strings.Cut(times, "/")
		if !given {
			down = spotDown.String()
		}
		stays, err1 := time.ParseDuration(every)
		away, err2 := time.ParseDuration(down)
		if err1 != nil || err2 != nil || stays < time.Second || away < 0 {
			return fmt.Errorf("--spot %s: want EVERY[/DOWN][@NODES], as 8h/10m@A100-40G", text)
		}
		into.Spot = append(into.Spot, world.Spot{Nodes: nodes, Every: int64(stays / time.Second), Down: int64(away / time.Second)})
	}
	return nil
}

func (in *inputs) readStockOuts(into *world.Faults) error {
	for _, text := range in.stockOuts {
		times, nodes, _ := strings.Cut(text, "@")
		from, to, _ := strings.Cut(times, "-")
		begins, err1 := time.ParseDuration(from)
		ends, err2 := time.ParseDuration(to)
		if err1 != nil || err2 != nil || begins < 0 || ends <= begins {
			return fmt.Errorf("--stock-out %s: want FROM-TO[@NODES], as 24h-48h@H100-80G", text)
		}
		into.StockOuts = append(into.StockOuts, world.StockOut{Nodes: nodes, From: int64(begins / time.Second), To: int64(ends / time.Second)})
	}
	return nil
}
