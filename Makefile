# The commands of developers. `make` builds; `make run` serves; CI runs `make drill`, a sample of
# `make power-test`, and `make test` (.ci/run).
# Invariant: a target that needs packages installs only the missing ones.

# make run: ports, an address to listen on in addition to 127.0.0.1 and [::1] (* for all interfaces), the directory of
# delivered uploads (or the URL of an upstream instead), and the directory of all other files.
PORT ?= 8080
TLS_PORT ?= 8443
STATE ?= .run
DROP ?= $(STATE)/delivered
UPSTREAM ?=
UPSTREAM_CA ?=
NAMES ?=
ADDRESS ?=
export ADDRESS PORT TLS_PORT STATE DROP UPSTREAM UPSTREAM_CA NAMES

# Settings in the caller's environment do not apply to the programs started here.
unexport $(shell sed -n 's/.*SettingsVariable."\([A-Z_]*\)".*/SPOOLGATE_\1/p' \
    Sources/Gateway/Settings/SettingsVariable.swift 2>/dev/null)

SOURCES = Package.swift Sources Tests

# Printed first if there is no program yet.
FIRST_BUILD = [ -x .build/release/spoolgate ] || \
    echo 'The first build takes some 3 minutes on 2 cores; later ones take seconds.'

MODULE = .build/nginx-module/ngx_http_interim_module.so

# With Swift's libraries linked statically, so that the program runs without Swift; by lld, because other
# linkers warn of an unused function in those libraries; and with the same bytes in any source directory.
RELEASE = -c release --static-swift-stdlib -Xswiftc -use-ld=lld \
    -Xswiftc -file-prefix-map -Xswiftc "$(CURDIR)=/usr/src/spoolgate" \
    -Xcc "-ffile-prefix-map=$(CURDIR)=/usr/src/spoolgate"

# Writes the identity of the build into linked programs: the commit, or BUILD, for a source without history. Every
# target that builds programs ends its build with it.
BUILD ?=
export BUILD
IDENTIFY = deploy/identify.sh
GATEWAY = .build/release/spoolgate
CLIENT = .build/release/spoolgate-upload

.PHONY: build run test test-all test-quick lint format check sweep crash-test fuzz simulate sanitize bench budget \
    walk attack client-test module module-test deb dist drill cluster-test hosts-test stall-test container-test \
    power-test upgrade-test release clean FORCE

build:
	@$(FIRST_BUILD)
	@deploy/install-dependencies.sh build
	swift build $(RELEASE) --product spoolgate
	swift build $(RELEASE) --product spoolgate-upload
	@$(IDENTIFY) $(GATEWAY) $(CLIENT)

# The server gets SIGTERM when this make ends, even if it is killed.
run:
	@$(FIRST_BUILD)
	@deploy/install-dependencies.sh run
	swift build $(RELEASE) --product spoolgate
	@$(IDENTIFY) $(GATEWAY)
	@mkdir -p .build
	@$(MAKE) --no-print-directory module >.build/nginx-module.log 2>&1 || :
	@exec setpriv --pdeathsig TERM deploy/run.sh

# Warnings are errors in every target (Package.swift). The import check accepts the import of an indirect dependency;
# FloorTests does not. Tests/run.py runs lint, check, the module's tests and all Swift tests to their end, and names the
# failures and the slowest tests; `test-all` includes what `test` leaves out (CONTRIBUTING.md).
BUILD_TESTS = swift build --build-tests --explicit-target-dependency-import-check error
test test-all:
	@deploy/install-dependencies.sh test
	$(BUILD_TESTS)
	@$(MAKE) --no-print-directory module
	Tests/run.py $(if $(filter test-all,$@),--all)

# The first tests for a change of the protocol, the spool or the gateway.
test-quick:
	swift build --build-tests
	swift test --skip-build --filter '^(UploadProtocol|Spool|Gateway)Tests\.'

# Rounds of kill -9 from a random seed (`make test`: a fixed one); a failed round prints the SEED that repeats it.
# VICTIM=gateway or VICTIM=worker kills only that; SUITE=LaneKillTests kills only while nginx writes content directly
# into the spool.
ROUNDS ?= 500
SEED ?=
VICTIM ?=
SUITE ?= KillTests
crash-test:
	@deploy/install-dependencies.sh test
	swift build --build-tests
	SPOOLGATE_CRASH_ROUNDS=$(ROUNDS) SPOOLGATE_CRASH_SEED=$(SEED) SPOOLGATE_CRASH_VICTIM=$(VICTIM) \
	    swift test --skip-build --filter $(SUITE)

# Simulated worlds for SECONDS, each from a seed (Tests/Simulation/README.md); FIRST is the first seed, by default a new
# one. SEED repeats one world, KEEP its steps that count. SOCKETS=1 plays the worlds with nginx and the FastCGI listener.
# MUTANTS=all puts known faults back, which must be found.
SECONDS ?= 60
KEEP ?=
SOCKETS ?=
FIRST ?= $(shell date +%s)000
MUTANTS ?=
simulate:
ifneq ($(MUTANTS),)
	@$(MAKE) --no-print-directory module
	Tests/Simulation/mutants.py $(MUTANTS)
else
	@deploy/install-dependencies.sh test
	swift build --build-tests
	$(if $(SOCKETS),@$(MAKE) --no-print-directory module)
	$(if $(SEED),SIMULATION_SEED=$(SEED) $(if $(KEEP),SIMULATION_KEEP=$(KEEP))) \
	    $(if $(SOCKETS),SIMULATION_SOCKETS=1) SIMULATION_SECONDS=$(SECONDS) SIMULATION_FIRST=$(FIRST) \
	    swift test --skip-build --filter '^SimulationTests\.'
endif

# Random requests on random records through the gateway, and random FastCGI through the FastCGI listener, each for
# MINUTES; prints their number. After a trap SPOOLGATE_FUZZ_SEED=n repeats the seed in the files
# /tmp/spoolgate-fuzz-seed and -front.
MINUTES ?= 60
fuzz:
	@deploy/install-dependencies.sh test
	swift build --build-tests
	SPOOLGATE_FUZZ_MINUTES=$(MINUTES) \
	    swift test --skip-build --filter RequestFuzzTests --filter ParameterFuzzTests \
	    --filter RecordFuzzTests

# The test suite and its daemon with the race detector and with the memory checker, each in its own build.
# The file of suppressions gives the reason for each. Leaks are detected in daemons that end by themselves, but
# not in the tests, whose frameworks leak; the quarantine is small, for tests that measure memory.
SANITIZERS ?= thread address
sanitize:
	@deploy/install-dependencies.sh test
	export TSAN_OPTIONS=suppressions='"$(CURDIR)/Tests/thread-sanitizer.supp"'; \
	export ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=4; \
	for name in $(SANITIZERS); do \
	    export SPOOLGATE_SANITIZER=$$name; \
	    options="--sanitize=$$name --scratch-path .build/$$name"; \
	    swift build --build-tests $$options && \
	    Tests/run.py --all --tests --binary .build/$$name/debug/spoolgatePackageTests.xctest || exit 1; \
	done

lint:
	swift format lint --strict -r --parallel $(SOURCES)

format:
	swift format -i -r --parallel $(SOURCES)

check: $(MODULE)
	deploy/check.sh

# Every scenario, call and fault, with SEEDS random power failures at every call; `make test` runs a sample.
SEEDS ?= 40

sweep:
	@deploy/install-dependencies.sh test
	swift build --build-tests
	SWEEP_SEEDS=$(SEEDS) swift test --skip-build --filter '^FaultTests\.'

# TUSD=PATH adds tusd. BENCH has further arguments (Tests/Lab/Bench/README.md).
TUSD ?=
BENCH ?=

bench:
	@deploy/install-dependencies.sh run
	swift build $(RELEASE)
	@$(IDENTIFY) $(GATEWAY) $(CLIENT)
	@mkdir -p .build
	@$(MAKE) --no-print-directory module >.build/nginx-module.log 2>&1 || :
	.build/release/spoolgate-bench $(if $(TUSD),--tusd '$(TUSD)') $(BENCH)

# Builds and runs a package that depends on the client library (Tests/client-package.sh).
client-test:
	@deploy/install-dependencies.sh build
	swift package resolve
	Tests/client-package.sh

# Counts the instructions of a few requests, on any machine, and fails if one exceeds its budget.
budget:
	@deploy/install-dependencies.sh test
	swift build $(RELEASE) --product spoolgate
	@$(IDENTIFY) $(GATEWAY)
	Tests/Lab/Budget/budget.py

# Lists the files of Sources that one request enters.
WALK = $(RELEASE) -Xswiftc -g --scratch-path .build/walk
walk:
	@deploy/install-dependencies.sh test
	swift build $(WALK) --product spoolgate
	Tests/Lab/Budget/walk.py

# One client against all others: it must not delay another one by a second. Slow clients that return whenever they are
# rejected. And one application that does not respond against all other deliveries.
attack:
	@deploy/install-dependencies.sh run
	swift build $(RELEASE)
	@$(IDENTIFY) $(GATEWAY) $(CLIENT)
	Tests/Lab/Attack/attack.py
	Tests/Lab/Attack/attack.py --slow 600
	Tests/Lab/Attack/crowd.py
	Tests/Lab/Attack/fairness.py

# The nginx module, for the installed nginx.
module: $(MODULE)

$(MODULE): $(wildcard nginx/module/*.[ch]) nginx/module/config nginx/module/build.sh \
    .build/nginx-version
	nginx/module/build.sh
	@touch $@

# nginx refuses a module for another version.
.build/nginx-version: FORCE
	@mkdir -p $(@D)
	@PATH="$$PATH:/usr/sbin"; nginx -V 2>&1 | cmp -s - $@ || nginx -V >$@ 2>&1

module-test: $(MODULE)
	nginx/module/tests/run

.PHONY: nginx-org-test
# The module for nginx.org's nginx: built like its packages and images, from a release (its folder or its .tar.gz), or
# from the release of Debian's nginx.
NGINX_ORG ?=
nginx-org-test:
	nginx/module/tests/nginx-org $(if $(NGINX_ORG),--source '$(NGINX_ORG)')

# Debian packages of the gateway, the client and the nginx module, for Debian's own nginx, below .build/deb.
deb:
	@deploy/install-dependencies.sh deb
	$(MAKE) --no-print-directory build
	deploy/deb.sh

# The files of a release: packages for Debian 12 and 13, a tarball of the programs with their licences, and SHA256SUMS,
# below .build/dist. DIST_SUITES selects other suites; only root can build for a suite other than this machine's.
DIST_SUITES ?=
dist:
	@[ "$$(id -u)" -ne 0 ] || deploy/install-dependencies.sh drill || :
	@DIST_SUITES="$(DIST_SUITES)" python3 deploy/dist/dist.py

# An operator's day with these packages, in Debian machines that systemd-nspawn boots
# (Tests/Lab/Drill/README.md). It needs root, and builds the packages itself.
DRILL_SUITES ?=
DRILL_SCENES ?=
drill:
	@[ "$$(id -u)" -ne 0 ] || deploy/install-dependencies.sh drill || :
	@DRILL_SUITES="$(DRILL_SUITES)" DRILL_SCENES="$(DRILL_SCENES)" DRILL_SAMPLE="$(SAMPLE)" \
	    python3 Tests/Lab/Drill/drill.py

# Installs a kind of packages, and runs a program if its --check succeeds.
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

# Several nodes behind one nginx, with a spool each and with a shared one on its own Ceph (Tests/Lab/Cluster/README.md).
# It needs root; its environment selects scenes, rounds and uploads.
cluster-test:
	@$(call test-of-nodes,cluster,Tests/Lab/Cluster/cluster.py)

# Two hosts with their own kernels, on one CephFS or with one replicated disk (Tests/Lab/Hosts/README.md). It needs
# root; its environment selects kinds, scenes and rounds.
hosts-test:
	@$(call test-of-nodes,hosts,Tests/Lab/Hosts/hosts.py)

# A disk that stalls during uploads, and another location of the same nginx worker (Tests/Lab/Stall/README.md). It needs
# root; its environment selects disks, rows and lengths.
stall-test:
	@[ "$$(id -u)" -ne 0 ] || deploy/install-dependencies.sh stall || :
	@if python3 Tests/Lab/Stall/stall.py --check; then \
	    [ -n "$$SPOOLGATE" ] || [ -x .build/release/spoolgate ] || [ -x .build/debug/spoolgate ] || \
	        $(MAKE) --no-print-directory build || exit 1; \
	    [ -n "$$STALL_MODULE" ] || $(MAKE) --no-print-directory module || exit 1; \
	    exec python3 Tests/Lab/Stall/stall.py; \
	fi

# The images of deploy/container, built from this source and run by podman without privileges, and the pod of the
# Kubernetes manifest (Tests/Lab/Container/README.md). It needs root; its environment selects the base images. CI does
# not run it.
BASE ?=
SWIFT ?=
container-test:
	@[ "$$(id -u)" -ne 0 ] || deploy/install-dependencies.sh container || :
	@BASE="$(BASE)" SWIFT="$(SWIFT)" exec python3 Tests/Lab/Container/container.py

# Power failures of a QEMU guest, whose disks lose unflushed writes (Tests/Lab/Power/README.md): ROUNDS on each file
# system of FS, at the given MOMENT, and with spool_receive in the boots of LANE; SAMPLE=1 takes at most two minutes.
# Only the system's own Python has h2.
FS ?=
LANE ?=
MOMENT ?=
SAMPLE ?=
CONTROLS ?=
POWER = POWER_ROUNDS="$(if $(filter file default,$(origin ROUNDS)),,$(ROUNDS))" POWER_FS="$(FS)" \
    POWER_MOMENT="$(MOMENT)" POWER_SAMPLE="$(SAMPLE)" POWER_CONTROLS="$(CONTROLS)" POWER_LANE="$(LANE)" \
    $(or $(wildcard /usr/bin/python3),python3) Tests/Lab/Power/power.py
power-test:
	@[ "$$(id -u)" -ne 0 ] || deploy/install-dependencies.sh power || :
	@if $(POWER) --check; then \
	    [ -n "$$SPOOLGATE" ] || [ -x .build/release/spoolgate ] || \
	        $(MAKE) --no-print-directory build || exit 1; \
	    mkdir -p .build; \
	    $(MAKE) --no-print-directory module >.build/nginx-module.log 2>&1 || :; \
	    exec env $(POWER); \
	fi

# Serves a spool of one build with another, in both directions and with both programs (Tests/Lab/Upgrade/README.md).
# PREVIOUS is a commit or a tag; its program is built below .build/previous.
PREVIOUS ?= 7396a98f
upgrade-test:
	@deploy/install-dependencies.sh test
	swift build --build-tests
	program=$$(Tests/Lab/Upgrade/previous.sh '$(PREVIOUS)') && \
	    SPOOLGATE_PREVIOUS=$$program swift test --skip-build --filter '^EndToEndTests\.Upgrade'

# Tests, tags and packs the commit (CONTRIBUTING.md); the tag is pushed by hand.
release:
	deploy/release.sh

clean:
	rm -rf .build
