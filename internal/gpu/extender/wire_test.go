package extender

import (
	"bytes"
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

// Whatever the names are, encoding/json reads back what was written.
func TestPrioritiesAreJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want priorities
		for _, name := range rapid.SliceOf(rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z0-9.-]{0,20}`))).Draw(t, "names") {
			want = append(want, hostPriority{Host: name, Score: rapid.Int64Range(0, 10).Draw(t, "score")})
		}
		var buffer bytes.Buffer
		if err := want.writeTo(&buffer); err != nil {
			t.Fatal(err)
		}
		var got priorities
		if err := json.Unmarshal(buffer.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v", buffer.String(), err)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}
