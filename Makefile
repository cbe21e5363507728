# Needs Python 3.10 to 3.13 and make, nothing else. PYTHON=/path/to/python3 chooses one.
PYTHON ?= python3
FOLDER := build
VENV := $(FOLDER)/venv
BIN := $(VENV)/bin
ENVIRONMENT := $(PYTHON) tools/environment.py
KERNEL := $(BIN)/bitfusion-kernel install --sys-prefix
PYTEST := $(BIN)/python -m pytest --durations=12
ROOMS := tests/client tests/pool tests/kernel tests/jupyter_ext tests/notebook_controller_patch
# Jupyter asks for a word before it serves root, who is the only user of many containers.
ROOT_TOO = $(if $(filter 0,$(shell id -u)),--allow-root)

.DEFAULT_GOAL := help
.PHONY: help demo test test-rooms test-pythons lab cluster cluster-stop bench fuzz lint lock clean
# An environment is made by one at a time.
.NOTPARALLEL:

help: ## show this list
	@echo "make demo    train a network in a TensorFlow notebook in the Bitfusion kernel, and prove it"
	@echo "make lab     JupyterLab on the embedded pool, with the Bitfusion kernel ready"
	@echo "make test    every test; make test-rooms: those that need no server, browser or cluster"
	@echo "make cluster a real Kubernetes on this machine, to try the manifests on; make cluster-stop"
	@echo "make bench   the kernel side by side with plain ipykernel, admission with bare tornado"
	@echo "make fuzz    100,000 random admission reviews"
	@echo "make lint    ruff, mypy, import-linter"
	@echo "make lock    requirements/*.txt anew (needs uv); make clean: remove $(FOLDER)/"

demo:
	@$(ENVIRONMENT) demo
	@$(KERNEL) >/dev/null
	@$(BIN)/python examples/run_demo.py

lab:
	@$(ENVIRONMENT) demo
	@$(ENVIRONMENT) lab
	@$(KERNEL)
	@$(BIN)/jupyter lab --ServerApp.root_dir=examples $(ROOT_TOO) $(LAB)

# The tests install kernels of their own; one in the environment would be a second tile.
test:
	@$(ENVIRONMENT) test
	@rm -rf $(VENV)/share/jupyter/kernels/bitfusion
	@$(PYTEST) $(TESTS)
	@$(MAKE) --no-print-directory test-pythons

test-rooms:
	@$(ENVIRONMENT) rooms
	@$(PYTEST) -m 'not cluster' $(ROOMS) $(TESTS)

# The oldest and the newest Python that this project promises, where the machine has them.
test-pythons: test-python-3.10 test-python-3.13

test-python-%:
	@if $(ENVIRONMENT) rooms --python $* --folder $(FOLDER)/venv-$* --if-found; then \
	    $(FOLDER)/venv-$*/bin/python -m pytest -m 'not cluster' $(ROOMS); \
	elif [ $$? -eq 3 ]; then echo "· the tests of the rooms on Python $* are left out"; \
	else exit 1; fi

cluster:
	@$(ENVIRONMENT) test
	@$(BIN)/python -m tests.cluster up $(CLUSTER)

cluster-stop:
	@$(ENVIRONMENT) test
	@$(BIN)/python -m tests.cluster down

fuzz:
	@$(ENVIRONMENT) rooms
	@$(BIN)/python -m tests.notebook_controller_patch.admission.fuzz $(or $(FUZZ),--reviews 100000)

bench:
	@$(ENVIRONMENT) test
	@$(BIN)/python -m benchmarks $(BENCH)

lint:
	@$(ENVIRONMENT) lint
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

lock:
	@tools/lock.sh $(LOCK)

clean:
	rm -rf $(FOLDER) dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
