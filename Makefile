# make demo: set up .venv and train LeNet on 4 ranks.   make test: the test suite.   make test-all: the long one.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-all lint clean

demo: $(READY)
	$(BIN)/minispore demo $(if $(MNIST),--mnist)

test: $(READY)
	$(BIN)/python -m pytest -m "not slow"

test-all: $(READY)
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .

clean:
	rm -rf $(VENV) build *.egg-info

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "minispore needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,mnist]'
	@touch $(READY)
