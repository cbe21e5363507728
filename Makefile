# Needs Python 3.10 to 3.15 and make, nothing else; for TensorFlow one up to 3.13. PYTHON=/path/to/python3 chooses one.
PYTHON ?= python3
FOLDER := build
VENV := $(FOLDER)/venv
BIN = $(VENV)/bin
ENVIRONMENT := $(PYTHON) tools/environment.py
KERNEL = $(BIN)/bitfusion-kernel install --sys-prefix
# Tests run in parallel, those of one xdist group in one process. WORKERS=0 runs them one by one.
WORKERS ?= auto
# pytest keeps its bytecode of the test files, whatever the machine says about bytecode.
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest
# A worker that dies ends the run: xdist may give its replacement no tests, and wait for ever.
PARALLEL = -n $(WORKERS) --max-worker-restart=0 --dist loadgroup --durations=12
# What a test target runs, besides TESTS; on CI, where a hundred programs share two CPUs, tests that fail run once
# more, one by one, and decide then. Exit status 1 says that tests failed and that all others ran.
RUN_TESTS = $(PYTEST) $(PARALLEL) $(SELECTED) $(TESTS) $(if $(CI),|| { [ $$? -eq 1 ] && $(ONCE_MORE); })
ONCE_MORE = echo "· once more, alone, those that failed:" && \
	$(PYTEST) -n 0 --last-failed --last-failed-no-failures=none --maxfail=1 $(SELECTED) $(TESTS)
# Of the long tests, those on other Pythons and these, which start programs, one case of each runs; CASES=all runs all.
START_PROGRAMS := tests/jupyter/ tests/kernel/proxy/ tests/manifests/test_install.py tests/pods/command/ \
	tests/pool/client/ tests/pool/network/ tests/pool/service/ tests/pool/test_attacks.py
one-case = $(if $(CASES),,$(1:%=--one-case=%))
PACKAGES := tests/client tests/pods tests/pool tests/kernel tests/jupyter_ext tests/kubeflow_bitfusion \
	tests/notebook_controller_patch tests/bitfusion_cluster tests/bitfusion_device_plugin tests/tools
# Jupyter serves root, the only user of many containers, with this option only.
ROOT_TOO = $(if $(filter 0,$(shell id -u)),--allow-root)

.DEFAULT_GOAL := help
.PHONY: soak help images images-check three-commands dist demo test test-packages test-long test-apart test-pythons jupyter-suites lab cluster cluster-stop cluster-demo bench gpu-check chart chart-check fuzz rounds attacks mutants labextension labextension-check lint docs lock clean
# Two targets must not install into one environment at the same time.
.NOTPARALLEL:

help: ## show this list
	@echo "make demo           train a network in a TensorFlow notebook in the Bitfusion kernel, and check it"
	@echo "make lab            JupyterLab on the embedded pool, with the Bitfusion kernel ready"
	@echo "make test           all tests but the long ones; TESTS=tests/pool: one folder; WORKERS=4: in four processes;"
	@echo "                    CASES=all: not only one case of each test that starts programs"
	@echo "make test-packages  the tests that need no server, browser or cluster"
	@echo "make test-long      one case of each long test: soak, oldest JupyterLab; and the packages' on Python 3.10, 3.14, 3.15"
	@echo "make test-pythons   the latter alone. Both: CASES=all: all cases"
	@echo "make jupyter-suites the own tests of jupyter_client, ipykernel, nbclient, papermill and jupyter_server with our"
	@echo "                    kernel as python3, beside plain ipykernel; SUITES='nbclient papermill'"
	@echo "make labextension   build what JupyterLab loads, jupyter_ext/labextension/bundle; make labextension-check: its"
	@echo "                    types, style and unit tests. Wants the registries of PyPI and npm"
	@echo "make lint           ruff, mypy, import-linter, make labextension-check"
	@echo "make cluster        a real Kubernetes on this machine, to try the manifests on; make cluster-stop"
	@echo "                    CLUSTER=--node: with a node on which pods run (root, Debian)"
	@echo "make cluster-demo   a notebook on half a GPU in a pod of a real node: all of it, from nothing; wants root and Go"
	@echo "                    GPUS=cluster: without a pool, its programs in a pod on another node that has GPUs"
	@echo "make images         build and push the images, and write images.lock.yaml for the installation:"
	@echo "                    REGISTRY=registry.example.com/team PLATFORM=linux/amd64,linux/arm64 TAG=… NOTEBOOK_IMAGE=…"
	@echo "                    BUILDER=podman IMAGES='--only client pool'; needs no environment, but docker, podman or buildah"
	@echo "make dist           a release in dist/: wheel, source archive, manifests, chart, checksums"
	@echo "make images-check   the images built by buildah, pushed to a registry and looked at; wants root and Debian"
	@echo "make three-commands the tutorial of Kubeflow on two real nodes, from make images to the first cell, by helm and by"
	@echo "                    kustomize, with GPU pods and with simulated GPUs; prints the seconds; wants root and Debian"
	@echo "make bench          the kernel side by side with plain ipykernel, admission with bare tornado"
	@echo "make gpu-check      on a machine with an NVIDIA GPU: two programs with half a card each, one that wants more"
	@echo "make fuzz           100,000 random admission reviews, as many random pods and damaged messages of a kernel"
	@echo "make soak           an hour of notebooks that compute, wait, change and are killed; SOAK='--minutes 5'"
	@echo "make rounds         20 rounds of interrupts, in code of every kind, and of SIGKILL, in every state; all rounds of"
	@echo "                    what make test-long does at random, and crowds of 10,000 where it has 3,000"
	@echo "make test-apart     the long tests that need too long beside all others: GPU pods lost in every way on two real nodes,"
	@echo "                    queued by a real Kueue, which is built; all of ours killed at once; plain ipykernel as a control"
	@echo "make chart-check    the chart against kustomize, and on a real API server: installed, upgraded, rolled back, removed"
	@echo "make attacks        floods of connections and of pods, a minute each, beside another tenant's pods; wants root"
	@echo "make mutants        changes in the code, one at a time: do the tests see them? MUTANTS='--seed 7 --count 100'"
	@echo "make chart          write the templates of charts/kubeflow-bitfusion from manifests/engines"
	@echo "make docs           the documents as a site, in $(FOLDER)/site, without a network"
	@echo "make lock           write requirements/*.txt; LOCK=--upgrade: with the newest versions"
	@echo "make clean          remove $(FOLDER)/ and all caches in this folder"

demo:
	@$(ENVIRONMENT) demo
	@$(KERNEL) >/dev/null
	@$(BIN)/python examples/run_demo.py

# Its terminals find this environment's commands: a login shell, which Jupyter starts where its own output is no
# terminal, might begin a PATH of its own.
lab:
	@$(ENVIRONMENT) lab
	@$(KERNEL)
	@mkdir -p $(FOLDER)/lab
	@for file in examples/*.ipynb; do [ -e $(FOLDER)/lab/$${file##*/} ] || cp $$file $(FOLDER)/lab/; done
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/jupyter lab --ServerApp.root_dir=$(FOLDER)/lab $(ROOT_TOO) \
	    --ServerApp.terminado_settings="{'shell_command': ['$${SHELL:-/bin/sh}']}" $(LAB)

# The tests install kernels of their own; one in the environment would be a second tile.
test: SELECTED = $(call one-case,$(START_PROGRAMS)) -m 'not long'
test:
	@$(ENVIRONMENT) test
	@rm -rf $(VENV)/share/jupyter/kernels/bitfusion
	@$(RUN_TESTS)

test-packages: SELECTED = -m 'not cluster and not long' $(PACKAGES)
test-packages:
	@$(ENVIRONMENT) packages
	@$(RUN_TESTS)

test-long: SELECTED = $(call one-case,tests) -m 'long and not attack and not apart'
test-long:
	@$(ENVIRONMENT) test
	@$(ENVIRONMENT) oldest-front-ends --folder $(FOLDER)/venv-oldest-front-ends
	@rm -rf $(VENV)/share/jupyter/kernels/bitfusion
	@$(RUN_TESTS)
	@$(MAKE) --no-print-directory test-pythons

# The oldest Python that this project promises, the newest for which every package has a wheel, and on the newest
# of all what pods run with any image's Python. A newer one than the machine has is Debian's, unpacked into the
# user's cache. Where none can be had, its tests are left out, except on CI, where that is an error.
test-pythons: test-python-3.10 test-python-3.14 test-python-3.15

# Programs of a cluster run in images, which have a newer one.
test-python-3.10: PACKAGES := $(filter-out tests/notebook_controller_patch tests/bitfusion_device_plugin,$(PACKAGES))
test-python-3.14 test-python-3.15: DEBIAN = --debian
test-python-3.15: PURPOSE = any-python
# PyYAML has no wheel for it yet.
NEED_YAML := tests/pool/access/test_client_files.py tests/pool/access/test_plain_yaml.py \
	tests/pool/service/test_workstation_guide.py tests/pods/command/test_kueue.py tests/pods/pod/test_dry_run.py \
	tests/pods/pod/test_golden_pods.py tests/pods/pod/test_gpu_pod.py tests/pods/pod/test_secret.py \
	tests/pods/command/test_trial_pod.py tests/pods/places/test_network_policies.py
test-python-3.15: PACKAGES = tests/client tests/pods tests/pool tests/kernel $(NEED_YAML:%=--ignore=%)
# What 3.15 tests is tested on both sides of it.
test-python-3.14: PACKAGES := $(filter-out tests/client tests/pods tests/pool tests/kernel,$(PACKAGES)) $(NEED_YAML)

# Who may open, link or replace which file, what a network does to a service, and what a page in a browser shows,
# is not Python's.
NOT_BY_PYTHON := tests/pool/test_attacks.py tests/pool/test_attacks_on_the_administrator.py \
	tests/pool/service/test_users.py tests/pool/service/test_network_bounds.py \
	tests/pool/service/test_remote_life.py tests/pool/client/test_keeper.py tests/pool/network tests/pool/test_gpu_check.py

test-python-%: VENV = $(FOLDER)/venv-$*
test-python-%: PURPOSE = packages
# Rewriting the assertions of all files takes each test process 8 s on a new Python; a failure is looked at by hand.
test-python-%: SELECTED = --assert=plain $(call one-case,tests) -m 'not cluster and not long and not browser' \
	$(PACKAGES) $(NOT_BY_PYTHON:%=--ignore=%)
test-python-%:
	@if $(ENVIRONMENT) $(PURPOSE) --python $* --folder $(VENV) $(DEBIAN) $(if $(CI),,--if-found); then \
	    $(RUN_TESTS); \
	elif [ $$? -eq 3 ]; then echo "· the tests of the packages on Python $* are left out"; \
	else exit 1; fi

# What their tests import is in an environment of its own. An hour on 2 CPUs.
jupyter-suites: SUITES_VENV = $(FOLDER)/venv-jupyter-suites
jupyter-suites:
	@$(ENVIRONMENT) test
	@$(ENVIRONMENT) jupyter-suites --folder $(SUITES_VENV)
	@$(BIN)/python -m tests.jupyter.suites --python $(SUITES_VENV)/bin/python $(SUITES)

cluster:
	@$(ENVIRONMENT) cluster
	@$(BIN)/python -m tests.cluster up $(CLUSTER)

cluster-stop:
	@$(ENVIRONMENT) cluster
	@$(BIN)/python -m tests.cluster down

cluster-demo:
	@$(ENVIRONMENT) test
	@$(BIN)/python -m tests.cluster.demo$(if $(filter cluster,$(GPUS)),_gpu_pods)

# What the command line of make sets is in the environment, where the program looks for it: no shell reads it.
images:
	@$(PYTHON) -m tools.images $(IMAGES)

dist:
	@$(PYTHON) -m tools.dist

images-check:
	@$(ENVIRONMENT) test
	@$(BIN)/python -m pytest -n 0 -s -m apart tests/tools

three-commands:
	@$(ENVIRONMENT) test
	@$(BIN)/python -m pytest -n 0 -s tests/cluster/test_three_commands.py

fuzz:
	@$(ENVIRONMENT) packages
	@$(BIN)/python -m tests.notebook_controller_patch.admission.fuzz $(or $(FUZZ),--reviews 100000)
	@$(BIN)/python -m tests.bitfusion_device_plugin.injector.fuzz $(or $(FUZZ_PODS),--pods 100000)
	@$(BIN)/python -m tests.kernel.proxy.damaged_frames $(or $(FUZZ_FRAMES),--frames 100000)

rounds:
	@$(ENVIRONMENT) test
	@rm -rf $(VENV)/share/jupyter/kernels/bitfusion
	@$(BIN)/python -m tests.jupyter.interrupt_matrix $(INTERRUPTS)
	@KILL_ROUNDS=20 $(PYTEST) $(PARALLEL) -m rounds tests/jupyter/test_kill_matrix.py tests/jupyter/test_server.py \
	    tests/jupyter/test_interrupts.py
	@KILL_ROUNDS=100 $(PYTEST) $(PARALLEL) -m rounds tests/jupyter/test_gpu_pod_faults.py
	@ALL_ROUNDS=1 $(PYTEST) $(PARALLEL) -m long tests/pool/network/test_random_network.py tests/pods/agent/test_nonsense.py \
	    tests/pods/agent/test_strangers.py tests/pool/service/test_random_clients.py \
	    tests/pool/service/test_network_bounds.py tests/bitfusion_cluster/program/test_flooded_ports.py \
	    tests/cluster/test_frozen_leader.py tests/bitfusion_device_plugin/injector/test_on_cluster.py

soak:
	@$(ENVIRONMENT) test
	@rm -rf $(VENV)/share/jupyter/kernels/bitfusion
	@$(BIN)/python -m tests.jupyter.soak $(SOAK)

test-apart:
	@$(ENVIRONMENT) test
	@$(ENVIRONMENT) oldest-front-ends --folder $(FOLDER)/venv-oldest-front-ends
	@rm -rf $(VENV)/share/jupyter/kernels/bitfusion
	@$(BIN)/python -m pytest -n 0 -s -m apart $(or $(TESTS),tests --ignore=tests/charts --ignore=tests/tools --ignore=tests/cluster/test_three_commands.py)

chart-check:
	@$(ENVIRONMENT) test
	@$(BIN)/python -m pytest -n 0 tests/charts

attacks:
	@$(ENVIRONMENT) test
	@$(BIN)/python -m pytest -n 0 -s -m attack $(TESTS)

mutants:
	@$(ENVIRONMENT) test
	@$(BIN)/python tools/mutants.py $(MUTANTS)

bench:
	@$(ENVIRONMENT) test
	@$(BIN)/python -m benchmarks $(BENCH)

# Needs no network and no environment of ours: a machine with a GPU has its own Python with PyTorch or TensorFlow.
gpu-check:
	@$(PYTHON) tools/gpu_check.py $(GPU)

labextension:
	@$(ENVIRONMENT) test
	@$(BIN)/python tools/labextension.py build

# Without npm's registry, or packages of an earlier run, it is left out, except on CI, where that is an error.
labextension-check:
	@$(ENVIRONMENT) test
	@$(BIN)/python tools/labextension.py check $(if $(CI),,--if-found) || [ $$? -eq 3 ]

# mypy reads the types of everything that the project and its tests import.
lint:
	@$(ENVIRONMENT) test
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(MAKE) --no-print-directory labextension-check

chart:
	@$(ENVIRONMENT) cluster
	@$(BIN)/python -m tools.chart

# Read it in build/site; no page needs a network.
docs:
	@$(ENVIRONMENT) site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "$(FOLDER)/site/index.html"

lock:
	@$(ENVIRONMENT) lock
	@$(BIN)/python tools/lock.py $(LOCK)

clean:
	rm -rf $(FOLDER) dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
