package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// jsonReader goes through JSON once, from front to back, and reads what it is asked for; the rest it steps over. Decoding into a
// struct looks at each byte three times, and at each field by reflection: with tens of thousands of objects, while someone
// waits, that is most of the time. As there, null is the same as absent.
type jsonReader struct {
	data []byte
	at   int
	err  error // the first one; nothing is read after it
}

var errShort = errors.New("the JSON ends too early")

func (r *jsonReader) fail(err error) {
	if r.err == nil {
		r.err = fmt.Errorf("at byte %d: %w", r.at, err)
		r.at = len(r.data)
	}
}

// next is the first byte of what comes, which stays; 0 at the end.
func (r *jsonReader) next() byte {
	for ; r.at < len(r.data); r.at++ {
		switch c := r.data[r.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	r.fail(errShort)
	return 0
}

// take one byte, if it is the one that comes.
func (r *jsonReader) take(want byte) bool {
	if r.next() != want || r.err != nil {
		return false
	}
	r.at++
	return true
}

// expect a byte.
func (r *jsonReader) expect(want byte) {
	if !r.take(want) {
		r.fail(fmt.Errorf("no %q", want))
	}
}

// absent steps over null.
func (r *jsonReader) absent() bool {
	if r.next() != 'n' {
		return false
	}
	r.word()
	return true
}

// object calls member with the name of each, which has to read its value. A name with an escape is none that is known.
func (r *jsonReader) object(member func(name []byte)) {
	if r.absent() {
		return
	}
	r.expect('{')
	if r.take('}') {
		return
	}
	for r.err == nil {
		r.next()
		name := r.quoted()
		r.expect(':')
		if r.err != nil {
			return
		}
		member(name)
		if r.take('}') {
			return
		}
		r.expect(',')
	}
}

// array calls element for each, which has to read it.
func (r *jsonReader) array(element func()) {
	if r.absent() {
		return
	}
	r.expect('[')
	if r.take(']') {
		return
	}
	for r.err == nil {
		element()
		if r.take(']') {
			return
		}
		r.expect(',')
	}
}

// quoted is what is between quotes, as it is written.
func (r *jsonReader) quoted() []byte {
	r.expect('"')
	from := r.at
	for r.err == nil {
		end := bytes.IndexByte(r.data[r.at:], '"')
		if end < 0 {
			r.fail(errShort)
			break
		}
		r.at += end + 1
		if text := r.data[from : r.at-1]; !escapes(text) {
			return text
		}
	}
	return nil
}

// escapes says that the quote after a text belongs to it: an odd number of backslashes stands before it.
func escapes(text []byte) bool {
	n := 0
	for n < len(text) && text[len(text)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// string that comes.
func (r *jsonReader) string() string {
	if r.absent() {
		return ""
	}
	return r.unquote(r.quoted())
}

// unquote what is between quotes.
func (r *jsonReader) unquote(text []byte) (plain string) {
	if r.err != nil || bytes.IndexByte(text, '\\') < 0 {
		return string(text)
	}
	if err := json.Unmarshal(slices.Concat([]byte{'"'}, text, []byte{'"'}), &plain); err != nil {
		r.fail(err)
	}
	return plain
}

// time that comes, as Kubernetes writes it.
func (r *jsonReader) time() metav1.Time {
	text := r.string()
	if text == "" {
		return metav1.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		r.fail(err)
	}
	return metav1.NewTime(at.Local())
}

// quantity that comes: a string, or a number.
func (r *jsonReader) quantity() resource.Quantity {
	if r.absent() {
		return resource.Quantity{}
	}
	var text string
	if r.next() == '"' {
		text = r.string()
	} else {
		text = string(r.word())
	}
	q, err := resource.ParseQuantity(strings.TrimSpace(text))
	if err != nil {
		r.fail(err)
	}
	return q
}

// word is a number, true, false or null.
func (r *jsonReader) word() []byte {
	r.next()
	from := r.at
	for ; r.at < len(r.data); r.at++ {
		switch r.data[r.at] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return r.data[from:r.at]
		}
	}
	return r.data[from:r.at]
}

// integer that comes, of so many bits.
func (r *jsonReader) integer(bits int) int64 {
	if r.absent() {
		return 0
	}
	n, err := strconv.ParseInt(string(r.word()), 10, bits)
	if err != nil {
		r.fail(err)
	}
	return n
}

// bool that comes.
func (r *jsonReader) bool() bool {
	if r.absent() {
		return false
	}
	switch word := r.word(); string(word) {
	case "true":
		return true
	case "false":
	default:
		r.fail(fmt.Errorf("%q is neither true nor false", word))
	}
	return false
}

// raw is the value that comes, as it is written.
func (r *jsonReader) raw() []byte {
	r.next()
	from := r.at
	r.skip()
	return r.data[from:r.at]
}

// within reads one member of an object.
func (r *jsonReader) within(member string, read func()) {
	r.object(func(name []byte) {
		if string(name) == member {
			read()
		} else {
			r.skip()
		}
	})
}

// done says whether it was JSON, and all of it.
func (r *jsonReader) done() error {
	if r.err == nil && len(bytes.TrimSpace(r.data[r.at:])) > 0 {
		r.fail(errors.New("more than one value"))
	}
	return r.err
}

// into decodes the value that comes by reflection: what is rare.
func (r *jsonReader) into(value any) {
	data := r.raw()
	if r.err == nil {
		if err := kjson.UnmarshalCaseSensitivePreserveInts(data, value); err != nil {
			r.fail(err)
		}
	}
}

// skip the value that comes, whatever it is.
func (r *jsonReader) skip() {
	depth := 0
	for r.err == nil {
		switch r.next() {
		case '{', '[':
			depth++
			r.at++
		case '}', ']':
			depth--
			r.at++
		case ',', ':':
			r.at++
			continue
		case '"':
			r.quoted()
		default:
			r.word()
		}
		if depth <= 0 {
			return
		}
	}
}
