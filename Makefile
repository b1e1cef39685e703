# Every verb of this repository. `make demo` and `make test` do all their own set-up.
#   ARGS    passed on:  make demo ARGS=--once   make test ARGS="-k loop"
#   PYTHON  the interpreter for a new .venv:  make test PYTHON=/opt/python3.13/bin/python3

BIN := .venv/bin
export PYTHON
.DEFAULT_GOAL := help
.PHONY: help demo test lint types check bench chaos lock setup-demo setup-dev setup-any-llm

help: ## Show this list
	@grep -E '^[a-z]+:.*## ' Makefile | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

demo: setup-demo ## Transcribe a sample in the terminal, then serve the page (ARGS=--once: no page)
	@$(BIN)/playhead demo $(ARGS)

test: setup-dev setup-any-llm ## Run the tests
	@$(BIN)/pytest --numprocesses=2 --dist=worksteal $(ARGS)

lint: setup-dev ## Check rules and formatting with ruff
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo 'not formatted: run $(BIN)/ruff format'; exit 1; }

types: setup-dev ## Check types with mypy, strictly, in the package and the tests
	@$(BIN)/mypy

check: lint types test ## All three

bench: setup-dev ## Measure against a hand-written loop; prints tables
	@$(BIN)/python -m bench.run $(ARGS)

chaos: setup-dev ## Kill servers at random, 200 times a database, and report (ARGS="--kills 20 --database sqlite")
	@$(BIN)/python -m tests.chaos $(ARGS)

lock: ## Renew requirements/ from pyproject.toml (ARGS=--upgrade: take the newest)
	@bash scripts/lock.sh $(ARGS)

setup-demo setup-dev setup-any-llm:
	@bash scripts/setup.sh $(@:setup-%=%)
