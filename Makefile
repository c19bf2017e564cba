# make environment the packages in .venv
# make demo        from nothing to a pre-trained, evaluated and exported model
# make study DATA_ROOT=DIR   from your own text to a model that scores, and a page: three hours on two cores, ten
#                              minutes on a GPU, or STUDY_MINUTES=N (docs/experiments.md)
# make student     a small ALBERT distilled from a published BERT: an hour on two cores, docs/experiments.md
# make test        all tests, lint and types
# make test-fast   the tests that need seconds, without launchers, clusters or GPUs
# make audit       the locked packages against the list of known vulnerabilities; needs the internet
# make lock        the files of pinned versions and hashes, from requirements.txt and requirements-dev.txt; needs PyPI
# make bill        the locked packages as a CycloneDX bill of materials, bill-of-materials.json
# make gpu         what this machine's GPUs can do, as a page: docs/gpu.md
# make help        these lines
# make clean       removes the environment, the demo and the caches; study/, student/ and gpu-results/ stay

VENV ?= .venv
PYTHON ?= $(firstword $(shell command -v python3.11 python3))
BIN := $(abspath $(VENV))/bin
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

export PATH := $(BIN):$(PATH)
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
SOURCES := wikipedia books api
DOCUMENTS := $(addprefix $(DEMO)/documents/,$(SOURCES))
HELD_OUT := $(addprefix $(DEMO)/shards/held_out/,$(SOURCES))
DEMO_STEPS ?= 2000
PORT :=
STUDY := study
STUDENT := student
STUDENT_HOURS ?= 1

.PHONY: help demo study student test test-fast environment style lint audit lock bill gpu clean

# The held-out text of one source, with the line break that separates two commands.
define held_out_shards
python -m data_prep shards --documents $(DEMO)/documents/$(1) --split held_out --vocab $(DEMO)/vocabulary.model --out $(DEMO)/shards/held_out/$(1) --max-seq-length 128

endef

demo: environment
	python -m data_prep sample --out $(DEMO)/sample
	python -m data_prep extract --source wikipedia --input $(DEMO)/sample/wikipedia --out $(DEMO)/documents/wikipedia --held-out 0.05
	python -m data_prep extract --source books --input $(DEMO)/sample/books --out $(DEMO)/documents/books --held-out 0.05
	python -m data_prep extract --source jsonl --input $(DEMO)/sample/api --out $(DEMO)/documents/api --id-field id --title-field title --held-out 0.03
	python -m data_prep vocab --documents $(DOCUMENTS) --out $(DEMO)/vocabulary.model --size 2000 --sentences 100000
	mpirun -n 2 python -m data_prep shards --documents $(DOCUMENTS) --vocab $(DEMO)/vocabulary.model --out $(DEMO)/shards/train --max-seq-length 128
	$(foreach source,$(SOURCES),$(call held_out_shards,$(source)))
	python -m data_prep verify $(DEMO)/shards/train
	deepspeed --quiet --num_accelerators $(RANKS) $(if $(PORT),--master_port $(PORT) )--module pipeline.pretrain --model albert-tiny --data $(DEMO)/shards/train --eval-data $(HELD_OUT) --deepspeed_config ds_configs/demo.json --output $(DEMO)/run --mask-probability 0.3 --steps $(DEMO_STEPS) --log-interval 25 --eval-interval 500 --save-interval 500
	python -m pipeline.export --run $(DEMO)/run --out $(DEMO)/albert-tiny
	python -m pipeline.predict --run $(DEMO)/run --top-k 3 --mask "I pray you, my [MASK]." "Returns a list of [MASK]." "one or [MASK] tags"
	@python -m pipeline.evaluate summary --run $(DEMO)/run --export $(DEMO)/albert-tiny --curves $(DEMO)/curves.png

help:
	@sed -n "/^# \(make\|  \)/s/^# //p" $(MAKEFILE_LIST)

study: environment
	@test -n "$(DATA_ROOT)" || { echo "error: no DATA_ROOT; give e.g. make study DATA_ROOT=data, as docs/experiments.md describes" >&2; exit 2; }
	python -m benchmarks.study --data-root $(DATA_ROOT) --out $(STUDY) $(if $(STUDY_MINUTES),--minutes $(STUDY_MINUTES))

# With DATA_ROOT=DIR it reads your own text.
student: environment
	python -m benchmarks.student --out $(STUDENT) --hours $(STUDENT_HOURS) --ranks $(RANKS) $(if $(DATA_ROOT),--data-root $(DATA_ROOT))

# The tests start hundreds of processes, which compile every module again if Python may not keep what it has compiled.
PYTEST := env --unset=PYTHONDONTWRITEBYTECODE python -m pytest

# Processes share the tests, one file at a time, in the order of tests/conftest.py. Four keep two cores busy: tests of
# several hosts wait for each other much of the time.
test: $(VENV)/.developer style
	$(PYTEST) --numprocesses 4 --dist loadfile --no-loadscope-reorder

test-fast: $(VENV)/.developer
	$(PYTEST) --numprocesses 2 --dist loadfile --no-loadscope-reorder -m "not slow and not cluster and not gpu"

# PARTS="NAME ..." runs these parts only; a second start does what is missing. Where the packages are there, as those of
# docs/gpu.md on a machine without internet, nothing is installed.
gpu:
	@python -c 'import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, "deepspeed hypothesis pytest transformers".split())))' || $(MAKE) $(VENV)/.developer
	@python -m benchmarks.gpu $(if $(PARTS),--part $(PARTS))

style: $(VENV)/.developer
	ruff check .
	ruff format --check .

# mypy's cache is kept in the environment, which outlives checkouts.
lint: style
	mypy --cache-dir $(VENV)/mypy_cache

# pip-audit and uv have an environment of their own, so that their requirements change none of the locked packages.
TOOLS := $(abspath $(VENV))/tools

audit: $(TOOLS)/.installed
	$(TOOLS)/bin/pip-audit --disable-pip --require-hashes $(foreach file,$(LOCKS),-r $(file))

$(TOOLS)/.installed: requirements-tools.txt
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/$(PIP) -r requirements-tools.txt
	@touch $@

# Every package that an environment gets, those that others bring included, with the hashes of its files on PyPI.
# torch is apart from the others, because machines have different builds of it: requirements-cuda.lock has the one on
# PyPI, with the NVIDIA packages that it brings, and requirements-cpu.lock, which is kept by hand, the one without CUDA.
LOCKS := requirements.lock requirements-cuda.lock requirements-dev.lock
COMPILE := UV_CUSTOM_COMPILE_COMMAND="make lock" $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate
ALL := $(TOOLS)/all.txt
names = $$(sed -nE 's/^([a-z0-9-]+)==.*/--no-emit-package \1/p' $(1))
CUDA_NAMES = $$(sed -nE 's/^(torch|triton|(cuda|nvidia)-[a-z0-9-]+)==.*/--no-emit-package \1/p' $(ALL))

lock: $(TOOLS)/.installed
	$(COMPILE) requirements-dev.txt --output-file $(ALL)
	$(COMPILE) requirements.txt --constraint $(ALL) $(CUDA_NAMES) --output-file requirements.lock
	$(COMPILE) requirements.txt --constraint $(ALL) $(call names,requirements.lock) --output-file requirements-cuda.lock
	$(COMPILE) requirements-dev.txt --constraint $(ALL) $(call names,requirements.lock requirements-cuda.lock) --output-file requirements-dev.lock

bill: $(TOOLS)/.installed
	cat requirements.lock requirements-cuda.lock | $(TOOLS)/bin/cyclonedx-py requirements --output-reproducible --output-file bill-of-materials.json -

environment: $(VENV)/.installed

# Packages without a wheel are built with the locked setuptools, which is there first. The last command finds what a
# lock lacks.
LOCKED := $(PIP) --require-hashes --no-deps --no-build-isolation

$(VENV)/.installed: requirements.lock requirements-cpu.lock requirements-cuda.lock
	@echo "making the environment in $(VENV): the locked packages, 2 GB (a build for CUDA: 7 GB); once, in 1 to 5 minutes"
	$(PYTHON) -m venv $(VENV)
	$(LOCKED) -r <(sed -n '/^setuptools==/,/[^\]$$/p' requirements.lock)
	$(LOCKED) -r requirements.lock
	$(if $(filter 0,$(GPUS)),$(LOCKED) -r requirements-cpu.lock 2>/dev/null ||) $(LOCKED) -r requirements-cuda.lock
	pip check
	@touch $@

$(VENV)/.developer: $(VENV)/.installed requirements-dev.lock
	$(LOCKED) -r requirements-dev.lock
	pip check
	@touch $@

clean:
	rm -rf $(VENV) $(DEMO) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
