# Every target sets itself up first: on a fresh machine `make demo` or `make test` is the first thing to type.

BIN := .venv/bin

.PHONY: demo test lint bench docs setup robots
demo: setup  ## watch a robot do its task in simulation
	$(BIN)/ros-rl demo

test: setup robots  ## run every test
	$(BIN)/python -m pytest

lint: setup  ## check format, style, types and layers
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports

bench: setup  ## measure the control loop and the node graph
	$(BIN)/ros-rl bench loop

docs: setup  ## write the pages that are made from code
	$(BIN)/python -m ros_rl.nodes.parameters > docs/parameters.md

setup:
	@scripts/setup.sh

robots: setup  ## install real robots with their meshes (400 MB), which the tests read
	@$(BIN)/python -m pip show -qq example-robot-data 2>/dev/null || \
		$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[robots]"
