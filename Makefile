# make install | demo | test | system | chaos | fuzz | lint | types | docs | clean
# Other settings of a demo: make demo ARGS='-c "uplink=stc(density=0.01)"'

PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=
# Compiled modules are kept even where the environment says otherwise: the tests start dozens of processes.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest

.PHONY: install demo test system chaos fuzz lint types mypy pyright docs clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -c constraints.txt -e '.[study,dev]'
	touch $@

demo: install
	$(BIN)/python deploy/simulate.py $(ARGS)

test: install
	$(PYTEST) -n auto --maxprocesses 8 --dist worksteal $(ARGS)

system: install
	$(PYTEST) -m system -n 2 --dist loadfile $(ARGS)

chaos: install
	$(PYTEST) -m chaos $(ARGS)

fuzz: install
	$(BIN)/python -m tests.wire.fuzz $(ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: mypy pyright

mypy pyright: install
	$(BIN)/$@

docs: install
	$(BIN)/mkdocs build --strict --site-dir build/site

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
