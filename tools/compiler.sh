#!/bin/sh
# compiler.sh TOOL ARGUMENT... is what go runs in place of its tools for "make up" and the tests (-toolexec, in the Makefile's
# GOFLAGS). It runs the tool; before the compiler reads some packages of client-go it edits a few of their lines. What runs does
# the same, and what would not do the same does not compile. Why: docs/benchmarks.md, "The first start".
#
# - tools/cache. Since client-go 0.37 the interface of a typed event handler names the generic struct DeletedObject[T], so each
#   package that names the informer factory compiles its methods for all of Kubernetes' 147 kinds again. Here the interface names
#   "any", and client-go's own handlers, which are the only ones, take the struct out of it. And its kinds must be "comparable",
#   for one comparison with nil, which keeps the compiler from using the same code for all pointers. Here the comparison is one
#   of interfaces.
# - kubernetes. Hundreds of packages name its Interface, and the compiler reads and writes for each of them all types that can be
#   reached from there. A quarter of them are what Apply methods take: here they take any object that has a name, also in the one
#   package of Kubernetes that implements such a client (pkg/controller/replication).
# - API versions that nothing here asks for (the list below): their clients, informers and listers are empty packages, and who
#   asks for them gets what has no methods.
#
# Only of the version that it knows; another one is compiled as it is, which is only slower.
version=37.1
unused='admissionregistration/v1alpha1 admissionregistration/v1beta1 apps/v1beta1 apps/v1beta2 authorization/v1beta1 batch/v1beta1
coordination/v1alpha2 discovery/v1beta1 events/v1beta1 extensions/v1beta1 flowcontrol/v1beta1 flowcontrol/v1beta2
flowcontrol/v1beta3 lifecycle/v1alpha1 node/v1alpha1 node/v1beta1 rbac/v1alpha1 rbac/v1beta1 storage/v1alpha1 storage/v1beta1
storagemigration/v1beta1'

# edits PACKAGE prints the sed script for its files.
edits() {
  names=$(echo $unused | tr ' ' '|' | tr -d /)
  case $1 in
  tools/cache)
    cat <<'SED'
s/^	OnDelete\(obj DeletedObject\[T\]\)$/	OnDelete(obj any)/
s/^(func \(r Typed[A-Za-z]*\[T\]\) OnDelete\()obj DeletedObject\[T\]\) \{$/\1deleted any) { obj := deleted.(DeletedObject[T])/
/^	comparable$/d
s/^	if d\.OptionalObj == null \{$/	if any(d.OptionalObj) == any(null) {/
SED
    ;;
  kubernetes | kubernetes/fake)
    cat <<SED
s/^(func \(c \*Clientset\) [A-Za-z0-9]+\(\) |	[A-Za-z0-9]+\(\) )($names)\.[A-Za-z0-9]+Interface/\1any/
s/^(	[A-Za-z0-9]+ +)\*($names)\.[A-Za-z0-9]+Client$/\1any/
s/^(	cs\.[A-Za-z0-9]+, err =) ($names)\..*/\1 any(nil), error(nil)/
/^	cs\.[A-Za-z0-9]+ = ($names)\./d
s/^	return &fake($names)\..*/	return nil/
s/^	(fake)?($names) ("k8s\.io\/client-go\/kubernetes\/)/	_ \3/
SED
    ;;
  kubernetes/typed/resource/*) ;; # k8s.io/dynamic-resource-allocation takes what these take apart
  kubernetes/typed/* | pkg/controller/replication)
    cat <<'SED'
s/\*[a-z0-9]+\.[A-Za-z0-9]+ApplyConfiguration/interface{ GetName() *string }/g
s/^	[a-z0-9]+ ("k8s\.io\/client-go\/applyconfigurations\/)/	_ \1/
SED
    ;;
  informers) # the cases of ForResource
    echo '/^	case .*WithResource\(/N'
    for api in $unused; do
      group=${api%/*} v=${api#*/}
      cat <<SED
/^	case .* f\..${group#?}\(\)\.V${v#v}\(\)/d
s/^	[a-z0-9]+ ("k8s\.io\/api\/$group\/$v")/	_ \1/
SED
    done
    ;;
  informers/*)
    for api in $unused; do
      [ "${api%/*}" = "${1#informers/}" ] || continue
      v=${api#*/}
      cat <<SED
/^	V${v#v}\(\) $v\.Interface$/d
/^func \(g \*group\) V${v#v}\(\) $v\.Interface \{$/,/^\}$/d
s/^	$v "/	_ "/
SED
    done
    ;;
  esac
}

case " $TOOLEXEC_IMPORTPATH $* " in
# vet reads what the compiler did not. It is asked for what it knows of these packages: nothing.
" k8s.io/client-go/"[kil]*/vet\ *vet.cfg\ | " k8s.io/kubernetes/pkg/controller/replication "*/vet\ *vet.cfg\ )
  for config; do :; done
  : >"$(sed -n 's/.*"VetxOutput": "\(.*\)".*/\1/p' "$config")"
  exit
  ;;
*/compile\ -o\ *" -D=edited-"*)
  case $TOOLEXEC_IMPORTPATH in
  k8s.io/client-go/*) package=${TOOLEXEC_IMPORTPATH#*/client-go/} known=client-go@v0.$version ;;
  *) package=${TOOLEXEC_IMPORTPATH#*/kubernetes/} known=kubernetes@v1.$version ;;
  esac
  to=${3%/*}/edited # in a folder that go removes
  empty=
  for api in $unused; do
    case $package in kubernetes/typed/$api | kubernetes/typed/$api/fake | informers/$api | listers/$api) empty=1 ;; esac
  done
  mkdir -p "$to" && edits "$package" >"$to/edits.sed"
  for argument; do
    shift
    case $argument in
    */k8s.io/$known/$package/*.go)
      file=$to/${argument##*/}
      if [ -n "$empty" ]; then
        [ ! -e "$to/empty.go" ] || continue
        file=$to/empty.go
        echo "package ${package##*/}" >"$file"
      else
        sed -E -f "$to/edits.sed" "$argument" >"$file"
        ! cmp -s "$argument" "$file" || file=$argument
      fi
      argument=$file
      ;;
    esac
    set -- "$@" "$argument"
  done
  ;;
esac
# Collecting garbage is a quarter to nearly half of what the compiler does. tools/progress, where that runs the build, has set what is
# best for the memory that is free. Elsewhere less is collected, unless less than 2 GiB are free: then Go's own settings are best.
if [ -z "$GOGC$GOMEMLIMIT" ]; then
  free=
  meminfo=${ELASTIC_MEMINFO:-/proc/meminfo} # another one in tests
  [ ! -r "$meminfo" ] || while [ -z "$free" ] && read -r name kib _; do
    [ "$name" != MemAvailable: ] || free=$kib
  done <"$meminfo"
  [ "${free:-2097152}" -lt 2097152 ] || export GOGC=400 GOMEMLIMIT=1GiB
fi
exec "$@"
