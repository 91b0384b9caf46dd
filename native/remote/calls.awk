# calls.tab -> the generated parts of client and server.
# awk -v what=WHAT -f calls.awk calls.tab, where WHAT is
#   numbers   build/remote_calls.h: a number and a name for each call, in the order of the table, and its type
#   client    build/client_calls.c: the exported functions
#   exports   build/client_exports.h: which functions are exported
#   lookup    build/client_rows.h: what cuGetProcAddress answers
#   nvml      build/nvml_calls.c, and
#   nvml_exports   build/nvml_exports.h: the same of the functions of NVML
#   server    build/server_calls.c: the server's side of each
function ctype(t) {
	if (t == "voidp") return "void *"
	if (t == "voidpp") return "void **"
	if (t == "uchar") return "unsigned char "
	if (t == "ushort") return "unsigned short "
	if (t == "ulong") return "unsigned long long "
	if (t == "text") return "const char *"
	if (t == "intp") return "int *"
	if (t == "launch") return "const CUlaunchConfig *"
	if (t == "nvmlProcessesV1" || t == "nvmlProcessesV2") { sub(/esV/, "V", t); return t " *" }
	return t " "
}
function base(s) { sub(/_v[0-9]+$/, "", s); return s }

# The parameters of the driver's function.
function signature(   i, s, p) {
	for (i = 1; i <= params; i++) {
		p = ""
		if (how[i] == "in") p = ctype(type[i]) name[i]
		else if (how[i] == "out" || how[i] == "opt") p = ctype(type[i]) "*" name[i]
		else if (how[i] == "h" || how[i] == "gone") p = "void *" name[i]
		else if (how[i] == "new" || how[i] == "made") p = "void **" name[i]
		else if (how[i] == "str") p = "const char *" name[i]
		else if (how[i] == "text") p = "char *" name[i] ", " (nvml ? "unsigned " : "int ") name[i] "_size"
		else if (how[i] == "card") p = "nvmlDevice " name[i]
		else if (how[i] ~ /^(addr|rows)$/) p = "CUdeviceptr " name[i]
		s = s (i > 1 ? ", " : "") p
	}
	return s == "" ? "void" : s
}
function arguments(first,   i, s) {
	for (i = 1; i <= params; i++)
		s = s (i > 1 ? ", " : "") name[i] (how[i] == "text" ? ", " name[i] "_size" : "")
	return s
}
# What goes over the wire of a parameter, and what comes back.
function goes(i) { return how[i] ~ /^(in|h|gone|new|str|addr|rows|card)$/ }
function comes(i) { return how[i] ~ /^(out|opt|made)$/ }
function stored(i) { return how[i] ~ /^(h|gone|new|made)$/ ? "uint64_t" : how[i] ~ /^(addr|rows)$/ ? "CUdeviceptr" : ctype(type[i]) }
# The size of what goes, less text.
function size_of(   i, s) {
	s = "0"
	for (i = 1; i <= params; i++) if (goes(i) && how[i] != "str") s = s " + sizeof(" (how[i] == "in" ? ctype(type[i]) : how[i] == "card" ? "int32_t" : "uint64_t") ")"
	return s
}
# How the client asks.
function ask() { return mode != "cached" ? "call_sync" : cached_if == "" ? "call_cached" : "(" cached_if " ? call_cached : call_sync)" }
function handle(i) { return (type[i] ~ /^(function|kernel|callable)$/ ? "id_of_" type[i] "(" : "id_of(") name[i] ")" }

function client_function(   i, ins, outs, text, sent) {
	printf "CUresult %s(%s)\n{\n", symbol, signature()
	for (i = 1; i <= params; i++) {
		if (how[i] == "out" || how[i] == "new" || how[i] == "made" || how[i] == "str" || how[i] == "text")
			printf "\tif (!%s)\n\t\treturn CUDA_ERROR_INVALID_VALUE;\n", name[i]
		if (how[i] == "text") text = name[i]
	}
	for (i = 1; i <= params; i++) ins += goes(i)
	if (ins) print "\tstruct writer w;\n\tw.size = 0;"
	sent = ins ? "w.bytes, w.size" : "NULL, 0"
	for (i = 1; i <= params; i++) {
		if (how[i] == "new") printf "\tuint64_t made = handle_make(KIND_%s);\n\twriter_put(&w, &made, sizeof made);\n", type[i]
		else if (how[i] == "str") printf "\tif (!writer_text(&w, %s))\n\t\treturn CUDA_ERROR_INVALID_VALUE;\n", name[i]
		else if (how[i] == "h" || how[i] == "gone") printf "\tuint64_t id_%s = %s;\n\twriter_put(&w, &id_%s, sizeof id_%s);\n", name[i], handle(i), name[i], name[i]
		else if (goes(i)) printf "\twriter_put(&w, &%s, sizeof %s);\n", name[i], name[i]
	}
	if (text != "") {
		printf "\treturn call_text(%s, CALL_%s, &w, %s, %s_size);\n}\n\n", ask(), symbol, text, text
		return
	}
	if (mode == "async") {
		printf "\tCUresult r = call_async(CALL_%s, %s);\n", symbol, sent
		for (i = 1; i <= params; i++) {
			if (how[i] == "new") printf "\tif (r == CUDA_SUCCESS)\n\t\t*%s = (void *)(uintptr_t)made;\n", name[i]
			if (how[i] == "gone" && (type[i] == "stream" || type[i] == "event")) printf "\tif (r == CUDA_SUCCESS)\n\t\thandle_free(KIND_%s, id_%s);\n", type[i], name[i]
		}
		print "\treturn r;\n}\n"
		return
	}
	for (i = 1; i <= params; i++) outs += comes(i)
	if (!outs) {
		printf "\tCUresult r = call_sync(CALL_%s, %s, NULL, 0);\n", symbol, sent
		for (i = 1; i <= params; i++) if (how[i] == "gone") print "\tcached_forget();"
		print "\treturn r;\n}\n"
		return
	}
	print "\tunsigned char back[256];\n\tsize_t expect = 0;"
	for (i = 1; i <= params; i++) if (comes(i)) printf "\texpect += sizeof(%s);\n", stored(i)
	printf "\tCUresult r = %s(CALL_%s, %s, back, expect);\n", ask(), symbol, sent
	print "\tif (r != CUDA_SUCCESS)\n\t\treturn r;"
	print "\tstruct reader in = {back, back + expect};"
	for (i = 1; i <= params; i++) if (comes(i)) {
		printf "\t%s got_%s;\n\treader_get(&in, &got_%s, sizeof got_%s);\n", stored(i), name[i], name[i], name[i]
		if (how[i] == "made") printf "\t*%s = (void *)(uintptr_t)got_%s;\n", name[i], name[i]
		else if (how[i] == "opt") printf "\tif (%s)\n\t\t*%s = got_%s;\n", name[i], name[i], name[i]
		else printf "\t*%s = got_%s;\n", name[i], name[i]
	}
	print "\treturn r;\n}\n"
}

# The answer to a function of NVML begins with what NVML says of it: the call itself succeeds, or is lost.
function nvml_function(   i, ins) {
	printf "nvmlReturn %s(%s)\n{\n", symbol, signature()
	for (i = 1; i <= params; i++)
		if (how[i] == "out" || how[i] == "text") printf "\tif (!%s)\n\t\treturn NVML_ERROR_INVALID_ARGUMENT;\n", name[i]
	print "\tstruct __attribute__((packed)) {\n\t\tint32_t result;"
	for (i = 1; i <= params; i++)
		if (how[i] == "out" || how[i] == "text") printf "\t\t%s%s%s;\n", how[i] == "text" ? "char " : ctype(type[i]), name[i], how[i] == "text" ? "[MOST_NAME]" : ""
	print "\t} back;"
	for (i = 1; i <= params; i++) ins += goes(i)
	if (ins) print "\tstruct writer w;\n\tw.size = 0;"
	for (i = 1; i <= params; i++) {
		if (how[i] == "card") printf "\tint32_t card_%s = nvml_number(%s);\n\twriter_put(&w, &card_%s, sizeof card_%s);\n", name[i], name[i], name[i], name[i]
		else if (goes(i)) printf "\twriter_put(&w, &%s, sizeof %s);\n", name[i], name[i]
	}
	printf "\tnvmlReturn r = nvml_ask(CALL_%s, %s, &back, sizeof back);\n", symbol, ins ? "w.bytes, w.size" : "NULL, 0"
	for (i = 1; i <= params; i++) {
		if (how[i] == "out") printf "\tif (r == NVML_SUCCESS)\n\t\t*%s = back.%s;\n", name[i], name[i]
		if (how[i] == "text") printf "\tif (r == NVML_SUCCESS)\n\t\tr = nvml_text(back.%s, %s, %s_size);\n", name[i], name[i], name[i]
	}
	print "\treturn r;\n}\n"
}

# The second symbol: stream 0 is the thread's own. A call without a stream is the one with the thread's.
function thread_function(   i, s) {
	if (thread == "-") return
	if (with_stream != "") {
		printf "CUresult %s_%s(%s)\n{\n\treturn %s(%s, (void *)CU_STREAM_PER_THREAD);\n}\n\n", symbol, thread, signature(), with_stream, arguments()
		return
	}
	for (i = 1; i <= params; i++)
		s = s (i > 1 ? ", " : "") (type[i] == "stream" ? "own_stream(" name[i] ")" : type[i] == "launch" ? "(CUlaunchConfig[]){own_launch(" name[i] ")}" : name[i])
	printf "CUresult %s_%s(%s)\n{\n\treturn %s(%s);\n}\n\n", symbol, thread, signature(), symbol, s
}

# The server's side: what came, as variables.
function server_reads(   i) {
	printf "static int serve_%s(struct served *s)\n{\n", symbol
	for (i = 1; i <= params; i++) {
		if (how[i] == "str") printf "\tchar %s[MOST_NAME];\n", name[i]
		else if (how[i] == "text") printf "\tchar %s[MOST_NAME] = {0};\n\tint %s_size = sizeof %s;\n", name[i], name[i], name[i]
		else if (how[i] ~ /^(addr|rows)$/) printf "\tCUdeviceptr %s;\n", name[i]
		else if (how[i] == "card") printf "\tint32_t card_%s;\n\tnvmlDevice %s = NULL;\n", name[i], name[i]
		else if (how[i] == "in" || how[i] == "out" || how[i] == "opt") printf "\t%s %s%s;\n", ctype(type[i]), name[i], how[i] == "in" ? "" : " = {0}"
		else printf "\tuint64_t id_%s%s;\n\tvoid *%s = NULL;\n", name[i], how[i] == "made" ? " = 0" : "", name[i]
	}
	for (i = 1; i <= params; i++) {
		if (how[i] == "str") printf "\tif (!reader_text(&s->in, %s, sizeof %s))\n\t\treturn BROKEN;\n", name[i], name[i]
		else if (how[i] == "h" || how[i] == "gone" || how[i] == "new") printf "\tif (!reader_get(&s->in, &id_%s, sizeof id_%s))\n\t\treturn BROKEN;\n", name[i], name[i]
		else if (how[i] == "card") printf "\tif (!reader_get(&s->in, &card_%s, sizeof card_%s))\n\t\treturn BROKEN;\n", name[i], name[i]
		else if (goes(i)) printf "\tif (!reader_get(&s->in, &%s, sizeof %s))\n\t\treturn BROKEN;\n", name[i], name[i]
	}
	print "\tif (!reader_done(&s->in))\n\t\treturn BROKEN;"
}
function passed(   i, s) {
	for (i = 1; i <= params; i++)
		s = s (i > 1 ? ", " : "") (how[i] ~ /^(out|opt|new|made)$/ ? "&" : "") name[i] (how[i] == "text" ? ", " name[i] "_size" : "")
	return s
}
function server_nvml_function(   i) {
	server_reads()
	print "\tint32_t r = nvml_ready();"
	for (i = 1; i <= params; i++)
		if (how[i] == "card") printf "\tif (r == NVML_SUCCESS)\n\t\tr = nvml_card(card_%s, &%s);\n", name[i], name[i]
	printf "\tif (r == NVML_SUCCESS)\n\t\tr = nvml.%s ? nvml.%s(%s) : NVML_ERROR_FUNCTION_NOT_FOUND;\n", symbol, symbol, passed()
	print "\twriter_put(&s->out, &r, sizeof r);"
	for (i = 1; i <= params; i++) {
		if (how[i] == "text") printf "\t%s[MOST_NAME - 1] = 0;\n\twriter_put(&s->out, %s, MOST_NAME);\n", name[i], name[i]
		else if (comes(i)) printf "\twriter_put(&s->out, &%s, sizeof %s);\n", name[i], name[i]
	}
	print "\treturn CUDA_SUCCESS;\n}\n"
}
function server_function(   i) {
	server_reads()
	if (only != "") printf "\tif (!(%s))\n\t\treturn CUDA_ERROR_NOT_SUPPORTED;\n", only
	for (i = 1; i <= params; i++) {
		if (how[i] == "h" || how[i] == "gone") printf "\tif (%s!object_find(s, KIND_%s, id_%s, &%s))\n\t\treturn CUDA_ERROR_INVALID_HANDLE;\n", (how[i] == "gone" ? "id_" name[i] " < FIRST_HANDLE || " : ""), type[i] == "callable" ? "function" : type[i], name[i], name[i]
		if (how[i] == "new") printf "\tif (!object_free(KIND_%s, id_%s))\n\t\treturn BROKEN;\n", type[i], name[i]
		if (how[i] == "addr") printf "\tif (!memory_owns(%s, %s))\n\t\treturn CUDA_ERROR_INVALID_VALUE;\n", name[i], length_of[i]
		if (how[i] == "rows") printf "\tif (!memory_owns_rows(%s, %s))\n\t\treturn CUDA_ERROR_INVALID_VALUE;\n", name[i], length_of[i]
	}
	if (dropped != "") printf "\tif (!memory_begins(%s))\n\t\treturn CUDA_ERROR_INVALID_VALUE;\n", dropped
	printf "\tif (!driver.%s)\n\t\treturn CUDA_ERROR_NOT_SUPPORTED;\n\tint r = driver.%s(%s);\n\tif (r != CUDA_SUCCESS)\n\t\treturn r;\n", symbol, symbol, passed()
	for (i = 1; i <= params; i++) {
		if (how[i] == "gone") printf "\tobject_drop(KIND_%s, id_%s);\n", type[i], name[i]
		if (how[i] == "new") printf "\tobject_set(KIND_%s, id_%s, %s);\n", type[i], name[i], name[i]
		if (how[i] == "made") printf "\tid_%s = object_add(KIND_%s, %s);\n\tif (!id_%s)\n\t\treturn CUDA_ERROR_OUT_OF_MEMORY;\n", name[i], type[i], name[i], name[i]
	}
	if (added != "") printf "\tmemory_add(s, %s, %s);\n", added, added_bytes
	if (dropped != "") printf "\tmemory_drop(%s);\n", dropped
	for (i = 1; i <= params; i++) {
		if (how[i] == "text") printf "\t%s[MOST_NAME - 1] = 0;\n\twriter_put(&s->out, %s, MOST_NAME);\n", name[i], name[i]
		if (how[i] == "made") printf "\twriter_put(&s->out, &id_%s, sizeof id_%s);\n", name[i], name[i]
		else if (comes(i)) printf "\twriter_put(&s->out, &%s, sizeof %s);\n", name[i], name[i]
	}
	print "\treturn CUDA_SUCCESS;\n}\n"
}

# What has no row: calls that server_own.c and server_nvml.c answer, all the same by NAME, BLOCKS, ANSWERS and ASIDE.
function own_calls(   i, n, list, part) {
	n = split("goodbye,0,0 lane_end,0,0 lane_context,0,0 retain,0,1 release,0,1 create_context,0,1 destroy_context,0,1 load,0,1 load_again,0,1 words,0,1 link,0,1 linked,0,1 pointer,0,1 function,0,1 global,0,1 launch,0,0 write,0,0 write_large,1,1 read,1,1 fence,0,1 end_copies,1,1 error_text,0,1 nvml_cards,1,1,1 nvml_own_bytes,1,1,1", list, " ")
	for (i = 1; i <= n; i++) {
		split(list[i], part, ",")
		owns = owns "\tCALL_" part[1] ",\n"
		rows = rows "\t[CALL_" part[1] "] = {\"" part[1] "\", serve_" part[1] ", " part[2] ", " part[3] ", " part[4] + 0 "},\n"
	}
}

BEGIN {
	own_calls()
	print "/* Written by calls.awk from calls.tab. */"
	if (what == "client") print "#include \"client_parts.h\"\n"
	if (what == "nvml") print "#include \"nvml.h\"\n"
	if (what == "server") print "#include \"server.h\"\n"
	if (what == "numbers") print "#ifndef REMOTE_CALLS_H\n#define REMOTE_CALLS_H\n#include \"driver_types.h\""
}
/^#/ || NF == 0 { next }
{
	symbol = $1; since = $2; thread = $3; with_stream = ""; mode = $4; nvml = symbol ~ /^nvml/
	if (split(thread, part, ":") == 2) { thread = part[1]; with_stream = part[2] }
	params = 0; added = dropped = cached_if = only = ""
	for (f = 5; f <= NF; f++) {
		n = split($f, part, ":")
		if (part[1] == "+mem") { added = part[2]; added_bytes = part[3]; continue }
		if (part[1] == "-mem") { dropped = part[2]; continue }
		if (part[1] == "+if") { cached_if = part[2]; continue }
		if (part[1] == "+only") { only = part[2]; continue }
		params++
		how[params] = part[1]; type[params] = ""; length_of[params] = ""
		if (part[1] == "str" || part[1] == "text" || part[1] == "card") name[params] = part[2]
		else if (part[1] == "addr") { name[params] = part[2]; length_of[params] = part[3] ", " (n > 3 ? part[4] : 1) }
		else if (part[1] == "rows") { name[params] = part[2]; length_of[params] = "pitch, width, height, " part[3] }
		else { type[params] = part[2]; name[params] = part[3] }
	}
	if (what == "numbers") {
		printf "typedef %s (*fn_%s)(%s);\n", nvml ? "nvmlReturn" : "CUresult", symbol, signature()
		if (mode ~ /^(async|sync|cached|block|asked)$/) ids = ids "\tCALL_" symbol ",\n"
		reals[nvml] = reals[nvml] "\tfn_" symbol " " symbol ";\n"
		names[nvml] = names[nvml] "\tX(" symbol ", " mode ") \\\n"
		if (mode ~ /^(async|sync|cached|block|asked)$/) sizes = sizes "\tX(" symbol ", " size_of() ") \\\n"
	}
	if (what == "nvml" && nvml && mode ~ /^(cached|block)$/) nvml_function()
	if (what == "nvml_exports" && nvml) printf "EXPORT nvmlReturn %s(%s);\n", symbol, signature()
	if (what == "server" && mode ~ /^(async|sync|cached|block|asked)$/) {
		if (nvml) server_nvml_function()
		else server_function()
		rows = rows "\t[CALL_" symbol "] = {\"" symbol "\", serve_" symbol ", " (mode == "block" || nvml) ", " (mode != "async") ", " nvml "},\n"
	}
	if (nvml) next
	if (what == "client") {
		if (mode ~ /^(async|sync|cached|block)$/) client_function()
		thread_function()
	}
	if (what == "exports") {
		printf "EXPORT CUresult %s(%s);\n", symbol, signature()
		if (thread != "-") printf "EXPORT CUresult %s_%s(%s);\n", symbol, thread, signature()
	}
	if (what == "lookup") {
		printf "ROW(%s, %s, %d, 0)\n", symbol, base(symbol), since
		if (thread != "-") printf "ROW(%s_%s, %s, %d, 1)\n", symbol, thread, base(symbol), since < 7000 ? 7000 : since
	}
}
END {
	if (what == "numbers") {
		print "enum remote_call {\n\tCALL_none,\n" owns ids "\tREMOTE_CALLS\n};"
		print "struct driver {\n" reals[0] "};\nstruct nvml {\n" reals[1] "};"
		print "#define EACH_CALL(X) \\\n" names[0]
		print "#define EACH_NVML(X) \\\n" names[1]
		print "#define EACH_SIZE(X) \\\n" sizes
		print "#define MOST_LANES 1024 /* threads of a process that use the card at once */\n#endif"
	}
	if (what == "server") print "const struct service services[REMOTE_CALLS] = {\n" rows "};"
}
