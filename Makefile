# make install | demo | test | chaos | fuzz | lint | types | clean
# Other settings of a demo: make demo ARGS='-c "uplink=stc(density=0.01)"'

PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=

.PHONY: install demo test chaos fuzz lint types clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -c constraints.txt -e '.[study,dev]'
	touch $@

demo: install
	$(BIN)/python deploy/simulate.py $(ARGS)

test: install
	$(BIN)/python -m pytest $(ARGS)

chaos: install
	$(BIN)/python -m pytest -m chaos $(ARGS)

fuzz: install
	$(BIN)/python -m tests.wire.fuzz $(ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy
	$(BIN)/pyright

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
