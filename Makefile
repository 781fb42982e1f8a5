# make train   environment, default corpus, training, BLEU, sample translations   (17 to 35 minutes on 2 cores)
# make test    environment, lint, types, tests
# make lint    environment, lint, types
# make clean   remove the environment and the caches; runs/ and data/ stay

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORPUS := data/home_assistant/en-de/report.json
RUN := runs/default

.PHONY: train test lint clean environment

train: $(RUN)/model/config.json
	$(BIN)/python data/evaluate.py $(RUN)/test.txt > $(RUN)/report.md
	@cat $(RUN)/report.md

$(RUN)/model/config.json: | environment $(CORPUS)
	$(BIN)/python train.py $(if $(wildcard $(RUN)/checkpoints/last.ckpt),--ckpt_path last)

$(CORPUS): | environment
	$(BIN)/python data/home_assistant.py

test: lint
	$(BIN)/python -m pytest --numprocesses 2

lint: environment
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

environment: $(VENV)/complete

# torch comes first and pinned: the constraint names a version that has a build for CPUs alone.
$(VENV)/complete: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
