package cloud

// Input is the data that a job reads when it starts, and where it lies. Machines elsewhere cost what it takes to bring it there.
type Input struct {
	Cloud, Region string
	GiB           float64
}

// Egress is what a GiB costs that leaves its region, in US dollars. Within a region it costs nothing.
type Egress struct{ OtherRegion, OtherCloud float64 }

// Cost of bringing an input to a place.
func (e Egress) Cost(in Input, cloud, region string) float64 {
	switch {
	case in.Cloud == "" || !(in.GiB > 0):
		return 0
	case in.Cloud != cloud:
		return in.GiB * max(0, e.OtherCloud)
	case in.Region != region:
		return in.GiB * max(0, e.OtherRegion)
	}
	return 0
}
