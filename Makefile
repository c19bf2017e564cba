# make demo        from nothing to a pre-trained, evaluated and exported model
# make study DATA_ROOT=DIR   a larger model on your own text, its curves and its tasks: three hours, docs/study.md
# make test        all tests, lint and types
# make test-fast   the tests that need seconds, without launchers, clusters or GPUs
# make audit       the installed packages against the list of known vulnerabilities; needs the internet
# make gpu         what this machine's GPUs can do, as a page: docs/gpu.md
# make clean       removes the environment, the demo and the caches; study/ and gpu-results/ stay

VENV ?= .venv
PYTHON ?= $(firstword $(shell command -v python3.11 python3))
BIN := $(abspath $(VENV))/bin
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

export PATH := $(BIN):$(PATH)
# DeepSpeed compiles its shared-memory collectives once. They are kept in the environment.
export TORCH_EXTENSIONS_DIR := $(abspath $(VENV))/torch_extensions
# One thread per rank: ranks that each start a thread per core slow each other down.
export OMP_NUM_THREADS ?= 1
# Open MPI: allow root and oversubscription, both usual in containers.
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
export PRTE_MCA_rmaps_default_mapping_policy := :oversubscribe

# pip shows its progress on a terminal and only errors in a log.
PIP := pip install --disable-pip-version-check $(if $(shell test -t 2 && echo terminal),,--quiet --quiet)

# A container may have GPUs and no nvidia-smi.
DEV ?= /dev
GPUS := $(words $(or $(shell nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null),$(wildcard $(DEV)/nvidia[0-9]*)))
ifeq ($(GPUS),0)
export DS_ACCELERATOR := cpu
endif
RANKS ?= $(if $(filter 1,$(GPUS)),1,2)

DEMO := demo
DOCUMENTS := $(DEMO)/documents/wikipedia $(DEMO)/documents/books $(DEMO)/documents/api
DEMO_STEPS ?= 3000
STUDY := study
STUDY_HOURS ?= 3

.PHONY: demo study test test-fast environment style lint audit gpu clean

demo: environment
	python -m data_prep sample --out $(DEMO)/sample
	python -m data_prep extract --source wikipedia --input $(DEMO)/sample/wikipedia --out $(DEMO)/documents/wikipedia --held-out 0.05
	python -m data_prep extract --source books --input $(DEMO)/sample/books --out $(DEMO)/documents/books --held-out 0.05
	python -m data_prep extract --source jsonl --input $(DEMO)/sample/api --out $(DEMO)/documents/api --id-field id --title-field title --held-out 0.03
	python -m data_prep vocab --documents $(DOCUMENTS) --out $(DEMO)/vocabulary.model --size 2000
	mpirun -n 2 python -m data_prep shards --documents $(DOCUMENTS) --vocab $(DEMO)/vocabulary.model --out $(DEMO)/shards/train --max-seq-length 128
	mpirun -n 2 python -m data_prep shards --documents $(DOCUMENTS) --split held_out --vocab $(DEMO)/vocabulary.model --out $(DEMO)/shards/held_out --max-seq-length 128
	python -m data_prep verify $(DEMO)/shards/train
	python -m data_prep verify $(DEMO)/shards/held_out
	deepspeed --quiet --num_accelerators $(RANKS) --module pipeline.pretrain --model albert-tiny --data $(DEMO)/shards/train --eval-data $(DEMO)/shards/held_out --deepspeed_config ds_configs/demo.json --output $(DEMO)/run --mask-probability 0.3 --steps $(DEMO_STEPS) --log-interval 25 --eval-interval 500 --save-interval 500
	python -m pipeline.export --run $(DEMO)/run --out $(DEMO)/albert-tiny
	python -m pipeline.predict --run $(DEMO)/run --top-k 3 --mask "I pray you, my [MASK]." "Returns a list of [MASK]." "one or [MASK] tags"
	@python -m pipeline.evaluate summary --run $(DEMO)/run --export $(DEMO)/albert-tiny

study: environment
	@test -n "$(DATA_ROOT)" || { echo "error: no DATA_ROOT; give e.g. make study DATA_ROOT=data, as docs/study.md describes" >&2; exit 2; }
	python -m benchmarks.study --data-root $(DATA_ROOT) --out $(STUDY) --hours $(STUDY_HOURS)

# The tests start hundreds of processes, which compile every module again if Python may not keep what it has compiled.
PYTEST := env --unset=PYTHONDONTWRITEBYTECODE python -m pytest

# Processes share the tests, one file at a time, in the order of tests/conftest.py. Four keep two cores busy: tests of
# several hosts wait for each other much of the time.
test: $(VENV)/.developer style
	$(PYTEST) --numprocesses 4 --dist loadfile --no-loadscope-reorder

test-fast: $(VENV)/.developer
	$(PYTEST) --numprocesses 2 --dist loadfile --no-loadscope-reorder -m "not slow and not cluster and not gpu"

# PARTS="NAME ..." runs these parts only; a second start does what is missing.
gpu: $(VENV)/.developer
	@python -m benchmarks.gpu $(if $(PARTS),--part $(PARTS))

style: $(VENV)/.developer
	ruff check .
	ruff format --check .

# mypy's cache is kept in the environment, which outlives checkouts.
lint: style
	mypy --cache-dir $(VENV)/mypy_cache

# pip-audit has an environment of its own, so that its requirements change none of the pinned packages.
AUDIT := $(VENV)/audit

audit: $(VENV)/.developer $(AUDIT)/.installed
	python -m pip check
	$(AUDIT)/bin/pip-audit --path "$$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

$(AUDIT)/.installed: requirements-audit.txt
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/$(PIP) -r requirements-audit.txt
	@touch $@

environment: $(VENV)/.installed

$(VENV)/.installed: requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -r requirements.txt
	@echo "compiling DeepSpeed's collectives for this processor (once)"
	@python -c 'from deepspeed.accelerator import get_accelerator as a; a().device_name() == "cpu" and a().create_op_builder("ShareMemCommBuilder").load(verbose=False)'
	@touch $@

$(VENV)/.developer: $(VENV)/.installed requirements-dev.txt
	$(PIP) -r requirements-dev.txt
	@touch $@

clean:
	rm -rf $(VENV) $(DEMO) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
