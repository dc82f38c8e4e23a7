# make demo: set up .venv and train LeNet on 4 ranks.   make test: the test suite.   make test-all: the long one.
# make learn: a folder with the notebooks and exercises, opened in JupyterLab.
# make notebooks: build notebooks/*.ipynb from notebooks/src.   make pages: run them, and render docs/notebooks.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TOOLS := $(VENV)/.tools
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo learn test test-all lint notebooks pages clean

demo: $(READY)
	$(BIN)/minispore demo $(if $(MNIST),--mnist)

learn: $(TOOLS)
	$(BIN)/minispore learn

test: $(TOOLS)
	$(BIN)/python -m pytest -m "not slow"

test-all: $(TOOLS)
	PARITY_EVERY=5 $(BIN)/python -m pytest

lint: $(TOOLS)
	$(BIN)/ruff check .

notebooks: $(TOOLS)
	$(BIN)/python notebooks/build.py

pages: $(TOOLS)
	$(BIN)/python notebooks/pages.py

clean:
	rm -rf $(VENV) build *.egg-info

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "minispore needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[mnist]'
	@touch $(READY)

$(TOOLS): $(READY)
	$(INSTALL) -e '.[mnist,test,notebooks]'
	@touch $(TOOLS)
