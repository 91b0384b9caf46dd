package extender

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever the names are, they are read as encoding/json reads them.
func TestNameListReadsWhatJSONReads(t *testing.T) {
	for _, text := range []string{`[]`, `null`, `["a"]`, ` [ "a" , "b,c" , "" ] `, `["a\"b","\u0041"]`} {
		compare(t, text)
	}
	rapid.Check(t, func(t *rapid.T) {
		data, err := json.Marshal(rapid.SliceOf(rapid.String()).Draw(t, "names"))
		if err != nil {
			t.Fatal(err)
		}
		compare(t, string(data))
	})
	for _, text := range []string{`["a",1]`, `{"a":"b"}`, `"a"`, `["a"`} {
		if err := json.Unmarshal([]byte(text), new(nameList)); err == nil {
			t.Errorf("%s was read", text)
		}
	}
}

func compare(t interface{ Fatalf(string, ...any) }, text string) {
	var want []string
	var got nameList
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %q, want %q", text, got, want)
	}
}
