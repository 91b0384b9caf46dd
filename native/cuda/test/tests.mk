# Tests against a driver that the tests build. test: as shipped; sanitize: the same programs under the sanitizers.
T = $(B)/test
STUB = $(T)/libcuda.so.1 $(T)/libnvidia-ml.so.1
TESTING = $(STRICT) -DELASTICGPU_TESTING
RUN = LD_LIBRARY_PATH=$(CURDIR)/$(T) sh test/run.sh

$(B)/stub_rows.h: entries.tab entries.awk
	@mkdir -p $(B)
	awk -v what=stub -f entries.awk entries.tab > $@.new && mv $@.new $@
$(T)/libcuda.so.1: test/stub_cuda.c test/stub_memory.c test/stub_card.c test/stub.h driver.h $(B)/stub_rows.h
	@mkdir -p $(T)
	$(CC) -O1 -g $(STRICT) -shared -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -o $@ test/stub_cuda.c test/stub_card.c -ldl -pthread
$(T)/libnvidia-ml.so.1: test/stub_nvml.c test/stub_card.c test/stub.h driver.h
	@mkdir -p $(T)
	$(CC) -O1 -g $(STRICT) -shared -Wl,-soname,libnvidia-ml.so.1 -o $@ test/stub_nvml.c test/stub_card.c

# The library with a root for its paths, to be preloaded.
$(T)/libelasticgpu.so: $(SOURCES) dlhook.c $(HEADERS)
	@mkdir -p $(T)
	$(CC) -O2 -g $(TESTING) -shared -o $@ $(SOURCES) dlhook.c -ldl -pthread
