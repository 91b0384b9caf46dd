# make        what there is to type
# make up     Kubernetes with simulated GPU nodes and Elastic in it, on this machine
# make test   the checks; make test-all has the slow ones too, as CI does

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PROGRAMS := $(patsubst cmd/%/main.go,%,$(wildcard cmd/*/main.go))
KUBERNETES := v1.37.1
comma := ,
space := $(subst ,, )
# go-nvml's bindings name functions that NVIDIA has since deprecated.
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations
# Left out, since they keep the linker from leaving out what nobody calls: gRPC's pages of traces, and kustomize's plugins
# written in Go in the sandbox's kubectl, for which all symbols would be kept by name.
TAGS = grpcnotrace,kustomize_disable_go_plugin_support
# The same for programs and tests, so that no package is compiled twice. With Go's own look-up of hosts and users a program
# takes no C, and its packages are the same whether or not one in it does.
HOST_TAGS := $(TAGS)$(if $(filter Linux,$(shell uname -s)),$(comma)netgo$(comma)osusergo)
# Programs for this machine are compiled without debug data, and without inlining apart from the engines and what is called
# most: a third of the first build's time (docs/benchmarks.md). Lines of client-go for which hundreds of packages take longer
# are edited before the compiler reads them (tools/compiler.sh). What is released or measured is compiled as Go does.
AS_GO_DOES := images test-images release% build-others bench%
INLINED := std $(addprefix github.com/elastic-ai/elastic/internal/,admission/... placement/... simulate/... cloud nodematch queue/...) k8s.io/apimachinery/... k8s.io/client-go/tools/... sigs.k8s.io/controller-runtime/... \
	sigs.k8s.io/structured-merge-diff/... google.golang.org/protobuf/...
EDIT := -D=edited-$(firstword $(shell cksum tools/compiler.sh))
EDITED := -toolexec=$(CURDIR)/tools/compiler.sh '-gcflags=k8s.io/client-go/tools/cache=-dwarf=false $(EDIT)' \
	$(foreach p,client-go/kubernetes/... client-go/informers/... client-go/listers/... kubernetes/pkg/controller/replication,'-gcflags=k8s.io/$(p)=-dwarf=false -l $(EDIT)')
ifndef GIVEN_GOFLAGS
export GIVEN_GOFLAGS := $(shell go env GOFLAGS) # again in each make that a make starts
endif
# bench-busy measures what "make up" has built.
ifeq ($(filter $(AS_GO_DOES),$(filter-out bench-busy,$(MAKECMDGOALS))),)
# Tests do not vet what "make lint" vets, for which all of Kubernetes is read again; those of modules that it does not look at say -vet=.
export GOFLAGS := $(strip $(GIVEN_GOFLAGS) -vet=off -tags=$(HOST_TAGS) '-gcflags=all=-dwarf=false -l' $(INLINED:%=-gcflags=%=-dwarf=false) $(EDITED))
else
ifneq ($(findstring tools/compiler.sh,$(GIVEN_GOFLAGS)),)
$(error GOFLAGS has what "make print-goflags" prints, and $(MAKECMDGOALS) is compiled as Go does: unset GOFLAGS first)
endif
# The linker leaves debug data out of what is released (-s -w), so the compiler need not make any.
export GOFLAGS := $(strip $(GIVEN_GOFLAGS) $(if $(filter images test-images release%,$(MAKECMDGOALS)),-gcflags=all=-dwarf=false))
endif
TOOL := go tool -modfile=$(CURDIR)/tools/go.mod
# For what compiles or reads much, outside of tools/progress and tools/compiler.sh, which do the same: collecting garbage is a
# quarter to nearly half of that.
LESS_GARBAGE = GOGC=$${GOGC:-400} GOMEMLIMIT=$${GOMEMLIMIT:-4GiB}
# What is silent for long says before it what it does, and then for how long it has run.
WAIT := $(CURDIR)/tools/waiting.sh
MODULES := . sandbox scheduler

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {print "\n" substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / { \
			gsub(/\$$\$$/, "$$"); words = split($$2, word, " "); line = sprintf("  make %-19s", $$1); \
			for (i = 1; i <= words; i++) { \
				if (length(line " " word[i]) > 120) {print line; line = sprintf("%26s", "")} \
				line = line " " word[i] \
			} \
			print line \
		}' $(firstword $(MAKEFILE_LIST))

##@ Use

.PHONY: up
up: build-first ## Build, start a local cluster in the background and send a first job through it; CLOUDS=1 adds simulated clouds
	bin/elastic up --detach $(if $(CLOUDS),--clouds)

.PHONY: down
down: ## End the local cluster
	@if [ -x bin/elastic ]; then bin/elastic down; fi

##@ Build

.PHONY: build
# make test builds once, and says so to the parts that need it.
ifndef BUILT
build: with-nvml build-first build-rest build-scheduler build-native
endif
build: ## Build all programs into bin/

# The agent loads the driver's library, which takes cgo and a C compiler. "make up" has simulated cards, and none of this machine's;
# once they were asked for, it has those, too.
NVML := bin/.nvml
.PHONY: with-nvml
with-nvml:
	@mkdir -p bin && touch $(NVML)

# What "elastic up" starts. The rest is built when it is asked for: elastic-scheduler for --gpu-scheduler=plugin, the GPU
# library and a node's programs for --real-node, elastic-web in a cluster.
LATER := elastic-web
STARTED := $(filter-out $(LATER),$(PROGRAMS)) elastic-sandbox
.PHONY: build-first
build-first: build-programs build-sandbox

# go build that says how far it is.
PROGRESS = bin/tools/progress
$(PROGRESS): $(wildcard tools/progress/*)
	@echo "preparing to build: a few seconds"
	@cd tools/progress && GOGC=off go build -o $(CURDIR)/$@ .

# The module after this one is downloaded while this one compiles.
.PHONY: build-programs
build-programs: $(PROGRESS)
	@CGO_ENABLED=$$([ -e $(NVML) ] && echo 1 || echo 0) $(PROGRESS) -say "Elastic's programs" -ldflags "-s -w" -o bin/ -next sandbox=./cmd/elastic-sandbox $(patsubst %,./cmd/%,$(filter-out $(LATER),$(PROGRAMS)))
	@for name in arena kubectl-elastic kubectl_complete-elastic; do ln -sf elastic bin/$$name; done

.PHONY: build-rest
build-rest: $(PROGRESS)
	@$(PROGRESS) -say "the page's server" -ldflags "-s -w" -o bin/ $(LATER:%=./cmd/%)

.PHONY: build-sandbox
build-sandbox: $(PROGRESS)
	@CGO_ENABLED=0 $(PROGRESS) -say "the sandbox (Kubernetes $(KUBERNETES))" -dir sandbox -ldflags "-s -w" -o $(CURDIR)/bin/ ./cmd/elastic-sandbox

.PHONY: build-scheduler
build-scheduler: $(PROGRESS)
	@$(PROGRESS) -say "the scheduler with the plugin" -dir scheduler -ldflags "$$(cat sandbox/ldflags)" -o $(CURDIR)/bin/ ./cmd/elastic-scheduler

.PHONY: build-node
build-node: with-nvml build-programs ## Build what "elastic up --real-node" runs: kubelet, containerd, runc
	@PROGRESS=$(CURDIR)/$(PROGRESS) sandbox/node/build.sh bin/node

.PHONY: print-goflags
print-goflags: ## Print the flags that make gives to Go. After export GOFLAGS="$$(make -s print-goflags)" your own go test uses what make has built
	@echo "$(GOFLAGS)"

.PHONY: build-web
build-web: build-page ## Build the page into internal/web/dist, where it is committed; takes Node
	@diff -rq $(PAGE) internal/web/dist >/dev/null || { rm -rf internal/web/dist && cp -r $(PAGE) internal/web/dist; }

# Beside the one that programs have in them: what compiles them at the same time finds that whole.
PAGE = $(CURDIR)/bin/page
.PHONY: build-page
build-page:
	@cd web && { [ -d node_modules ] && [ node_modules -nt package-lock.json ] || $(WAIT) "npm fetches what the page is built with: half a minute to two" npm install --silent --no-audit; } && npm run --silent build -- --outDir $(PAGE) --emptyOutDir >/dev/null

# Platforms that the programs build for as well, so that "elastic up" finds there all that it starts. The agent is built without
# the driver's library, for which it would take a C compiler of the platform, and has simulated cards; so compiled with it, its
# types are checked alone (test-platforms). The GPU library is for Linux nodes.
OTHERS = darwin/arm64 darwin/amd64 linux/arm64
OTHER_PROGRAMS = .=$(subst $(space),$(comma),$(PROGRAMS:%=./cmd/%)) sandbox=./cmd/elastic-sandbox

.PHONY: build-others
build-others: $(PROGRESS) ## Build the programs for macOS and linux/arm64 (OTHERS) into bin/others; minutes for each the first time
	@for platform in $(OTHERS); do for module in $(OTHER_PROGRAMS); do \
		GOOS=$${platform%/*} GOARCH=$${platform#*/} CGO_ENABLED=0 $(PROGRESS) -say "$${module##*/} for $$platform" -dir $${module%%=*} -tags $(TAGS) -ldflags "-s -w $(NUMBERED)" \
			-o $(CURDIR)/bin/others/$${platform/\//-}/ $$(tr , ' ' <<<"$${module#*=}"); \
	done; done

# For cards of other nodes: the agent finds the two libraries beside libelasticgpu.so.
NATIVE_REMOTE = elastic-gpu-remote libcuda.so.1 libnvidia-ml.so.1
.PHONY: build-native
build-native:
	@$(MAKE) --no-print-directory -C native/cuda all
	@$(MAKE) --no-print-directory -C native/remote all
	@mkdir -p bin && ln -sf ../native/cuda/build/libelasticgpu.so ../native/cuda/build/elastic-gpu-arbiter $(NATIVE_REMOTE:%=../native/remote/build/%) bin/

# Container images without a Docker daemon, with SBOMs, into bin/images or a registry:
#   make images KO_DOCKER_REPO=registry.example.com/elastic PUSH=true
PUSH ?= false
IMAGES ?= $(CURDIR)/bin/images
# Folder with .ko.yaml and scheduler/.ko.yaml: other base images than usual.
KO_CONFIGS ?= $(CURDIR)
KO_DOCKER_REPO ?= ghcr.io/elastic-ai
VERSION ?= $(shell sed -n 's/^appVersion: //p' deploy/chart/Chart.yaml)

.PHONY: images
images: KO = $(LESS_GARBAGE) KO_DOCKER_REPO=$(KO_DOCKER_REPO) VERSION=$(VERSION) go tool -modfile=$(CURDIR)/tools/images/go.mod ko build --base-import-paths --tags=$(VERSION),latest --push=$(PUSH) --sbom=spdx \
	--platform=linux/$$(go env GOARCH) --oci-layout-path=$(IMAGES) --sbom-dir=$(IMAGES)
images: build-native ## Build the container images into bin/images, with SBOMs; PUSH=true sends them to KO_DOCKER_REPO
	@mkdir -p $(IMAGES) && rm -f $(IMAGES)/index.json # which lists what was built before, too
	KO_CONFIG_PATH=$(KO_CONFIGS) $(KO) $(filter-out ./cmd/elastic,$(PROGRAMS:%=./cmd/%))
	cd scheduler && KO_CONFIG_PATH=$(KO_CONFIGS)/scheduler $(KO) ./cmd/elastic-scheduler

# What is released: archives of this platform, and with RELEASE_OTHERS=1 of OTHERS, in DIST with SBOMs, the images' digests and
# checksums; SIGN_KEY=FILE (PEM, Ed25519 or ECDSA) signs the checksums.
HOST = $(shell go env GOOS)-$(shell go env GOARCH)
DIST ?= $(CURDIR)/bin/dist
# What is not Go.
RELEASED_NATIVE = bin/libelasticgpu.so bin/elastic-gpu-arbiter $(NATIVE_REMOTE:%=native/remote/build/%)

.PHONY: release
release: images ## Build archives and images of this version, with SBOMs and checksums; SIGN_KEY=FILE signs them, RELEASE_OTHERS=1 adds other platforms
	@$(MAKE) --no-print-directory release-archives RELEASED_IMAGES=$(IMAGES)

.PHONY: release-archives
release-archives: NUMBERED = -X github.com/elastic-ai/elastic/internal/version.number=$(VERSION)
release-archives: release-programs $(if $(RELEASE_OTHERS),build-others)
	@rm -f $(DIST)/elastic-* $(DIST)/SHA256SUMS*
	cd tools/release && go run . -version $(VERSION) -out $(abspath $(DIST)) \
		-with $(subst $(space),$(comma),$(filter-out $(if $(WITHOUT_SANDBOX),elastic-sandbox),$(STARTED))) $(if $(SIGN_KEY),-key $(abspath $(SIGN_KEY))) \
		$(if $(RELEASED_IMAGES),-images $(RELEASED_IMAGES) -repository $(KO_DOCKER_REPO)) \
		$(HOST)=$(CURDIR)/bin/released/$(HOST) $(if $(RELEASE_OTHERS),$(foreach p,$(subst /,-,$(OTHERS)),$(p)=$(CURDIR)/bin/others/$(p)))
	@cat $(DIST)/SHA256SUMS

# Not those of bin/, which are for this machine: here the linker is told the version, and only the agent, which loads the
# driver's library, needs a C library, no older than this machine's. The images' programs are compiled the same.
WITH_C = elastic-gpu-agent
.PHONY: release-programs
release-programs: RELEASE = GOFLAGS="$(GOFLAGS) -trimpath" $(PROGRESS) -o $(CURDIR)/bin/released/$(HOST)/
release-programs: build-native $(PROGRESS)
	@rm -rf bin/released && mkdir -p bin/released/$(HOST) && cp -L $(RELEASED_NATIVE) bin/released/$(HOST)
	@CGO_ENABLED=0 $(RELEASE) -say "Elastic's programs" -tags $(HOST_TAGS) -ldflags "-s -w $(NUMBERED)" $(addprefix ./cmd/,$(filter-out $(WITH_C),$(PROGRAMS)))
	@CGO_ENABLED=1 $(RELEASE) -say "the agent" -tags $(HOST_TAGS) -ldflags "-s -w $(NUMBERED)" $(WITH_C:%=./cmd/%)
	@CGO_ENABLED=0 $(RELEASE) -say "the scheduler with the plugin" -dir scheduler -tags $(HOST_TAGS) -ldflags "$$(cat sandbox/ldflags) $(NUMBERED)" ./cmd/elastic-scheduler
	@[ -n "$(WITHOUT_SANDBOX)" ] || CGO_ENABLED=0 $(RELEASE) -say "the sandbox" -dir sandbox -tags $(HOST_TAGS) -ldflags "-s -w" ./cmd/elastic-sandbox

.PHONY: generate
generate: ## Write the generated files again (CRDs, deep copies)
	@$(WAIT) "controller-gen writes Kueue's CRDs: seconds, 2 minutes the first time, when it is compiled" $(TOOL) controller-gen crd:generateEmbeddedObjectMeta=true \
		paths="sigs.k8s.io/kueue/apis/kueue/v1beta1;sigs.k8s.io/kueue/apis/kueue/v1beta2" output:crd:dir=deploy/crd
	@$(WAIT) "controller-gen writes deep copies and Elastic's CRDs: seconds" $(TOOL) controller-gen object paths=./api/elasticgpu/v1alpha1
	@$(TOOL) controller-gen object crd paths="./api/cloud/v1alpha1;./api/jobs/v1alpha1;./api/queuepolicy/v1alpha1" output:crd:dir=deploy/crd
	@$(TOOL) controller-gen crd:generateEmbeddedObjectMeta=true \
		paths="./api/elasticgpu/v1alpha;./api/elasticgpu/v1alpha1" output:crd:dir=deploy/crd
	@cd tools/render && $(WAIT) "the chart is rendered into deploy/install: seconds, a minute the first time" go run . -namespace elastic-queue -values ../../deploy/install/values.yaml ../../deploy/chart >../../deploy/install/elastic.yaml

##@ Check

# In this order: what says most in little time comes first. Of those with a + two run at a time: some mostly wait, others compile.
# test-rights reads what the others did.
PARTS = build verify lint test-tools test-native+test-unit+test-sandbox test-e2e+test-web+test-clients+test-migration
# What takes minutes more, and builds or starts much that is not Elastic's; each is a target of its own.
SLOW_PARTS = test-install+test-platforms test-sanitizers+test-e2e-long test-operators+test-prometheus+test-web-scale test-images+test-node test-kueue-part test-rights
AT_ONCE = $(foreach part,$(PARTS) $(SLOW_PARTS),$(if $(findstring +,$(part)),$(part)))

# What this machine cannot run says why, also to tools/parts.sh, which prints it beside the part; in CI it fails for that.
SKIP = skip() { echo "$@ does not run here: $$1"; [ -z "$${ELASTIC_SKIPPED:-}" ] || echo "$$1" >>"$$ELASTIC_SKIPPED/$@"; }

.PHONY: test
test: ## Run the tests and checks: on two cores a quarter of an hour, and about 50 minutes the first time, with downloads and builds. Prints what each part took, and leaves nothing running or mounted
	@tools/parts.sh $(PARTS)

.PHONY: test-all
test-all: ## Run the same and the slow parts, as CI does: sanitizers, operators, a part of Kueue's suites, images, a real node
	@tools/parts.sh $(PARTS) $(SLOW_PARTS)

# Each in a make of its own, since what is compiled otherwise depends on the goal.
.PHONY: $(AT_ONCE)
$(AT_ONCE): build
	@$(if $(filter test-e2e+%,$@),rm -rf $(USES))
	@$(MAKE) -j2 KEEP_USES=1 $(addprefix in-own-make/,$(subst +, ,$@))
in-own-make/%:
	@began=$$SECONDS; $(MAKE) --no-print-directory -j1 $*; echo "== $* took $$((SECONDS - began)) s"

.PHONY: test-quick
test-quick: ## Run what an edit most likely breaks: formatting, vet, and the tests that need no cluster, the long ones shortened
	@tools/parts.sh check-format test-short

# With a fifth of the cases of each property, and without what only testing.Short() leaves out.
.PHONY: test-short
test-short:
	go test -vet= -short $$(go list ./... | grep -v '/test/')

.PHONY: check-format
check-format:
	@test -z "$$(git ls-files '*.go' | xargs gofmt -l)" || { echo "run gofmt on:"; git ls-files '*.go' | xargs gofmt -l; exit 1; }

.PHONY: test-tools
test-tools: ## Test the tools that build, check and release
	for tool in progress platforms release; do (cd tools/$$tool && go vet . && go test .); done
	tools/parts_test.sh
	tools/compiler_test.sh
	tools/waiting_test.sh

.PHONY: test-install
test-install: build ## Install the programs and the sandbox with go install, from a module proxy in a folder
	cd tools/install && go vet . && $(WAIT) "go install builds all programs, of which most are there: a minute or two" go test -count=1 .

.PHONY: test-platforms
test-platforms: ## Check that the programs compile for macOS and linux/arm64 (OTHERS), by their types
	@cd tools/platforms && $(WAIT) "types of all packages for $(words $(OTHERS)) other platforms: a minute for each" go run . -on $(subst $(space),$(comma),$(OTHERS)) $(OTHER_PROGRAMS:%=../../%) ../../.+cgo=./cmd/elastic-gpu-agent

.PHONY: test-unit
test-unit: ## Run the tests that need no cluster
	go test $$(go list ./... | grep -v '/test/') ./test/faults/...

# How long each fuzzer looks for something new; its seeds run in test-unit.
FUZZTIME ?= 30s

.PHONY: fuzz
fuzz: ## Run every Go fuzzer for FUZZTIME; what one finds is written to its testdata, to be committed with the fix
	@grep -rl --include=*_test.go '^func Fuzz' internal | sort | while read -r file; do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z]*\)(.*/\1/p' $$file); do \
			echo "$$name of $$(dirname $$file)"; \
			go test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) ./$$(dirname $$file); \
		done; \
	done

.PHONY: test-sandbox
test-sandbox: ## Run the sandbox's own tests, and those of the scheduler with the plugin
	cd sandbox && go test ./... # which build the sandbox, too
	cd scheduler && go test ./...

.PHONY: test-native
test-native: ## Test the GPU library, and cards of other nodes, against a stub driver
	@$(MAKE) --no-print-directory -s -C native/cuda test
	@$(MAKE) --no-print-directory -s -C native/remote test

.PHONY: test-sanitizers
test-sanitizers: ## Run those tests of test-native under sanitizers that it does not run so itself
	@$(MAKE) --no-print-directory -s -j2 -C native/cuda sanitize-rest
	@$(MAKE) --no-print-directory -s -j2 -C native/remote sanitize

# What the programs' accounts did in the tests' clusters.
USES = $(CURDIR)/bin/uses

# Packages of tests that run at once, each with a cluster of its own: most of their time they wait for one. The longest come first.
CLUSTERS ?= 4
LONG_E2E = simulate multicluster outage upgrade
APART_E2E = agent faults operators migration rights web clients
E2E = ELASTIC_USES=$(USES) go test -count=1 -timeout 20m -p $(CLUSTERS)

.PHONY: test-e2e
test-e2e: build ## Run the programs against the sandbox
	$(if $(KEEP_USES),,rm -rf $(USES))
	$(E2E) $(addprefix ./test/,local queue cli jobs) $$(go list ./test/... | grep -v '$(subst $(space),\|,$(addprefix /test/,$(LONG_E2E) $(APART_E2E)))')

.PHONY: test-e2e-long
test-e2e-long: build ## Run the programs against several clusters, through outages and upgrades, and beside what the simulator says
	$(E2E) $(addprefix ./test/,$(LONG_E2E))

WITH_BROWSER = $(SKIP); browser=$$(web/possible.sh) || { skip "no browser: $$browser"; exit 0; }

# Folder for images of the page's views; empty makes none.
SHOTS ?=

.PHONY: test-web
test-web: build ## Build the page again and compare it, then look at each view in a real browser. Takes Node and Chromium, which are fetched on Debian as root
	@$(WITH_BROWSER); \
	$(MAKE) --no-print-directory build-page && \
	{ diff -rq $(PAGE) internal/web/dist || { echo "the page is not what its source says: commit what 'make build-web' wrote"; exit 1; }; } && \
	ELASTIC_BROWSER=$$browser ELASTIC_USES=$(USES) ELASTIC_SHOTS=$(if $(SHOTS),$(abspath $(SHOTS))) go test -count=1 -v ./test/web -skip TestScale

.PHONY: test-web-scale
test-web-scale: build ## Look at the page of 5,000 nodes and 20,000 workloads in a real browser
	@$(WITH_BROWSER); \
	{ [ -d web/node_modules ] || (cd web && npm install --silent --no-audit); } && \
	ELASTIC_BROWSER=$$browser ELASTIC_USES=$(USES) go test -count=1 -v ./test/web -run TestScale

.PHONY: test-prometheus
test-prometheus: build build-prometheus ## Let Prometheus scrape the queue, and the page ask it for the past
	ELASTIC_USES=$(USES) ELASTIC_PROMETHEUS=$(CURDIR)/bin/prometheus/prometheus go test -count=1 ./test/web -run TestPrometheus

# Without the ways in which it finds targets of clouds: the test names its own.
.PHONY: build-prometheus
build-prometheus: $(PROGRESS)
	@$(PROGRESS) -say "Prometheus" -dir test/web/prometheus -tags remove_all_sd -ldflags "-s -w" -o $(CURDIR)/bin/prometheus/ github.com/prometheus/prometheus/cmd/prometheus

.PHONY: test-rights
test-rights: ## Compare what the programs did in earlier tests with what their roles allow
	ELASTIC_USES=$(USES) go test -count=1 ./test/rights

.PHONY: test-node
test-node: build ## Run the agent on a real node with real containers, and set up a workstation from the start. Takes Linux and root
	@$(SKIP); why=$$(sandbox/node/possible.sh); if [ -n "$$why" ]; then skip "no real node: $$why"; exit 0; fi; \
	$(MAKE) --no-print-directory build-node && $(MAKE) --no-print-directory -s -C native/cuda stub && \
	ELASTIC_USES=$(USES) ELASTIC_REAL_NODE=1 go test -count=1 ./test/agent && \
	if [ -x /usr/bin/python3 ]; then test/gpu/cluster --stub; else skip "no /usr/bin/python3 for the whole way"; fi

.PHONY: test-operators
test-operators: build build-operators ## Run real job operators beside Elastic
	ELASTIC_USES=$(USES) ELASTIC_OPERATORS=$(CURDIR)/bin/operators go test -count=1 ./test/operators

# At how many moments.
KILLS ?= 200
.PHONY: test-kills
test-kills: build build-operators ## Kill queue, Karpenter and control plane at KILLS random moments while nodes are bought; an hour or more
	ELASTIC_USES=$(USES) ELASTIC_OPERATORS=$(CURDIR)/bin/operators KARPENTER_KILLS=$(KILLS) go test -count=1 -timeout 4h -v -run TestKarpenter/killed ./test/operators

.PHONY: test-migration
test-migration: build build-kueue ## Replace a running Kueue with Elastic, and back; type kueuectl's commands at both
	ELASTIC_USES=$(USES) ELASTIC_KUEUE=$(CURDIR)/bin/kueue go test -count=1 ./test/migration

.PHONY: test-clients
test-clients: build ## Run clients that others wrote: Kubernetes' Python client submits jobs and watches them
	@$(SKIP); why=$$(test/clients/fetch.sh $(CURDIR)/bin/python); if [ -n "$$why" ]; then skip "no Python client: $$why"; exit 0; fi; \
	ELASTIC_USES=$(USES) ELASTIC_PYTHON=$(CURDIR)/bin/python go test -count=1 ./test/clients

.PHONY: build-kueue
build-kueue: $(PROGRESS)
	@$(PROGRESS) -say "Kueue and kueuectl" -dir test/migration/kueue -ldflags "-s -w" -o $(CURDIR)/bin/kueue/ sigs.k8s.io/kueue/cmd/kueue sigs.k8s.io/kueue/cmd/kueuectl

.PHONY: test-images
test-images: build-native ## Make a signed release with images in a registry on this machine, read it, and run what is inside
	cd tools/images && $(WAIT) "a release and all images are built and run: 10 minutes" go test -count=1 -timeout 30m .

# Whole programs through faults that a seed chooses; docs/design/faults.md.
FAULTS ?= 100000

.PHONY: simulate-faults
simulate-faults: ## Run whole programs through FAULTS faults, and name the seeds that break an invariant; SEED=n replays one world, with SCHEDULE=file a shortened one
	GOGC=400 go test -count=1 -timeout 24h ./test/faults -run 'TestFaults$$' -faults $(FAULTS) -v \
		$(if $(SEED),-seed $(SEED),-census) $(if $(SCHEDULE),-schedule $(abspath $(SCHEDULE))) $(if $(TRACE),-trace)

SUITE ?= singlecluster/webhook/core

.PHONY: test-kueue
test-kueue: build-programs build-sandbox ## Run Kueue's own suites against elastic-queue: SUITE=all or folders, FOCUS=regexp, REST=1 for what did not pass yet, KUEUE=1 against Kueue itself, WRITE=1 to write its page
	cd test/kueue && go run . -suite '$(SUITE)' $(if $(FOCUS),-focus '$(FOCUS)') $(if $(REST),-rest) $(if $(LIMIT),-limit $(LIMIT)) $(if $(PROCESSES),-processes $(PROCESSES)) $(if $(KUEUE),-own) $(if $(WRITE),-write docs/reference/kueue-conformance.md)

# A part of Kueue's suites that takes a few minutes: all of webhook/core, about half of scheduler.
KUEUE_PART ?= Scheduler when (Scheduling|Using|Queueing|Reserving|Deleting|Cohort|Creating|Referencing|The workload)

.PHONY: test-kueue-part
test-kueue-part: build-programs build-sandbox ## Run a part of Kueue's own suites against elastic-queue, in a few minutes
	cd test/kueue && go run . -attempts 2 -suite singlecluster/webhook/core
	cd test/kueue && go run . -attempts 2 -suite singlecluster/scheduler -focus '$(KUEUE_PART)'
	cd bench && go test -vet= ./admission # the engines side by side still compile, and bring the same work to its end

.PHONY: test-restart
test-restart: build ## Kill the queue's leader again and again during 5,000 jobs; a quarter of an hour
	ELASTIC_RESTART_JOBS=5000 ELASTIC_RESTART_KILLS=25 go test -count=1 -timeout 60m ./test/queue -run KilledInALoop -v

.PHONY: build-operators
build-operators: $(PROGRESS)
	@$(PROGRESS) -say "JobSet's operator" -dir test/operators/jobset -o $(CURDIR)/bin/operators/jobset sigs.k8s.io/jobset
	@$(PROGRESS) -say "Kubeflow's training operator" -dir test/operators/training -o $(CURDIR)/bin/operators/training github.com/kubeflow/training-operator/cmd/training-operator.v1
	@$(PROGRESS) -say "Karpenter" -dir test/operators/karpenter -ldflags "-s -w" -o $(CURDIR)/bin/operators/karpenter .

.PHONY: lint
lint: ## Check style, import rules and complexity
	@$(LESS_GARBAGE) $(WAIT) "golangci-lint reads all packages: 3 to 7 minutes on two cores, 1 once they are known" $(TOOL) golangci-lint run ./...
	@cd sandbox && $(WAIT) "go vet of the sandbox: 2 minutes the first time" go vet ./...
	@cd scheduler && $(WAIT) "go vet of the scheduler with the plugin: a minute the first time" go vet ./...

.PHONY: verify
verify: generate check-format ## Check that generated files and formatting are up to date
	@git diff --exit-code -- deploy/crd deploy/install api || { echo "generated files changed: commit what 'make generate' wrote"; exit 1; }
	@cd tools/render && $(WAIT) "tests of the chart: seconds, a minute the first time" go test -vet= ./...
	@for module in $(MODULES); do (cd $$module && $(WAIT) "go mod tidy of the module in $$module, which must change nothing: half a minute the first time" go mod tidy -diff); done
	@! grep -nE '^(replace|exclude)' go.mod sandbox/go.mod || { echo "go install takes no module with these lines"; exit 1; }

##@ Measure

# Where the openb traces are; see docs/benchmarks.md.
TRACES ?= ../shared/data/openb
JOB_TRACES ?= ../shared/data/traces
CLOUD_DATA ?= ../shared/data/cloud

.PHONY: bench
bench: bench-admission bench-placement ## Run the benchmarks; each prints lines "figure NAME VALUE UNIT"

.PHONY: bench-admission
bench-admission: ## Compare the admission engine with Kueue's scheduler on the same work in one run; BAR=50 fails below that ratio, on a machine that does nothing else
	cd bench && go run ./admission $(if $(BAR),-bar $(BAR))

# Share of the baseline's 15,000 workloads; 1 is all of it, and takes half an hour.
SCALE ?= 0.1

.PHONY: bench-queue
bench-queue: build-programs build-sandbox ## Compare elastic-queue with Kueue under Kueue's own performance harness
	@mkdir -p bin/bench
	cd bench/harness && go build -o ../../bin/bench/ sigs.k8s.io/kueue/test/performance/scheduler/{runner,minimalkueue}
	cd bench && go run ./queue -scale $(SCALE)

.PHONY: bench-start
bench-start: build-programs build-sandbox ## Start elastic-queue beside 20,000 waiting workloads in 300 namespaces
	cd bench && go run ./queue -start 20000

.PHONY: bench-explain
bench-explain: build-programs build-sandbox ## Type "elastic explain" beside 20,000 waiting workloads in 300 namespaces
	cd bench && go run ./queue -explain 20000

.PHONY: bench-noisy
bench-noisy: build-programs build-sandbox ## Measure how long a tenant waits beside 100,000 workloads of another
	cd bench && go run ./queue -noisy $(or $(WORKLOADS),100000)

.PHONY: coldstart
coldstart: ## Measure "make up" as a new user meets it: a fresh clone, an empty home, empty caches. COLD_BEFORE=COMMIT measures that commit first. Takes the whole machine for 10 to 30 minutes
	@COLD_BEFORE=$(COLD_BEFORE) tools/coldstart.sh

.PHONY: bench-local
bench-local: build-first ## Measure what the local cluster takes of this machine, at rest and beside JOBS (1000) jobs that wait
	@JOBS=$(or $(JOBS),1000) tools/cost.sh

.PHONY: bench-busy
bench-busy: build-first ## Run the local cluster beside LOOPS (15) busy loops, and again with 2 GiB of memory, STAY (180) seconds each; fails where a program ends or loses its lease
	@tools/busy.sh

.PHONY: bench-web
bench-web: build-programs ## Measure the page with 5,000 nodes and 20,000 workloads in a real browser, on a machine with nothing else to do; fails where it is too slow
	@$(SKIP); browser=$$(web/possible.sh) || { skip "no browser: $$browser"; exit 0; }; \
	{ [ -d web/node_modules ] || (cd web && $(WAIT) "npm fetches what the page is built with: half a minute to two" npm install --silent --no-audit); } && \
	ELASTIC_BROWSER=$$browser ELASTIC_BARS=1 go test -count=1 -v ./test/web -run TestScale

.PHONY: bench-placement
bench-placement: ## Measure placement policies on the openb traces, and the time of one decision
	go run ./internal/simulate/benchplacement -traces $(TRACES)

.PHONY: build-benchsimulate
build-benchsimulate: $(PROGRESS)
	@$(PROGRESS) -say "the simulator" -o bin/bench/ ./internal/simulate/benchsimulate

.PHONY: bench-simulate
bench-simulate: build-benchsimulate ## Replay whole clusters: published results to the second, policies on traces, speed. BAR=60 fails where a million jobs take more seconds of processor time
	bin/bench/benchsimulate -traces $(JOB_TRACES) $(if $(BAR),-bar $(BAR))

.PHONY: bench-simulate-cost
bench-simulate-cost: build-benchsimulate ## Measure what machines of clouds cost over a bound, on recorded prices and availability
	bin/bench/benchsimulate -only cost -clouds $(CLOUD_DATA)

.PHONY: simulate-week
simulate-week: ## Simulate a week of 3,000 cards with every policy on and nodes that are lost, and check invariants at each step; WAY=fifo, drf or maxmin runs one way of sharing alone
	GOGC=400 go test -count=1 -timeout 3h ./internal/simulate/world -run 'TestWeekWithEveryPolicy/$(WAY)' -week-cards 3000 -v

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin
	@$(MAKE) --no-print-directory -C native/cuda clean
	@$(MAKE) --no-print-directory -C native/remote clean
