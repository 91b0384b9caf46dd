#!/bin/sh
# compiler.sh TOOL ARGUMENT... is what go runs in place of its tools for "make up" and the tests (-toolexec, in the Makefile's
# GOFLAGS). It runs the tool; before the compiler reads client-go's package "cache" it edits seven lines of that.
#
# Why: since client-go 0.37 the interface of a typed event handler names the generic struct DeletedObject[T]. So each package
# that names the informer factory compiles the methods of DeletedObject for all of Kubernetes' 147 kinds, again and again, in
# three times the time it takes without (docs/benchmarks.md). Here the interface names "any", and client-go's own handlers,
# which are the only ones, take the struct out of it. And its kinds must be "comparable", for one comparison with nil, which
# keeps the compiler from using the same code for all pointers: each kind's informer is compiled for itself. Here the comparison
# is one of interfaces. What runs does the same. A handler that somebody else wrote would not compile.
#
# A file that is not as expected is compiled as it is, which is only slower.
edits='s/^	OnDelete(obj DeletedObject\[T\])$/	OnDelete(obj any)/
s/^\(func (r Typed[A-Za-z]*\[T\]) OnDelete(\)obj DeletedObject\[T\]) {$/\1deleted any) { obj := deleted.(DeletedObject[T])/
/^	comparable$/d
s/^	if d\.OptionalObj == null {$/	if any(d.OptionalObj) == any(null) {/'

# edit FILE TO writes the edited file, unless there is something else to edit in it than these seven lines.
edit() {
  sed "$edits" "$1" >"$2"
  lines=$(diff "$1" "$2" | grep -c '^<')
  [ "$lines" -eq 0 ] || [ "$lines" -eq 7 ] || echo "tools/compiler.sh: $1 has $lines lines to edit, not 7: this build takes longer" >&2
  [ "$lines" -eq 7 ]
}

# By the mark, which the Makefile gives to this package alone and which says nothing to the compiler, go's cache knows what
# was compiled so.
case " $* " in
*/compile\ -o\ *" -D=edited-"*)
  to=${3%/*}/controller.go # in a folder that go removes
  for argument; do
    shift
    case $argument in
    */controller.go) ! edit "$argument" "$to" || argument=$to ;;
    esac
    set -- "$@" "$argument"
  done
  ;;
esac
exec "$@"
