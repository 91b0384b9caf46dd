# entries.tab -> the generated parts of the library.
# awk -v what=WHAT -f entries.awk entries.tab, where WHAT is
#   calls     build/driver_calls.h: a type, an id and real_<symbol> for each function of the driver
#   names     build/driver_names.h: the rows of driver_symbols
#   handlers  build/handlers.h: on_<handler>, which the hooks define
#   points    build/entry_points.c: the exported functions
#   hooks     build/hook_table.h: the exported functions by id
#   stub      build/stub_rows.h: what the tests' driver needs to know
function trim(s) { sub(/^[ \t]+/, "", s); sub(/[ \t]+$/, "", s); return s }

function arguments(params,   n, part, i, names, s) {
	if (params == "void") return ""
	n = split(params, part, ",")
	for (i = 1; i <= n; i++) {
		s = trim(part[i]); sub(/^.*[ *]/, "", s)
		names = names (i > 1 ? ", " : "") s
	}
	return names
}

function base(s) { sub(/_v[0-9]+$/, "", s); return s }

function call(name) {
	print "typedef " result " (*fn_" name ")(" params ");"
	print "#define real_" name " ((fn_" name ")driver_real(E_" name "))"
	ids = ids "\tE_" name ",\n"
}

function name_row(name, suffix) {
	printf "\t[E_%s] = {\"%s\", \"%s\", %d, %d, NULL},\n", name, name, base(symbol), suffix != "" && since < 7000 ? 7000 : since, suffix != ""
}

function handler_of() { return kind == "own" ? base(symbol) : substr(kind, 5) }

function handler(name) {
	if (kind !~ /^own/ || handler_of() in declared) return
	declared[handler_of()] = 1
	print result " on_" handler_of() "(fn_" name " real" (params == "void" ? "" : ", " params) ");"
}

function refuse(   n, i, a) {
	n = split(args, a, ", ")
	for (i = 1; i <= n; i++) printf "\t(void)%s;\n", a[i]
	print "\treturn CUDA_ERROR_NOT_SUPPORTED;\n}"
}

# The stream a launch goes to; in the second symbol stream 0 is the thread's own.
function stream_of(suffix,   s) {
	s = substr(kind, 8)
	if (suffix != "") return s == "0" ? "(CUstream)CU_STREAM_PER_THREAD" : "own_stream(" s ")"
	return s == "0" ? "NULL" : s
}

function point(name, suffix) {
	if (kind == "need" || kind == "lookup") return
	printf "EXPORT %s %s(%s)\n{\n", result, name, params
	if (kind == "refuse") { refuse(); return }
	printf "\tfn_%s real = real_%s;\n\tif (!real)\n\t\treturn %s;\n", name, name, nvml ? "NVML_ERROR_FUNCTION_NOT_FOUND" : "CUDA_ERROR_NOT_FOUND"
	if (kind ~ /^own/) printf "\treturn on_%s(real%s);\n}\n", handler_of(), args == "" ? "" : ", " args
	else if (kind ~ /^launch=/) printf "\tLAUNCH(%s, real(%s));\n}\n", stream_of(suffix), args
	else if (kind == "move") printf "\tMEMORY_CALL(real(%s));\n}\n", args
	else if (kind == "fetch") printf "\tFETCH_CALL(real(%s));\n}\n", args
	else if (kind == "wait") printf "\tCUresult result_ = real(%s);\n\tprogram_waited();\n\treturn result_;\n}\n", args
	else if (kind ~ /^pin=/) printf "\tPINNED_CALL(\"%s\", real(%s));\n}\n", substr(kind, 5), args
}

function hook(name) {
	if (kind == "need") return
	print "EXPORT " result " " name "(" params ");"
	rows = rows "\t[E_" name "] = (void *)" name ",\n"
}

function stub() {
	if (nvml) return
	printf "ROW(%s, %s, %d, 0)\n", symbol, base(symbol), since
	if (thread != "-") printf "ALIAS(%s, %s_%s)\nROW(%s_%s, %s, %d, 1)\n", symbol, symbol, thread, symbol, thread, base(symbol), since
}

function emit(suffix,   name) {
	name = symbol suffix
	if (what == "calls") call(name)
	else if (what == "names") name_row(name, suffix)
	else if (what == "handlers") handler(name)
	else if (what == "points") point(name, suffix)
	else hook(name)
}

BEGIN {
	print "/* Written by entries.awk from entries.tab. */"
	if (what == "handlers") print "#include \"driver_symbols.h\""
	if (what == "points") {
		n = split("compute_limit constants driver_symbols handlers memory_calls streams swap", part, " ")
		for (i = 1; i <= n; i++) print "#include \"" part[i] ".h\""
	}
}
/^#/ || NF == 0 { next }
{
	symbol = $1; since = $2; thread = $3; kind = $4
	params = $0; sub(/^[^(]*\(/, "", params); sub(/\)[ \t]*$/, "", params)
	args = arguments(params); nvml = symbol ~ /^nvml/
	result = nvml ? "nvmlReturn" : "CUresult"
	if (what == "stub") { stub(); next }
	emit("")
	if (thread != "-") emit("_" thread)
}
END {
	if (what == "calls") print "enum driver_call {\n" ids "\tDRIVER_SYMBOLS\n};"
	if (what == "hooks") print "static void *const hooks[DRIVER_SYMBOLS] = {\n" rows "};"
}
