# make install | demo | test | quick ROOM=wire | nightly | examples | flower-lowest | flower-highest | python-highest | system | chaos | fuzz | soak | dist | lint | types | docs | clean
# Other settings of a demo: make demo ARGS='-c "uplink=stc(density=0.01)"'

PYTHON ?= python3.11
# The highest one that pyproject.toml names.
PYTHON_HIGHEST ?= python3.13
HIGHEST := build/$(notdir $(PYTHON_HIGHEST))
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=
# The first and the last Flower that the extra `flower` allows, such as 1.40 and 1.43: the last is out of the range.
FLOWER := $(shell sed -n "s/.*flwr>=\([0-9.]*\),<\([0-9.]*\); extra.*/\1 \2/p" pyproject.toml)
# No more than there are cores: each worker imports and collects everything, which takes 15 s.
WORKERS := $(shell getconf _NPROCESSORS_ONLN)
# Compiled modules are kept even where the environment says otherwise: the tests start dozens of processes.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest

.PHONY: install demo test quick nightly examples flower-lowest flower-highest flower-tests python-highest core-tests system chaos fuzz soak dist lint types mypy pyright docs clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet 'pip>=25.1'  # the first that knows --group
	$(BIN)/pip install -c constraints.txt -e '.[app]' --group dev
	touch $@

demo: install
	$(BIN)/python deploy/simulate.py $(ARGS)

test: install
	$(PYTEST) -n $(WORKERS) --maxprocesses 8 --dist worksteal $(ARGS)

# The tests of one room of tests/, such as ROOM=wire or ROOM=flower/server, and the laws of the whole tree.
LAWS := test_imports.py test_public_face.py test_errors.py wire/test_golden.py wire/test_format.py wire/test_codec_ids.py

quick: install
	$(if $(ROOM),,$(error make quick needs a room, such as ROOM=wire))
	$(PYTEST) -n 2 --dist worksteal $(addprefix tests/,$(ROOM) $(LAWS)) $(ARGS)

# The cases that the mark `sample` leaves out of `make test` and `make system`: all together, about half an hour.
nightly: install
	$(PYTEST) -m nightly -n 2 --dist loadfile -o faulthandler_timeout=1800 $(ARGS)

# All examples, with the libraries that only some of them need: over a gigabyte.
examples: install
	$(BIN)/pip install --quiet -c constraints.txt --group examples
	$(PYTEST) tests/test_examples.py -m '' -n 2 $(ARGS)

# The wheel with Flower's lowest version, in an environment without torch.
flower-lowest: install
	test -x build/flower-lowest/bin/python || $(PYTHON) -m venv --without-pip build/flower-lowest
	sed '/^flwr==/d' constraints.txt > build/flower-lowest.txt
	$(BIN)/pip --python build/flower-lowest install --quiet -c build/flower-lowest.txt '.[flower]' 'flwr==$(word 1,$(FLOWER)).*' pytest pytest-xdist
	cd build && flower-lowest/bin/python -m fedcomp demo --rounds 3
	$(MAKE) VENV=build/flower-lowest flower-tests

# Two cases of each test, with the processes that `fedcomp warm` forks; without the files that import torch, and without what calls nothing of Flower that other tests do not.
flower-tests:
	$(PYTEST) --cases 2 tests/flower tests/warm/test_command.py $(addprefix --ignore ,$(shell grep -rlE --include='*.py' '^(import|from) torch' tests/flower)) \
		-p no:cacheprovider -m 'not chaos and not system and not nightly and not one_flower' $(ARGS)

# The highest version that the index can install, if it is not the one of constraints.txt, which `make test` runs with.
flower-highest: install
	mkdir -p build
	$(BIN)/pip install --dry-run --upgrade 'flwr<$(word 2,$(FLOWER))' > build/flower-highest.txt
	if grep 'Would install.* flwr-' build/flower-highest.txt; then \
		$(PYTHON) -m venv --without-pip build/flower-highest && \
		$(BIN)/pip --python build/flower-highest install --quiet '.[flower]' pytest pytest-xdist && \
		$(MAKE) VENV=build/flower-highest flower-tests; \
	fi

# pyenv shows its Pythons on request alone.
python-highest: export PYENV_VERSION := $(PYTHON_HIGHEST:python%=%)

# The wheel on the highest Python, with numpy alone: two cases of each of the core's tests, but for those that need torch or Flower.
python-highest:
	if test -x $(HIGHEST)/bin/python || $(PYTHON_HIGHEST) -m venv $(HIGHEST); then \
		$(HIGHEST)/bin/pip install --quiet . pytest pytest-xdist && \
		$(MAKE) VENV=$(HIGHEST) core-tests; \
	else \
		echo "$(PYTHON_HIGHEST) is not installed: nothing was tested with it"; \
	fi

core-tests:
	$(PYTEST) --cases 2 -n auto --maxprocesses 8 -p no:cacheprovider $(addprefix tests/,core memory quantize quantized entropy methods wire test_testing.py) \
		$(addprefix --ignore tests/,core/test_compensated_update.py memory/test_ef21.py memory/test_linear_feedback.py \
		memory/test_momentum_correction.py quantize/test_norm_bound.py methods/test_laws.py \
		$(addprefix wire/test_,adversaries.py bfloat16.py format.py fuzz.py golden.py hostile.py)) $(ARGS)

system: install
	$(PYTEST) $(shell grep -rl --include='*.py' 'mark\.system' tests) -m 'system and not nightly' -n 2 --dist loadfile $(ARGS)

chaos: install
	$(PYTEST) -m 'chaos and not nightly' -n 2 --dist loadfile -o faulthandler_timeout=0 $(ARGS)

fuzz: install
	$(BIN)/python -m tests.wire.fuzz $(ARGS)

soak: install
	$(BIN)/python -m tests.flower.soak $(ARGS)

# The files of a release, checked; docs/how-to/release.md says what comes before and after.
dist:
	test -x build/release/bin/python || $(PYTHON) -m venv build/release
	build/release/bin/pip install --quiet build twine
	rm -rf dist
	build/release/bin/python -m build
	build/release/bin/twine check --strict dist/*

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: mypy pyright

mypy pyright: install
	$(BIN)/$@

docs: install
	$(BIN)/zensical build --strict

clean:
	rm -rf build dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
