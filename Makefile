# Type `make` to see the targets. Everything runs inside .venv, which `make setup` creates once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# make test TORCH=2.5.1 VENV=.venv-other: another torch than that of constraints.txt, in a folder of its own.
TORCH :=
# make test TESTS=tests/optim PROCESSES=1: a part of the tests, one after the other.
TESTS := tests
PROCESSES := 2
# What `make matrix` runs the tests on: an interpreter for each name, and a torch where it is not the newest.
MATRIX := torch25 py310 py313
PYTHON_torch25 ?= python3.11
TORCH_torch25 ?= 2.5.1
PYTHON_py310 ?= python3.10
PYTHON_py313 ?= python3.13

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow check docs wheel matrix study claims-page bench browser slurm clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | awk -F'|' '{printf "  make %-11s %s\n", $$1, $$2}'

setup: $(STAMP) ## create .venv and install genie-dg with all extras and the tools (once)

demo: $(STAMP) ## three optimizers fine-tune a pretrained network, from a sweep to a report (one to three minutes)
	@$(BIN)/genie-dg demo

test: $(STAMP) browser ## run the tests, except the slow ones
	$(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal -m "not slow" $(TESTS)

test-slow: $(STAMP) browser ## run the slow tests
	$(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal -m slow $(TESTS)

browser: ## install Debian's Chromium, which the tests of the report drive (once)
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver; } \
	|| echo "Chromium is missing and could not be installed; the tests of the report need it (on Debian: apt install chromium chromium-driver)." >&2

slurm: ## install Debian's Slurm, on which the tests of sweeps on a cluster run (once; they are skipped without)
	@command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v munged >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq --no-install-recommends slurm-wlm munge; } \
	|| echo "Slurm is missing and could not be installed; its tests are skipped (on Debian: apt install slurm-wlm munge)." >&2

check: $(STAMP) ## lint, formatting, types, documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir $$(mktemp -d)

docs: $(STAMP) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Needs no .venv: the tool that builds and the wheel get folders of their own under build/.
wheel: ## build the sdist and the wheel into dist/, install the wheel in a clean venv and start it
	rm -rf dist build/tool build/clean
	$(PYTHON) -m venv build/tool && build/tool/bin/python -m pip install -q --disable-pip-version-check build
	build/tool/bin/python -m build --outdir dist
	$(PYTHON) -m venv build/clean && build/clean/bin/python -m pip install -q --disable-pip-version-check dist/*.whl
	cd build && clean/bin/genie-dg --version && clean/bin/python -c "import genie_dg; print(genie_dg.GENIE)"

matrix: ## run the tests on the oldest torch, on Python 3.10 and on 3.13, each in a .venv-NAME of its own
	@for name in $(MATRIX); do $(MAKE) --no-print-directory matrix-$$name || true; done
	@for name in $(MATRIX); do printf '%-8s %s\n' $$name "$$(tail -n 1 .venv-$$name.log)"; done
	@for name in $(MATRIX); do tail -n 1 .venv-$$name.log | grep -q '^passed' || exit 1; done

# The log's last line is the verdict: passed or failed, the versions, and what pytest counted.
matrix-%:
	@$(MAKE) --no-print-directory test VENV=.venv-$* PYTHON=$(PYTHON_$*) TORCH=$(TORCH_$*) >.venv-$*.log 2>&1 \
	&& state=passed || state=failed; \
	versions=$$(.venv-$*/bin/python -c 'import platform, torch; print("Python", platform.python_version() + ", torch", torch.__version__)' 2>/dev/null || echo '$(PYTHON_$*), not installed: see .venv-$*.log'); \
	echo "$$state on $$versions: $$(grep -E '^=+ .* in [0-9.]+s' .venv-$*.log | tail -n 1 | tr -d =)" | tee -a .venv-$*.log; \
	[ $$state = passed ]

study: $(STAMP) ## make the pages of the studies anew from their records (under a minute)
	$(BIN)/python -m studies.page $(patsubst %/runs.tar.xz,%,$(wildcard studies/*/runs.tar.xz))
	$(BIN)/python -m paper pages

claims-page: $(STAMP) ## make the pages of the claims anew from the numbers that were kept (seconds)
	$(BIN)/python -m paper pages

bench: $(STAMP) ## measure the time of an optimizer step, of measuring and of a training step
	$(BIN)/python benchmarks/step_time.py
	$(BIN)/python benchmarks/monitor_cost.py --pixels 64
	$(BIN)/python benchmarks/train_step.py

clean: ## remove caches and build products; .venv and runs stay
	rm -rf build dist site .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -path './.venv*' -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last: a setup that was interrupted is taken up again, and a .venv without a stamp
# is installed over. ensurepip is asked for because Debian ships venv without it.
$(STAMP): pyproject.toml constraints.txt
	@$(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null \
	|| $(PYTHON) -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null \
	|| { echo "genie-dg needs Python 3.10 or newer with the venv module, and $(PYTHON) is not that: install it (on Debian also python3-venv) or name another one with make PYTHON=python3.12." >&2; exit 1; }
	@$(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null \
	|| $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing genie-dg and its extras into $(VENV) (torch is large; a few minutes)…"
	@sed $(if $(TORCH),-E -e '/^torch(vision)?==/d' -e '$$a torch==$(TORCH)') -e '' constraints.txt >$(VENV)/constraints.txt
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[all,dev]" -c $(VENV)/constraints.txt
	@touch $@
