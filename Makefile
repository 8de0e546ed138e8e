# The words a developer types, and CI too.

PYTHON ?= python3
PORT ?= 8080
HTTP_PORT ?= 8000
GRPC_PORT ?= 8001
METRICS_PORT ?= 8002
HOST ?= 127.0.0.1
CLIENTS ?=
PYTEST ?=
BENCH ?=
COMPAT ?=
PROGRAMS ?=
MINUTES ?= 30
# What shares a server or an engine stays in one of the processes (tests/support/run/sharing.py).
SIDE_BY_SIDE := -n 4 --dist loadgroup --no-loadscope-reorder
# A user's shell may have options: tests that see one of these fail (tests/support/run/shell.py).
WITH_OPTIONS := env OPTION_DTYPE=fp8 SERVING_ENGINE=MPI SM_VLLM_MAX_MODEL_LEN=99 SM_NUM_GPUS=3 \
	MAX_BATCH_SIZE=3 MAX_CONCURRENT_REQUESTS=3 TENSOR_PARALLEL_DEGREE=9 VLLM_USE_V1=0 AIP_MODE=x \
	HF_HOME=/nonexistent TMPDIR=/nonexistent HTTP_PROXY=http://127.0.0.1:9 ALL_PROXY=http://127.0.0.1:9 LC_ALL=C COLUMNS=40

BIN := .venv/bin
# Without PYTHON= the fastest one that this machine has, not the first on PATH.
INSTALL := $(PYTHON) tools/install.py $(if $(filter file,$(origin PYTHON)),--fastest)

# What is imported is compiled once: the environments come without bytecode.
export PYTHONDONTWRITEBYTECODE =
# Workers run in the engine's environment; LMI's own variable says so.
export PYTHON_EXECUTABLE ?= $(CURDIR)/.venv-engine/bin/python

.PHONY: help install install-server install-engine install-clients serve test test-unit test-gpu compat newest clients chaos fleet soak bench check lint types layers growth docs pictures site lock licenses audit clean

help: ## show this
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 16

install: install-server install-engine install-clients ## create .venv, .venv-engine and .venv-clients from the locks

install-server:
	@$(INSTALL) server

install-engine:
	@$(INSTALL) engine

install-clients:
	@$(INSTALL) clients

serve: install-server install-engine ## serve examples/tiny until Ctrl-C; PORT=, HOST=, HTTP_PORT=, GRPC_PORT=, CLIENTS= …
	@exec $(BIN)/lmi-backend serve examples/tiny --host $(HOST) --port $(PORT) \
		--http-port $(HTTP_PORT) --grpc-port $(GRPC_PORT) --metrics-port $(METRICS_PORT) \
		$(if $(CLIENTS),--clients $(CLIENTS))

test: install ## run every test; PYTEST="-k word" to choose
	@$(WITH_OPTIONS) $(BIN)/python -m pytest $(SIDE_BY_SIDE) $(PYTEST)

test-unit: install-server ## the tests that need no engine or server; PYTEST= as above
	@$(WITH_OPTIONS) $(BIN)/python -m pytest tests/unit $(PYTEST)

test-gpu: install-server ## the engines on GPUs; GPU_PYTHON= has their CUDA builds
	@$(BIN)/python -m pytest tests/gpu $(PYTEST)

compat: install ## run the contract tests on every vLLM from 0.11 on, other Tritons and Pythons; COMPAT="--only NAME"
	@$(BIN)/python tools/compat.py $(COMPAT)

newest: install-server install-engine ## the short set of those on vLLM's newest release, if none as new has run
	@$(BIN)/python tools/newest.py

clients: install ## run programs that others wrote, each in an environment of its own; PROGRAMS="--only NAME"
	@$(BIN)/python tools/run_clients.py $(PROGRAMS)

chaos: install-server install-engine ## break a running server in every way and write tests/chaos/results.md
	@$(BIN)/python -m pytest tests/chaos --report tests/chaos/results.md $(PYTEST)

fleet: install-server install-clients ## servers behind real routers that restart, die and fill; write docs/fleet.md
	@$(BIN)/python -m pytest tests/fleet --fleet-report docs/fleet.md $(PYTEST)

soak: install-server install-engine ## mixed traffic for 30 minutes, written into benchmarks/soak.md; MINUTES=
	@$(BIN)/python -m pytest tests/soak --minutes $(MINUTES) --soak-report benchmarks/soak.md \
		--timeout 0 $(PYTEST)

bench: install-server install-engine ## measure against others and draw it; BENCH="--targets lmi-backend --rounds 1"
	@$(BIN)/python tools/bench.py $(BENCH)

check: lint types layers growth ## everything that reads the code without running it

lint: install-server ## style, sizes, stale documents, their language, subjects of commits
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/python tools/check_size.py
	@$(BIN)/python tools/budget.py
	@$(BIN)/python tools/check_tests.py
	@$(BIN)/hadolint Dockerfile
	@$(BIN)/actionlint -shellcheck= -pyflakes= .github/workflows/*.yml
	@$(BIN)/python tools/make_docs.py --check
	@$(BIN)/python tools/check_language.py
	@$(BIN)/python tools/check_peers.py
	@$(BIN)/python tools/check_subjects.py

types: install-server ## mypy --strict
	@$(BIN)/mypy

layers: install-server ## imports point one way, and in no circle
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

growth: install-server ## work on hostile texts grows with their length alone
	@$(BIN)/python tools/check_growth.py

docs: install-server ## write the generated documents
	@$(BIN)/python tools/make_docs.py

pictures: install-server ## draw the page of README and the documentation anew, in Chromium
	@UPDATE_PICTURES=1 $(BIN)/python -m pytest tests/integration/test_page.py -k picture $(PYTEST)

site: ## build the documentation as a site into build/site; fails on a broken link
	@$(INSTALL) site
	@.venv-site/bin/python tools/build_site.py

lock: install-server ## write the hashes of all packages into the locks
	@$(BIN)/python tools/lock.py

licenses: install ## compare the licences of all that is installed with requirements/licenses.md
	@$(BIN)/python tools/licenses.py

audit: install-server ## known vulnerabilities of all that the locks pin, and of Triton; needs a network
	@$(BIN)/python tools/audit.py

clean: ## remove the environments and everything built
	rm -rf .venv .venv-engine .venv-clients .venv-site .cache build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
