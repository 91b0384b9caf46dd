package web

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// value reads anything, as encoding/json reads into an any.
func value(r *jsonReader) any {
	switch r.next() {
	case '{':
		all := map[string]any{}
		r.object(func(name []byte) { all[r.unquote(name)] = value(r) })
		return all
	case '[':
		all := []any{}
		r.array(func() { all = append(all, value(r)) })
		return all
	case '"':
		return r.string()
	case 'n':
		r.absent()
		return nil
	case 't', 'f':
		return r.bool()
	}
	var n json.Number
	r.into(&n)
	return n
}

var written = []string{
	`{}`, `[]`, `null`, `"a"`, `""`, `-1.5e3`, `true`, `[[[]]]`, `{"a":{"b":[1,"2",null,false,{}]},"c":"d"}`,
	` { "a" : [ 1 , 2 ] , "b" : { } } `, "{\n\t\"a\":\r\n\"b\"}", `{"quote":"\"","back":"\\","both":"\\\"","end":"a\\\\"}`,
	`{"\u00e9\n":"\ud83d\ude00 ü \/ \b"}`, `{"":{"":""}}`, `[{"}":"]"},"{[\","]`,
}

// What is JSON is read as the standard library reads it, in one piece or stepped over.
func TestReadJSON(t *testing.T) {
	for _, text := range written {
		asTheLibrary(t, []byte(text))
		for end := range len(text) { // what ends too early is an error, and no more
			asTheLibrary(t, []byte(text[:end]))
		}
	}
}

func FuzzReadJSON(f *testing.F) {
	for _, text := range written {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) { asTheLibrary(t, data) })
}

func asTheLibrary(t *testing.T, data []byte) {
	t.Helper()
	from := json.NewDecoder(bytes.NewReader(data))
	from.UseNumber()
	var want any
	valid := json.Valid(data) && from.Decode(&want) == nil
	r, over := &jsonReader{data: data}, &jsonReader{data: data}
	got, raw := value(r), over.raw()
	if !valid {
		return // an error, or not: the API server writes none
	}
	if err := r.done(); err != nil || !reflect.DeepEqual(valid8(got), valid8(want)) {
		t.Errorf("%q: got %#v, want %#v, %v", data, got, want, err)
	}
	if err := over.done(); err != nil || !bytes.Equal(raw, bytes.TrimSpace(data)) {
		t.Errorf("%q: stepped over %q, %v", data, raw, err)
	}
}

// valid8 is a value with strings of valid UTF-8, as records are sent.
func valid8(v any) any {
	switch v := v.(type) {
	case string:
		return strings.ToValidUTF8(v, "\ufffd")
	case []any:
		for i := range v {
			v[i] = valid8(v[i])
		}
	case map[string]any:
		clean := map[string]any{}
		for name, of := range v {
			clean[strings.ToValidUTF8(name, "\ufffd")] = valid8(of)
		}
		return clean
	}
	return v
}

// What has another type than it should is an error, as it is for the client library.
func TestReadJSONOfAnotherType(t *testing.T) {
	for _, text := range []string{
		`{"metadata":{"name":7}}`, `{"metadata":[]}`, `{"spec":{"index":"0"}}`, `{"spec":{"memory":1.5}}`, `{"spec":{"memory":9223372036854775808}}`,
		`{"status":{"load":{"core":true}}}`, `{"status":{"allocated":[]}}`, `{"status":{"allocated":{"a/b":{"containers":{}}}}}`,
		`{"status":{"allocated":{"a/b":{"containers":[{"resource":{"elasticgpu.io/gpu-core":"much"}}]}}}}`, `{"metadata":{"creationTimestamp":"today"}}`,
		`{"spec":{}`, `{"spec":{}}}`, `{"spec":{}} {}`, ``,
	} {
		if got, err := readGPU([]byte(text)); err == nil {
			t.Errorf("%s was read as %+v", text, got)
		}
	}
	for _, text := range []string{`{"spec":{"podSets":[{"count":4294967296}]}}`, `{"spec":{"active":"yes"}}`, `{"status":{"conditions":[{"type":1}]}}`} {
		if got, err := readWorkload([]byte(text)); err == nil {
			t.Errorf("%s was read as %+v", text, got)
		}
	}
}
