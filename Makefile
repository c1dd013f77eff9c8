# Two commands do everything: `make demo` shows it, `make test` checks it. Both set up what they need.
PYTHON := .venv/bin/python
# Where it is set, each of the hundreds of Pythons that tests and the demo start compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test lint types contracts unit compile bench clean

help:
	@echo "make demo   the main job, end to end, on your screen"
	@echo "make test   lint, types, import contracts and every test"
	@echo "make bench  side by side with Apache Kafka; writes docs/benchmarks/"
	@echo "make soak   failing disks, kills, fuzzed decoders, hostile frames, for ten minutes or SECONDS=…"
	@echo "make sanitize  the compiled readers under gcc's sanitizers, with harmed input for five minutes or SECONDS=…"
	@echo "make setup  only .venv, with the headwater command"

setup:
	@sh scripts/setup.sh

demo: setup
	@.venv/bin/headwater demo

test: setup peers compile lint types contracts unit

# Real peers for the tests: Java, Apache Kafka's jars, kcat. What cannot be had is said, and its tests are skipped.
.PHONY: peers
peers:
	@$(PYTHON) scripts/get_peers.py || echo "peers: not all are here; their tests say so and are skipped"

compile:
	@$(PYTHON) setup.py --quiet build_ext --inplace

lint:
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types:
	.venv/bin/mypy

contracts:
	.venv/bin/lint-imports

# Tests wait for timers and peers a third of their time: three at once keep two cores busy.
WORKERS = $(shell $(PYTHON) -c 'import os; print(max(2, (os.cpu_count() or 1) * 3 // 2))')
unit:
	.venv/bin/pytest -n $(WORKERS) --dist loadfile --max-worker-restart 0

bench: setup peers compile
	$(PYTHON) bench/broker.py
	$(PYTHON) bench/groups.py
	$(PYTHON) bench/log_life.py
	$(PYTHON) bench/clients.py
	$(PYTHON) bench/lake_growth.py
	$(PYTHON) bench/lake.py

# A round that failed prints its kind and seed: KIND=… SEED=… runs it again.
SECONDS ?= 600
.PHONY: soak
soak: setup compile
	$(PYTHON) scripts/soak.py --seconds $(SECONDS) $(if $(KIND),--only $(KIND)) $(if $(SEED),--seed $(SEED)) $(if $(FRAMES),--frames $(FRAMES))

# What is compiled and reads what strangers wrote, under gcc's sanitizers.
.PHONY: sanitize
sanitize: SECONDS = 300
sanitize: setup
	$(PYTHON) scripts/sanitize.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

clean:
	rm -rf build .venv .peers .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src bench -name '*.so' -delete
