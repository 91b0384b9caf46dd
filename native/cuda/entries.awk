# entries.tab -> build/entries.h (types, real functions, handlers) and build/entries.c (the exported symbols).
# awk -v what=h|c|stub -f entries.awk entries.tab; stub: what the tests' driver needs to know
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

function emit(symbol, suffix,   name, result, missing, rest, call, stream, handler) {
	name = symbol suffix
	result = nvml ? "nvmlReturn" : "CUresult"
	missing = nvml ? "NVML_ERROR_FUNCTION_NOT_FOUND" : "CUDA_ERROR_NOT_FOUND"
	rest = args == "" ? "" : ", " args
	call = "real(" args ")"
	if (what == "h") {
		print "typedef " result " (*fn_" name ")(" params ");"
		print "#define real_" name " ((fn_" name ")entry_real(E_" name "))"
		if (kind ~ /^own/) {
			handler = kind == "own" ? base(symbol) : substr(kind, 5)
			if (!(handler in declared)) {
				declared[handler] = 1
				print result " on_" handler "(fn_" name " real" (params == "void" ? "" : ", " params) ");"
			}
		}
		ids = ids "\tE_" name ",\n"
		return
	}
	if (kind != "need") {
		printf "EXPORT %s %s(%s)\n{\n", result, name, params
		if (kind == "refuse") {
			n = split(args, a, ", ")
			for (i = 1; i <= n; i++) printf "\t(void)%s;\n", a[i]
			print "\treturn CUDA_ERROR_NOT_SUPPORTED;\n}"
		} else {
			printf "\tfn_%s real = real_%s;\n\tif (!real)\n\t\treturn %s;\n", name, name, missing
			if (kind ~ /^own/) {
				handler = kind == "own" ? base(symbol) : substr(kind, 5)
				printf "\treturn on_%s(real%s);\n}\n", handler, rest
			} else if (kind ~ /^launch=/) {
				stream = substr(kind, 8)
				if (suffix != "") stream = stream == "0" ? "(CUstream)CU_STREAM_PER_THREAD" : "own_stream(" stream ")"
				else if (stream == "0") stream = "NULL"
				printf "\tGATED(%s, real(%s));\n}\n", stream, args
			} else if (kind == "move")
				printf "\tMOVING(real(%s));\n}\n", args
			else if (kind ~ /^pin=/)
				printf "\tPINNING(\"%s\", real(%s));\n}\n", substr(kind, 5), args
		}
	}
	rows = rows sprintf("\t[E_%s] = {\"%s\", \"%s\", %d, %d, %s},\n", name, name, base(symbol), suffix != "" && since < 7000 ? 7000 : since, suffix != "",
		kind == "need" ? "NULL" : "(void *)" name)
}

/^#/ || NF == 0 { next }
{
	symbol = $1; since = $2; thread = $3; kind = $4
	params = $0; sub(/^[^(]*\(/, "", params); sub(/\)[ \t]*$/, "", params)
	args = arguments(params); nvml = symbol ~ /^nvml/
	if (NR_rows++ == 0 && what == "c")
		print "/* Written by entries.awk from entries.tab. */\n#include \"elastic.h\"\n"
	if (what == "stub") {
		if (nvml) next
		printf "ROW(%s, %s, %d, 0)\n", symbol, base(symbol), since
		if (thread != "-") printf "ALIAS(%s, %s_%s)\nROW(%s_%s, %s, %d, 1)\n", symbol, symbol, thread, symbol, thread, base(symbol), since
		next
	}
	emit(symbol, "")
	if (thread != "-") emit(symbol, "_" thread)
}
END {
	if (what == "stub") exit
	if (what == "h") print "enum entry_id {\n" ids "\tENTRY_COUNT\n};"
	else print "struct entry entries[ENTRY_COUNT] = {\n" rows "};"
}
