# make demo    from nothing to a pre-trained, evaluated and exported model
# make test    every test, lint and types
# make clean   takes away all that these made

VENV ?= .venv
PYTHON ?= $(firstword $(shell command -v python3.11 python3))
BIN := $(abspath $(VENV))/bin
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

export PATH := $(BIN):$(PATH)
# DeepSpeed compiles its shared-memory collectives once; they belong to the environment.
export TORCH_EXTENSIONS_DIR := $(abspath $(VENV))/torch_extensions
# Ranks that each start a thread a core get in each other's way.
export OMP_NUM_THREADS ?= 1
# Open MPI, in a container: root is who there is, and more ranks than cores are no mistake.
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
export PRTE_MCA_rmaps_default_mapping_policy := :oversubscribe

# pip shows its progress to a person, and only errors to a log.
PIP := pip install --disable-pip-version-check $(if $(shell test -t 2 && echo terminal),,--quiet --quiet)

GPUS := $(words $(shell nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null))
ifeq ($(GPUS),0)
export DS_ACCELERATOR := cpu
endif
RANKS ?= $(if $(filter 1,$(GPUS)),1,2)

DEMO := demo
DOCUMENTS := $(DEMO)/documents/wikipedia $(DEMO)/documents/books
DEMO_STEPS ?= 4000

.PHONY: demo test environment lint clean

demo: environment
	python -m data_prep sample --out $(DEMO)/sample
	python -m data_prep extract --source wikipedia --input $(DEMO)/sample/wikipedia --out $(DEMO)/documents/wikipedia --held-out 0.05
	python -m data_prep extract --source books --input $(DEMO)/sample/books --out $(DEMO)/documents/books --held-out 0.05
	python -m data_prep vocab --documents $(DOCUMENTS) --out $(DEMO)/vocabulary.model --size 2000
	mpirun -n 2 python -m data_prep shards --documents $(DOCUMENTS) --vocab $(DEMO)/vocabulary.model --out $(DEMO)/shards/train --max-seq-length 32
	mpirun -n 2 python -m data_prep shards --documents $(DOCUMENTS) --split held_out --vocab $(DEMO)/vocabulary.model --out $(DEMO)/shards/held_out --max-seq-length 32
	python -m data_prep verify $(DEMO)/shards/train
	python -m data_prep verify $(DEMO)/shards/held_out
	deepspeed --quiet --num_accelerators $(RANKS) --module pipeline.pretrain --model albert-tiny --data $(DEMO)/shards/train --eval-data $(DEMO)/shards/held_out --deepspeed_config ds_configs/tiny.json --output $(DEMO)/run --steps $(DEMO_STEPS) --log-interval 25 --eval-interval 500 --save-interval 500
	python -m pipeline.export --run $(DEMO)/run --out $(DEMO)/albert-tiny
	@python -m pipeline.evaluate summary --run $(DEMO)/run --export $(DEMO)/albert-tiny

test: $(VENV)/.developer lint
	python -m pytest

lint: $(VENV)/.developer
	ruff check .
	ruff format --check .
	mypy

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
