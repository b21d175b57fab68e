# What a person types. `make` builds; `make run` serves; CI runs `make drill`, a sample of
# `make power-test`, and `make test` (.ci/run).
# Invariant: a target that needs packages asks for the missing ones and for nothing else.

# make run: ports, an address to listen on beside 127.0.0.1 and [::1] (* is all interfaces), the directory of delivered
# uploads (or the URL of an upstream instead), and the directory that everything else goes to.
PORT ?= 8080
TLS_PORT ?= 8443
STATE ?= .run
DROP ?= $(STATE)/delivered
UPSTREAM ?=
UPSTREAM_CA ?=
NAMES ?=
ADDRESS ?=
export ADDRESS PORT TLS_PORT STATE DROP UPSTREAM UPSTREAM_CA NAMES

# Settings that the environment of whoever types this may give are not for what is started here.
unexport $(shell sed -n 's/.*SettingsVariable."\([A-Z_]*\)".*/SPOOLGATE_\1/p' \
    Sources/Gateway/Settings/SettingsVariable.swift 2>/dev/null)

SOURCES = Package.swift Sources Tests

# Said before anything else, where there is no program yet.
FIRST_BUILD = [ -x .build/release/spoolgate ] || \
    echo 'The first build takes some 3 minutes on 2 cores; later ones take seconds.'

MODULE = .build/nginx-module/ngx_http_interim_module.so

# With Swift's own libraries inside, so that the program runs where no Swift is installed; by lld,
# because other linkers warn of a function those libraries have and the program does not use; and the
# same bytes wherever the source lies.
RELEASE = -c release --static-swift-stdlib -Xswiftc -use-ld=lld \
    -Xswiftc -file-prefix-map -Xswiftc "$(CURDIR)=/usr/src/spoolgate" \
    -Xcc "-ffile-prefix-map=$(CURDIR)=/usr/src/spoolgate"

# Says in linked programs which build they are: the commit, or what BUILD says, as for a source without its history.
# Each target that makes programs ends its build with it.
BUILD ?=
export BUILD
IDENTIFY = deploy/identify.sh
GATEWAY = .build/release/spoolgate
CLIENT = .build/release/spoolgate-upload

.PHONY: build run test test-quick lint format check sweep crash-test fuzz sanitize bench budget \
    attack client-test module module-test deb dist drill cluster-test hosts-test stall-test container-test power-test \
    upgrade-test release clean FORCE

build:
	@$(FIRST_BUILD)
	@deploy/install-dependencies.sh build
	swift build $(RELEASE) --product spoolgate
	swift build $(RELEASE) --product spoolgate-upload
	@$(IDENTIFY) $(GATEWAY) $(CLIENT)

# What serves ends with this make, even with one that is killed: it gets SIGTERM then.
run:
	@$(FIRST_BUILD)
	@deploy/install-dependencies.sh run
	swift build $(RELEASE) --product spoolgate
	@$(IDENTIFY) $(GATEWAY)
	@mkdir -p .build
	@$(MAKE) --no-print-directory module >.build/nginx-module.log 2>&1 || :
	@exec setpriv --pdeathsig TERM deploy/run.sh

# Warnings are errors in every target (Package.swift). The import check takes the import
# of an indirect dependency; FloorTests does not. The fault sweep and the spool's tests have a process of their own:
# the sweep keeps every core busy, another test takes away the descriptors of its process for a while, and a child
# of another one, until it begins its program, has what this process had open, so that an upload which was let go
# is still locked. Of the others as many run at a time as there are cores, since each keeps one of Swift's threads until
# it ends; SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH=1 in the environment runs one after the other. Those of the
# client library are async and need such threads themselves: they come last, in a process without the others.
# At last what sends much content goes once more through a gateway that lets nginx write none of it by itself.
LANE_TESTS = '^EndToEndTests\.(Upload|Interim|TusClient|Kill|Race|Sync|FullDisk|Progress)Tests'
FIRST_TESTS = '^(Fault|Spool)Tests\.'
ASYNC_TESTS = '^ResumableUploadTests\.' '^EndToEndTests\.ClientTests'
test:
	@deploy/install-dependencies.sh test
	$(MAKE) --no-print-directory lint
	swift build --build-tests --explicit-target-dependency-import-check error
	$(MAKE) --no-print-directory check
	$(MAKE) --no-print-directory module-test
	$(MAKE) --no-print-directory nginx-org-test
	Tests/swift-test.sh --explicit-target-dependency-import-check error --filter $(FIRST_TESTS)
	Tests/swift-test.sh --explicit-target-dependency-import-check error --skip $(FIRST_TESTS) \
	    $(ASYNC_TESTS:%=--skip %)
	SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH=1 \
	    Tests/swift-test.sh --explicit-target-dependency-import-check error $(ASYNC_TESTS:%=--filter %)
	SPOOLGATE_LANE=0 Tests/swift-test.sh --explicit-target-dependency-import-check error \
	    --filter $(LANE_TESTS)

# What a change of the protocol, the spool or the gateway is tried with first.
test-quick:
	swift build --build-tests
	swift test --skip-build --filter '^(UploadProtocol|Spool|Gateway)Tests\.'

# kill -9, round after round, from a random seed on (`make test`: always the same); a round that fails names the SEED
# that repeats it. VICTIM=gateway or VICTIM=worker kills only that; SUITE=LaneKillTests kills only while nginx writes
# content into the spool by itself.
ROUNDS ?= 500
SEED ?=
VICTIM ?=
SUITE ?= KillTests
crash-test:
	@deploy/install-dependencies.sh test
	swift build --build-tests
	SPOOLGATE_CRASH_ROUNDS=$(ROUNDS) SPOOLGATE_CRASH_SEED=$(SEED) SPOOLGATE_CRASH_VICTIM=$(VICTIM) \
	    swift test --skip-build --filter $(SUITE)

# Random requests on random records through the gateway, and random FastCGI through the front, each for so
# long; prints how many. After a trap SPOOLGATE_FUZZ_SEED=n plays the seed again that the files
# /tmp/spoolgate-fuzz-seed and -front name.
MINUTES ?= 60
fuzz:
	@deploy/install-dependencies.sh test
	swift build --build-tests
	SPOOLGATE_FUZZ_MINUTES=$(MINUTES) \
	    swift test --skip-build --filter RequestFuzzTests --filter ParameterFuzzTests \
	    --filter RecordFuzzTests

# The whole test suite, and the daemon in it, with the race detector and with the memory checker, each
# in a build of its own. The suppressions say why each of them is one. Leaks are looked for in daemons
# that end by themselves and not in the tests, whose frameworks have some; what is freed is kept short,
# for tests that measure memory.
SANITIZERS ?= thread address
sanitize:
	@deploy/install-dependencies.sh test
	export TSAN_OPTIONS=suppressions='"$(CURDIR)/Tests/thread-sanitizer.supp"'; \
	export ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=4; \
	for name in $(SANITIZERS); do \
	    export SPOOLGATE_SANITIZER=$$name; \
	    options="--sanitize=$$name --scratch-path .build/$$name"; \
	    swift build --build-tests $$options && \
	    swift test --skip-build $$options --filter $(FIRST_TESTS) && \
	    swift test --skip-build $$options --skip $(FIRST_TESTS) $(ASYNC_TESTS:%=--skip %) && \
	    SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH=1 \
	        swift test --skip-build $$options $(ASYNC_TESTS:%=--filter %) || exit 1; \
	done

lint:
	swift format lint --strict -r --parallel $(SOURCES)

format:
	swift format -i -r --parallel $(SOURCES)

check: $(MODULE)
	deploy/check.sh

# Every scenario, call and fault, with SEEDS random power cuts at every call; `make test` tries a sample.
SEEDS ?= 40

sweep:
	@deploy/install-dependencies.sh test
	swift build --build-tests
	SWEEP_SEEDS=$(SEEDS) swift test --skip-build --filter '^FaultTests\.'

# With TUSD=PATH, tusd beside it. BENCH has further arguments (Tests/Bench/README.md).
TUSD ?=
BENCH ?=

bench:
	@deploy/install-dependencies.sh run
	swift build $(RELEASE)
	@$(IDENTIFY) $(GATEWAY) $(CLIENT)
	@mkdir -p .build
	@$(MAKE) --no-print-directory module >.build/nginx-module.log 2>&1 || :
	.build/release/spoolgate-bench $(if $(TUSD),--tusd '$(TUSD)') $(BENCH)

# Counts the instructions of a few requests, on whatever machine, and fails where one is above its budget.
client-test:
	@deploy/install-dependencies.sh build
	swift package resolve
	Tests/client-package.sh

budget:
	@deploy/install-dependencies.sh test
	swift build $(RELEASE) --product spoolgate
	@$(IDENTIFY) $(GATEWAY)
	Tests/Budget/budget.py

# One client against all others: it must not keep another one waiting for a second. And one application that does not
# answer against all other deliveries.
attack:
	@deploy/install-dependencies.sh run
	swift build $(RELEASE)
	@$(IDENTIFY) $(GATEWAY) $(CLIENT)
	Tests/Attack/attack.py
	Tests/Attack/attack.py --descriptors 1024
	Tests/Attack/attack.py --slow 600
	Tests/Attack/fairness.py

# The nginx module, for the nginx that is installed.
module: $(MODULE)

$(MODULE): $(wildcard nginx/module/*.[ch]) nginx/module/config nginx/module/build.sh \
    .build/nginx-version
	nginx/module/build.sh
	@touch $@

# nginx refuses a module that was built for another version.
.build/nginx-version: FORCE
	@mkdir -p $(@D)
	@PATH="$$PATH:/usr/sbin"; nginx -V 2>&1 | cmp -s - $@ || nginx -V >$@ 2>&1

module-test: $(MODULE)
	nginx/module/tests/run

.PHONY: nginx-org-test
# The module for nginx.org's nginx: built by the steps of its packages and images, from a release (its folder or its
# .tar.gz), or from the release that Debian's nginx is made of.
NGINX_ORG ?=
nginx-org-test:
	nginx/module/tests/nginx-org $(if $(NGINX_ORG),--source '$(NGINX_ORG)')

# The Debian packages of the gateway, of the client and of the nginx module, for Debian's own nginx, below .build/deb.
deb:
	@deploy/install-dependencies.sh deb
	$(MAKE) --no-print-directory build
	deploy/deb.sh

# What a release consists of: packages for Debian 12 and 13, a tarball of the programs with their licences, and SHA256SUMS,
# below .build/dist. DIST_SUITES names others; root builds for a suite that is not this machine's own.
DIST_SUITES ?=
dist:
	@[ "$$(id -u)" -ne 0 ] || deploy/install-dependencies.sh drill || :
	@DIST_SUITES="$(DIST_SUITES)" python3 deploy/dist/dist.py

# An operator's day with these packages, in Debian machines that systemd-nspawn boots
# (Tests/Drill/README.md). It wants root, and makes the packages itself.
DRILL_SUITES ?=
DRILL_SCENES ?=
drill:
	@[ "$$(id -u)" -ne 0 ] || deploy/install-dependencies.sh drill || :
	@DRILL_SUITES="$(DRILL_SUITES)" DRILL_SCENES="$(DRILL_SCENES)" DRILL_SAMPLE="$(SAMPLE)" \
	    python3 Tests/Drill/drill.py

# Installs packages of a kind, and runs a program if it says that it can run here.
define test-of-nodes
[ "$$(id -u)" -ne 0 ] || deploy/install-dependencies.sh $(1) || :; \
	if python3 $(2) --check; then \
	    [ -n "$$SPOOLGATE" ] || [ -x .build/release/spoolgate ] || [ -x .build/debug/spoolgate ] || \
	        $(MAKE) --no-print-directory build || exit 1; \
	    mkdir -p .build; \
	    $(MAKE) --no-print-directory module >.build/nginx-module.log 2>&1 || :; \
	    exec python3 $(2); \
	fi
endef

# Several nodes behind one nginx, with a spool each and with one on a Ceph of its own (Tests/Cluster/README.md). It
# wants root; the scenes, rounds and uploads are in its environment.
cluster-test:
	@$(call test-of-nodes,cluster,Tests/Cluster/cluster.py)

# Two hosts with kernels of their own, on one CephFS or with one replicated disk (Tests/Hosts/README.md). It wants root;
# kinds, scenes and rounds are in its environment.
hosts-test:
	@$(call test-of-nodes,hosts,Tests/Hosts/hosts.py)

# A disk that stalls under uploads, and another location of the same nginx worker (Tests/Stall/README.md). It wants root;
# disks, rows and lengths are in its environment.
stall-test:
	@[ "$$(id -u)" -ne 0 ] || deploy/install-dependencies.sh stall || :
	@if python3 Tests/Stall/stall.py --check; then \
	    [ -n "$$SPOOLGATE" ] || [ -x .build/release/spoolgate ] || [ -x .build/debug/spoolgate ] || \
	        $(MAKE) --no-print-directory build || exit 1; \
	    [ -n "$$STALL_MODULE" ] || $(MAKE) --no-print-directory module || exit 1; \
	    exec python3 Tests/Stall/stall.py; \
	fi

# The images of deploy/container, built from this source and run by podman without rights, and the pod of the Kubernetes
# manifest (Tests/Container/README.md). It wants root; the base images are in its environment. CI does not run it.
BASE ?=
SWIFT ?=
container-test:
	@[ "$$(id -u)" -ne 0 ] || deploy/install-dependencies.sh container || :
	@BASE="$(BASE)" SWIFT="$(SWIFT)" exec python3 Tests/Container/container.py

# Power cuts, performed: a QEMU guest whose disks lose what was not flushed (Tests/Power/README.md). ROUNDS cuts on each
# file system of FS, each at the MOMENT named, and with spool_receive in the boots that LANE names; SAMPLE=1 takes two
# minutes at the most. The system's own Python has h2.
FS ?=
LANE ?=
MOMENT ?=
SAMPLE ?=
CONTROLS ?=
POWER = POWER_ROUNDS="$(if $(filter file default,$(origin ROUNDS)),,$(ROUNDS))" POWER_FS="$(FS)" \
    POWER_MOMENT="$(MOMENT)" POWER_SAMPLE="$(SAMPLE)" POWER_CONTROLS="$(CONTROLS)" POWER_LANE="$(LANE)" \
    $(or $(wildcard /usr/bin/python3),python3) Tests/Power/power.py
power-test:
	@[ "$$(id -u)" -ne 0 ] || deploy/install-dependencies.sh power || :
	@if $(POWER) --check; then \
	    [ -n "$$SPOOLGATE" ] || [ -x .build/release/spoolgate ] || \
	        $(MAKE) --no-print-directory build || exit 1; \
	    mkdir -p .build; \
	    $(MAKE) --no-print-directory module >.build/nginx-module.log 2>&1 || :; \
	    exec env $(POWER); \
	fi

# A spool that one build wrote, served by another, in both directions and with both programs (Tests/Upgrade/README.md).
# PREVIOUS is a commit or a tag; its program is built below .build/previous.
PREVIOUS ?= 032d853
upgrade-test:
	@deploy/install-dependencies.sh test
	swift build --build-tests
	program=$$(Tests/Upgrade/previous.sh '$(PREVIOUS)') && \
	    SPOOLGATE_PREVIOUS=$$program swift test --skip-build --filter '^EndToEndTests\.Upgrade'

# Tries what is committed, packs it and tags it (CONTRIBUTING.md); the tag is pushed by hand.
release:
	deploy/release.sh

clean:
	rm -rf .build
