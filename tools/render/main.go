// Command render writes the manifests of a Helm chart to standard output.
//
//	render -namespace NAMESPACE [-values FILE] CHART
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

func main() {
	namespace := flag.String("namespace", "default", "where it is installed")
	values := flag.String("values", "", "file of values")
	flag.Parse()
	if err := run(flag.Arg(0), *namespace, *values); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(path, namespace, file string) error {
	chart, err := loader.Load(path)
	if err != nil {
		return err
	}
	given := common.Values{}
	if file != "" {
		if given, err = common.ReadValuesFile(file); err != nil {
			return err
		}
	}
	release := common.ReleaseOptions{Name: "elastic", Namespace: namespace, IsInstall: true, Revision: 1}
	values, err := util.ToRenderValues(chart, given, release, common.DefaultCapabilities)
	if err != nil {
		return err
	}
	rendered, err := engine.Render(chart, values)
	if err != nil {
		return err
	}
	var names []string
	for name := range rendered {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		text := strings.TrimSpace(rendered[name])
		if text == "" || strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		fmt.Printf("---\n%s\n", strings.TrimPrefix(strings.TrimPrefix(text, "---"), "\n"))
	}
	return nil
}
