# Tests against the driver that the library's tests build. test: as shipped; sanitize: under the sanitizers.
T = $(B)/test
STUB = $(CUDA)/build/test
TESTING = $(STRICT) -DELASTICGPU_TESTING
plain_FLAGS =
asan_FLAGS = -fsanitize=address,undefined -fno-sanitize-recover=all
tsan_FLAGS = -fsanitize=thread -Wno-error=tsan
# The sanitizer takes what is sent for read when sendmsg has returned. By then the other side may have it and have said so, and
# the buffer is another thread's. It waits at each exit for races with what runs then, a second if nobody says less.
TSAN = die_after_fork=0 intercept_send=0 atexit_sleep_ms=100

# The driver with all that calls.tab has, for the test that calls all of it, and for what a client may send that is none.
WHOLE = $(T)/driver
$(WHOLE)/libcuda.so.1: test/whole_driver.c $(wildcard $(CUDA)/test/stub*) $(CUDA)/driver_types.h | stub-driver
	@mkdir -p $(@D)
	$(CC) -O1 -g $(STRICT) -I$(CUDA)/build -shared -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -o $@ $< $(CUDA)/test/stub_card.c -ldl -pthread
$(WHOLE)/libnvidia-ml.so.1: test/whole_nvml.c $(wildcard $(CUDA)/test/stub*) $(CUDA)/driver_types.h
	@mkdir -p $(@D)
	$(CC) -O1 -g $(STRICT) -shared -Wl,-soname,libnvidia-ml.so.1 -o $@ $< $(CUDA)/test/stub_nvml.c $(CUDA)/test/stub_node.c $(CUDA)/test/stub_card.c

stub-driver:
	@$(MAKE) --no-print-directory -s -C $(CUDA) stub build/test/libelasticgpu.so

ENVIRONMENT = REMOTE_SERVER=$(CURDIR)/$(T)/$(1)/elastic-gpu-remote REMOTE_DELAY=$(CURDIR)/$(T)/delay ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS="$(TSAN) halt_on_error=1"

# The programs have the client linked in, which is how the sanitizers see it. The server is another program, with the driver.
define FLAVOUR
$(T)/$(1)/program $(T)/$(1)/modules $(T)/$(1)/answers $(T)/$(1)/cuts $(T)/$(1)/waits: $(T)/$(1)/%: test/%.c test/check_remote.h test/linked.h test/network.h test/work.h $(CUDA)/test/runner.h $(CLIENT) $(HEADERS)
	@mkdir -p $$(@D)
	$(CC) -O1 -g $(TESTING) $$($(1)_FLAGS) -o $$@ $$< $(CLIENT) -ldl -pthread
$(T)/$(1)/elastic-gpu-remote: $(SERVER) server_main.c $(HEADERS)
	@mkdir -p $$(@D)
	$(CC) -O1 -g $(TESTING) $$($(1)_FLAGS) -o $$@ $(SERVER) server_main.c -ldl -pthread
$(T)/$(1)/fuzz: test/fuzz.c test/check_remote.h $(CUDA)/test/runner.h $(SERVER) $(HEADERS)
	@mkdir -p $$(@D)
	$(CC) -O1 -g $(TESTING) $$($(1)_FLAGS) -o $$@ test/fuzz.c $(SERVER) -ldl -pthread
# Both libraries as files, where a program finds them.
$(T)/$(1)/lib/libcuda.so.1: $(CLIENT) $(HEADERS)
	@mkdir -p $$(@D)
	$(CC) -O1 -g $(TESTING) $$($(1)_FLAGS) $(LIBRARY) -Wl,-soname,libcuda.so.1 -o $$@ $(CLIENT) -ldl -pthread
$(T)/$(1)/lib/libnvidia-ml.so.1: $(NVML) $(HEADERS)
	@mkdir -p $$(@D)
	$(CC) -O1 -g $(TESTING) $$($(1)_FLAGS) $(LIBRARY) -Wl,-soname,libnvidia-ml.so.1 -o $$@ $(NVML) -ldl
$(T)/$(1)/libraries $(T)/$(1)/rows: $(T)/$(1)/%: test/%.c test/check_remote.h test/network.h $(CUDA)/test/runner.h $(COMMON) $(HEADERS)
	@mkdir -p $$(@D)
	$(CC) -O1 -g $(TESTING) $$($(1)_FLAGS) -o $$@ $$< $(COMMON) -ldl -pthread
run-$(1): stub-driver $(WHOLE)/libcuda.so.1 $(WHOLE)/libnvidia-ml.so.1 $(T)/plain/elastic-gpu-remote $(T)/$(1)/libraries $(T)/$(1)/rows $(T)/$(1)/lib/libcuda.so.1 $(T)/$(1)/lib/libnvidia-ml.so.1
run-$(1): stub-driver $(T)/$(1)/program $(T)/$(1)/modules $(T)/$(1)/answers $(T)/$(1)/cuts $(T)/$(1)/waits $(T)/delay $(T)/$(1)/elastic-gpu-remote $(T)/$(1)/fuzz
	@for test in program modules cuts; do $(call ENVIRONMENT,$(1)) STUB_LIBRARY=$(CURDIR)/$(STUB) $(T)/$(1)/$$$$test || exit 1; done
	@$(call ENVIRONMENT,$(1)) STUB_LIBRARY=$(CURDIR)/$(WHOLE) $(T)/$(1)/answers
	@$(call ENVIRONMENT,$(1)) PLAIN_SERVER=$(CURDIR)/$(T)/plain/elastic-gpu-remote STUB_LIBRARY=$(CURDIR)/$(STUB) $(T)/$(1)/waits
	@LD_LIBRARY_PATH=$(CURDIR)/$(T)/$(1)/lib $(call ENVIRONMENT,$(1)) PLAIN_SERVER=$(CURDIR)/$(T)/plain/elastic-gpu-remote STUB_LIBRARY=$(CURDIR)/$(STUB) $(T)/$(1)/libraries
	@LD_LIBRARY_PATH=$(CURDIR)/$(T)/$(1)/lib $(call ENVIRONMENT,$(1)) STUB_LIBRARY=$(CURDIR)/$(WHOLE) $(T)/$(1)/rows
	@LD_LIBRARY_PATH=$(CURDIR)/$(WHOLE) ASAN_OPTIONS=detect_leaks=0:exitcode=99 UBSAN_OPTIONS=exitcode=99 TSAN_OPTIONS="$(TSAN) exitcode=99" $(T)/$(1)/fuzz
endef
$(foreach f,plain asan tsan,$(eval $(call FLAVOUR,$(f))))

$(T)/delay: test/delay.c $(COMMON) $(HEADERS)
	@mkdir -p $(@D)
	$(CC) -O1 -g $(STRICT) -o $@ $< $(COMMON) -ldl -pthread

# What tests of the agents' way between the two need: a client that finds its server below a root, a server, a program.
relay: stub-driver $(T)/plain/elastic-gpu-remote $(T)/relay/libcuda.so.1 $(T)/relay/rounds
$(T)/relay/libcuda.so.1: $(CLIENT) $(HEADERS)
	@mkdir -p $(@D)
	$(CC) -O1 -g $(TESTING) $(LIBRARY) -Wl,-soname,libcuda.so.1 -o $@ $(CLIENT) -ldl -pthread
$(T)/relay/rounds: test/rounds.c $(HEADERS)
	@mkdir -p $(@D)
	$(CC) -O1 -g -std=gnu11 -Wall -Wextra -Werror -I$(B) -I$(CUDA) -o $@ test/rounds.c -ldl

test: all run-plain
sanitize: run-asan run-tsan
.PHONY: relay test sanitize stub-driver run-plain run-asan run-tsan
