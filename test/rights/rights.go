// Package rights compares what the programs are allowed with what they do. Every cluster the tests start keeps an audit
// log of the programs' accounts; when all have run, a right that no program used and a request that was refused both fail.
package rights

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Folder is the variable that says where uses are kept.
const Folder = "ELASTIC_USES"

// Policy is the audit policy: the requests of the programs' accounts, without their contents.
const Policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts:elastic-queue"]
- level: None
`

// Use is a kind of request an account made.
type Use struct {
	Account, Verb, Group, Resource, Name string
	Refused                              bool
}

func (u Use) String() string {
	what := strings.TrimPrefix(u.Group+"/"+u.Resource, "/")
	if u.Name != "" {
		what += " " + u.Name
	}
	return fmt.Sprintf("%s: %s %s", u.Account, u.Verb, what)
}

// Read takes the uses out of an audit log. What was refused and at another time allowed is no refusal: roles do not change while a
// cluster runs, and an API server that starts refuses what it has not yet read the roles for.
func Read(log io.Reader) ([]Use, error) {
	type request struct {
		Use
		namespace string
	}
	asked := map[request]bool{}
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF { // what has no end was being written when the cluster was stopped
			break
		}
		if err != nil {
			return nil, err
		}
		var event struct {
			Verb string
			User struct{ Username string }
			// As is whom the account spoke for.
			As          *struct{ Groups []string } `json:"impersonatedUser"`
			ObjectRef   *struct{ Resource, Subresource, Namespace, Name, APIGroup string }
			Annotations map[string]string
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, err
		}
		if event.ObjectRef == nil {
			continue // discovery, which is everybody's
		}
		use := Use{
			Account: strings.TrimSuffix(event.User.Username[strings.LastIndex(event.User.Username, ":")+1:], simulated),
			Verb:    event.Verb, Group: event.ObjectRef.APIGroup, Resource: event.ObjectRef.Resource,
			Refused: event.Annotations["authorization.k8s.io/decision"] == "forbid",
		}
		if event.As != nil { // the rights are those of whom it speaks for
			for _, what := range []string{"users", "groups"} {
				if what == "users" || len(event.As.Groups) > 1 { // system:authenticated is there without asking
					asked[request{Use: Use{Account: use.Account, Verb: "impersonate", Resource: what}}] = true
				}
			}
			continue
		}
		if event.ObjectRef.Subresource != "" {
			use.Resource += "/" + event.ObjectRef.Subresource
		}
		if named[use.Resource] {
			use.Name = event.ObjectRef.Name
		}
		asked[request{Use: use, namespace: event.ObjectRef.Namespace}] = true
	}
	uses := map[Use]bool{}
	for each := range asked {
		allowed := each
		allowed.Refused = false
		if !each.Refused || !asked[allowed] {
			uses[each.Use] = true
		}
	}
	return sorted(uses), nil
}

// simulated ends the account of the agent of simulated nodes, which has the rights of the agent's.
const simulated = "-simulated"

// named are the resources that rules grant by name.
var named = map[string]bool{
	"leases": true, "secrets": true, "configmaps": true, "mutatingwebhookconfigurations": true, "validatingwebhookconfigurations": true,
	"apiservices": true, "customresourcedefinitions": true,
}

func sorted(uses map[Use]bool) []Use {
	var list []Use
	for use := range uses {
		list = append(list, use)
	}
	slices.SortFunc(list, func(a, b Use) int {
		return cmp.Or(cmp.Compare(a.String(), b.String()), cmp.Compare(fmt.Sprint(a.Refused), fmt.Sprint(b.Refused)))
	})
	return list
}

// Keep stores the uses that an audit log tells of in the folder, if there is one.
func Keep(log string) error {
	folder := os.Getenv(Folder)
	if folder == "" {
		return nil
	}
	text, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	uses, err := Read(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s: %w", log, err)
	}
	data, err := json.MarshalIndent(uses, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	out, err := os.CreateTemp(folder, filepath.Base(os.Args[0])+"-*.json")
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return cmp.Or(err, out.Close())
}

// Kept are all uses in the folder.
func Kept() ([]Use, error) {
	files, err := filepath.Glob(filepath.Join(os.Getenv(Folder), "*.json"))
	if err != nil || len(files) == 0 || os.Getenv(Folder) == "" {
		return nil, fmt.Errorf("nothing is known of what the programs do: run 'make test-e2e test-rights' (%s=%q, %w)", Folder, os.Getenv(Folder), err)
	}
	all := map[Use]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var uses []Use
		if err := json.Unmarshal(data, &uses); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, use := range uses {
			all[use] = true
		}
	}
	return sorted(all), nil
}
