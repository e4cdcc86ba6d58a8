# make demo   a first look: installs the package and explains the wine data
# make test   everything: format, lint, types, doctests, README, tests
# make bench  all figures, measured again (by hand; takes two or three hours; DATA is the folder of data sets)

PYTHON ?= python3
DEMO := .venv-demo
TEST := .venv
BIO := .venv-bio
DATA ?= ../shared/data

.PHONY: demo test bench golden clean

demo: $(DEMO)/installed
	$(DEMO)/bin/whycluster demo

test: $(TEST)/installed $(BIO)/installed
	$(TEST)/bin/ruff format --check .
	$(TEST)/bin/ruff check .
	$(TEST)/bin/mypy
	$(TEST)/bin/pytest
	$(BIO)/bin/pytest --override-ini addopts= tests/bio

bench: $(TEST)/installed
	$(TEST)/bin/python -m benchmarks.speed
	$(TEST)/bin/python -m benchmarks.pipelines
	$(TEST)/bin/python -m benchmarks.kernel
	$(TEST)/bin/python -m benchmarks.surrogate
	$(TEST)/bin/python -m benchmarks.startup
	$(TEST)/bin/python -m benchmarks.text
	$(TEST)/bin/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(TEST)/bin/python -m benchmarks.table1 --data $(DATA)
	$(TEST)/bin/python -m benchmarks.table1 --deep --data $(DATA)
	$(TEST)/bin/python -m benchmarks.rules --data $(DATA)
	$(TEST)/bin/python -m benchmarks.beta --data $(DATA)
	$(TEST)/bin/python -m benchmarks.varying
	$(TEST)/bin/python -m benchmarks.runtime

$(DEMO)/installed: pyproject.toml $(shell find src -name '*.py')
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/pip install --quiet .
	touch $@

# torch on its own first: anything that asks for it later then finds the pinned CPU build.
$(TEST)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(TEST)
	$(TEST)/bin/pip install --quiet --constraint constraints.txt torch
	$(TEST)/bin/pip install --quiet --constraint constraints.txt --editable '.[categories,deep,faiss,medoids,shap,tabular,test]'
	touch $@

# anndata needs an older pandas than the other tests, so it has an environment of its own.
$(BIO)/installed: pyproject.toml constraints-bio.txt
	$(PYTHON) -m venv $(BIO)
	$(BIO)/bin/pip install --quiet --constraint constraints-bio.txt --editable . anndata hypothesis leidenalg pytest
	touch $@

clean:
	rm -rf $(DEMO) $(TEST) $(BIO) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

golden: $(TEST)/installed
	$(TEST)/bin/python -m tests.golden
