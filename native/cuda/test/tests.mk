# Tests against a driver that the tests build. test: as shipped, and what processes share under the sanitizers; sanitize: all
# programs under the sanitizers.
T = $(B)/test
STUB = $(T)/libcuda.so.1 $(T)/libnvidia-ml.so.1
TESTING = $(STRICT) -DELASTICGPU_TESTING

$(T)/libcuda.so.1: test/stub_cuda.c test/stub_memory.c test/stub_arrays.c test/stub_graphs.c test/stub_card.c test/stub.h driver_types.h $(B)/stub_rows.h
	@mkdir -p $(T)
	$(CC) -O1 -g $(STRICT) -shared -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -o $@ test/stub_cuda.c test/stub_card.c -ldl -pthread
$(T)/libnvidia-ml.so.1: test/stub_nvml.c test/stub_node.c test/stub_card.c test/stub.h driver_types.h
	@mkdir -p $(T)
	$(CC) -O1 -g $(STRICT) -shared -Wl,-soname,libnvidia-ml.so.1 -o $@ test/stub_nvml.c test/stub_node.c test/stub_card.c

# The library with a root for its paths, to be preloaded.
$(T)/libelasticgpu.so: $(SOURCES) hooks_dlsym.c $(HEADERS)
	@mkdir -p $(T)
	$(CC) -O2 -g $(TESTING) -shared -o $@ $(SOURCES) hooks_dlsym.c -ldl -pthread

# Programs with the library linked in, which is how the sanitizers see it; its objects are built once for each of them.
# Those that run longest come first.
UNITS = latency calls_oversubscribed calls_peers calls_together fuzz calls_shared neighbours calls_turns calls_arrays calls_swap calls_memory unit calls_contexts calls_captures calls_graphs turns calls_space
PARTS = $(SOURCES) $(ARBITER)
plain_FLAGS =
asan_FLAGS = -fsanitize=address,undefined -fno-sanitize-recover=all
tsan_FLAGS = -fsanitize=thread -Wno-error=tsan
cover_FLAGS = $(asan_FLAGS) -fsanitize-coverage=trace-pc
define FLAVOUR
$(T)/$(1)/%.o: %.c $(HEADERS)
	@mkdir -p $$(@D)
	$(CC) -O1 -g $(TESTING) $$($(1)_FLAGS) -c -o $$@ $$<
$(T)/$(1)/%: test/%.c test/check.h test/runner.h test/calls.h test/moves.h test/processes.h test/fuzz_peers.h test/card_model.h test/stub.h test/stub_card.c $(PARTS:%.c=$(T)/$(1)/%.o)
	$(CC) -O1 -g $(TESTING) $$($(1)_FLAGS) -o $$@ $$< test/stub_card.c $(PARTS:%.c=$(T)/$(1)/%.o) -ldl -pthread
endef
$(foreach f,plain asan tsan cover,$(eval $(call FLAVOUR,$(f))))
.SECONDARY:

$(T)/preload: test/preload.c driver_types.h $(STUB)
	$(CC) -O1 -g $(STRICT) -o $@ $< $(T)/libcuda.so.1 -ldl

layers: $(PARTS:%.c=$(T)/plain/%.o) $(T)/plain/hooks_dlsym.o
	@sh test/layers.sh $(T)/plain $(SOURCES) hooks_dlsym.c
	@sh test/layers.sh $(T)/plain $(UTILITIES) $(ARBITER)

# Each program is a target of its own, so that make -j runs several at once: most of their time they wait.
asan_ENV = ASAN_OPTIONS=detect_leaks=0
# The sanitizer waits at each exit for races with what runs then, a second if nobody says less.
tsan_ENV = TSAN_OPTIONS="halt_on_error=1 die_after_fork=0 atexit_sleep_ms=100"
define RUN
$(UNITS:%=run-$(1)-%): run-$(1)-%: $(T)/$(1)/% $(STUB) all
	@LD_LIBRARY_PATH=$(CURDIR)/$(T) $$($(1)_ENV) $$<
.PHONY: $(UNITS:%=run-$(1)-%)
endef
$(foreach f,plain asan tsan,$(eval $(call RUN,$(f))))

# What processes share is tested under the sanitizers each time: what goes wrong there goes wrong seldom, and in other programs.
SHARED = calls_oversubscribed calls_peers calls_together calls_shared calls_contexts
sanitize-shared: $(SHARED:%=run-tsan-%) $(SHARED:%=run-asan-%) run-asan-fuzz
# The others; with them it is all.
sanitize-rest: $(patsubst %,run-tsan-%,$(filter-out $(SHARED),$(UNITS))) $(patsubst %,run-asan-%,$(filter-out $(SHARED) fuzz,$(UNITS)))
sanitize: sanitize-rest sanitize-shared

# Two compile at once, and four run, but for those that measure time.
MEASURE = unit turns latency calls_turns calls_space neighbours
compiled: all layers fuzz $(STUB) $(UNITS:%=$(T)/plain/%) $(T)/libelasticgpu.so $(T)/preload
test:
	@$(MAKE) --no-print-directory -j2 compiled
	@$(MAKE) --no-print-directory -j1 $(MEASURE:%=run-plain-%)
	@sh test/preload.sh
	@$(MAKE) --no-print-directory -j4 $(patsubst %,run-plain-%,$(filter-out $(MEASURE),$(UNITS))) sanitize-shared

# Inputs from outside, under the sanitizers and guided by coverage: FUZZ_RUNS=1000000 FUZZ_SEED=1 make fuzz for a long run.
fuzz: $(STUB) $(T)/cover/fuzz_inputs
	@LD_LIBRARY_PATH=$(CURDIR)/$(T) ASAN_OPTIONS=detect_leaks=0 $(T)/cover/fuzz_inputs

# The driver alone, for tests of the node's agent.
stub: all $(STUB)

.PHONY: layers compiled test sanitize sanitize-shared sanitize-rest fuzz stub
