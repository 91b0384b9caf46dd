package cloud_test

import (
	"strings"
	"testing"

	"github.com/elastic-ai/elastic/internal/cloud"
)

const header = "cloud,region,zone,instance_type,gpu,gpu_count,gpu_memory_gib,vcpus,memory_gib,price_usd_hour,spot_usd_hour\n"

func TestPriceTableReadsOnDemandAndSpot(t *testing.T) {
	offers, bad, err := cloud.ReadPriceTable(strings.NewReader(header +
		"aws,eu-west-2,euw2-az3,p5.48xlarge,H100,8,80,192,2048,55.04,15.8082\n" +
		"gcp,us-central1,,g2-standard-4,L4,1,24,4,16,0.7,\n" +
		"aws,us-east-1,use1-az1,p5e.48xlarge,H200,8,141,192,2048,,20\n"))
	if err != nil || len(bad) > 0 {
		t.Fatal(err, bad)
	}
	var got []string
	for _, o := range offers {
		got = append(got, o.String())
	}
	want := "aws/eu-west-2/euw2-az3 p5.48xlarge on demand;aws/eu-west-2/euw2-az3 p5.48xlarge spot;gcp/us-central1 g2-standard-4 on demand;aws/us-east-1/use1-az1 p5e.48xlarge spot"
	if strings.Join(got, ";") != want {
		t.Errorf("offers %v", got)
	}
	if o := offers[1]; o.Price != 15.8082 || o.GPU != "H100" || o.GPUs != 8 {
		t.Errorf("spot offer %+v", o)
	}
}

// TestPriceTableNamesBadRows: each is reported with its line and column, and the others are used.
func TestPriceTableNamesBadRows(t *testing.T) {
	offers, bad, err := cloud.ReadPriceTable(strings.NewReader(header +
		"aws,us-east-1,use1-az1,p4d.24xlarge,A100,8,40,96,1152,-1,\n" +
		"aws,us-east-1,use1-az2,p4d.24xlarge,A100,8,40,96,1152,1e9,\n" +
		"moon,us-east-1,use1-az2,p4d.24xlarge,A100,8,40,96,1152,30,\n" +
		"aws,us-east-1,use1-az4,p4d.24xlarge,A100,8,40,96,1152,free,\n" +
		"aws,us-east-1,use1-az5,p4d.24xlarge,A100,8,40,96,1152,,\n" +
		"aws,us-east-1,use1-az6,p4d.24xlarge,A100,8,40,96,1152,30,NaN\n" +
		"aws,us-east-1\n" +
		"aws,,use1-az6,p4d.24xlarge,A100,8,40,96,1152,30,\n" +
		"aws,us-east-1,use1-az6,p4d.24xlarge,A100,8,40,96,1152,30,10\n" +
		"aws,us-east-1,use1-az6,p4d.24xlarge,A100,8,40,96,1152,31,\n" +
		"aws,us-east-1,us\"e1,p4d.24xlarge,A100,8,40,96,1152,31,\n" +
		"aws,us-east-1,use1-az7,p4d.24xlarge,A100,8,40,96,1152,32,\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"line 2, column price_usd_hour: -1 is not between 0.0001 and 10000",
		"line 3, column price_usd_hour: 1e9 is not between 0.0001 and 10000",
		`line 4, column cloud: unknown cloud "moon"`,
		`line 5, column price_usd_hour: "free" is not a number`,
		"line 6, column price_usd_hour: no price, and no spot price either",
		"line 7, column spot_usd_hour: NaN is not between 0.0001 and 10000",
		"line 8: 2 fields, the header has 11",
		"line 9, column region: is empty",
		"line 11: aws/us-east-1/use1-az6 p4d.24xlarge was sold by line 10 already",
		"line 12: bare \" in non-quoted-field",
	}
	for i := range max(len(want), len(bad)) {
		if i >= len(bad) || i >= len(want) || bad[i].Error() != want[i] {
			t.Fatalf("row %d: %v, want %v", i, bad, want)
		}
	}
	if len(offers) != 3 {
		t.Errorf("%d offers: %v", len(offers), offers)
	}
}

func TestPriceTableWithoutAColumn(t *testing.T) {
	for table, want := range map[string]string{
		"": "line 1: EOF",
		"cloud,region,zone,instance_type,gpu,gpu_count,price_usd_hour\n": "line 1: no column spot_usd_hour",
	} {
		if _, _, err := cloud.ReadPriceTable(strings.NewReader(table)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", table, err, want)
		}
	}
}

// A table may say what else a machine has.
func TestPriceTableWithCPUsAndMemory(t *testing.T) {
	offers, bad, err := cloud.ReadPriceTable(strings.NewReader("cloud,region,zone,instance_type,gpu,gpu_count,price_usd_hour,spot_usd_hour,vcpus,memory_gib\n" +
		"aws,us-east-1,,p5.48xlarge,H100,8,55,,192,2048\naws,us-east-1,,p4d.24xlarge,A100,8,33,,many,\n"))
	if err != nil || len(offers) != 1 || offers[0].VCPUs != 192 || offers[0].MemoryGiB != 2048 {
		t.Errorf("%+v, %v", offers, err)
	}
	if len(bad) != 1 || bad[0].Error() != `line 3, column vcpus: "many" is not a number` {
		t.Errorf("%v", bad)
	}
}
