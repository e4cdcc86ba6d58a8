# make demo   a first look: installs the package and explains the wine data
# make test   everything: format, lint, types, doctests, README, tests
# make bench  all figures, measured again (by hand; takes two or three hours; DATA is the folder of data sets)
# make bench-zennit  our LRP beside zennit's, in an environment of its own

PYTHON ?= python3
DEMO := .venv-demo
TEST := .venv
BIO := .venv-bio
SPARK := .venv-spark
ZENNIT := .venv-zennit
DATA ?= ../shared/data
LOOPS := hatch_build.py src/whycluster/core/compiled/kmeans.c src/whycluster/core/compiled/kmeans_tile.h
INSTALL := apt-get update -qq && apt-get install -y -qq

.PHONY: demo test test-bio test-spark environments bench bench-zennit browser compiler golden clean

demo: $(DEMO)/installed
	$(DEMO)/bin/whycluster demo

test: browser compiler
	$(MAKE) -j3 environments
	$(TEST)/bin/ruff format --check .
	$(TEST)/bin/ruff check .
	$(TEST)/bin/mypy
	$(TEST)/bin/lint-imports
	$(TEST)/bin/pytest -n 2 --dist loadfile
	$(MAKE) -j2 --output-sync test-bio test-spark

test-bio: $(BIO)/installed
	$(BIO)/bin/pytest --override-ini addopts= tests/bio

test-spark: $(SPARK)/installed
	$(SPARK)/bin/pytest --override-ini addopts= tests/spark

environments: $(TEST)/installed $(BIO)/installed $(SPARK)/installed

bench: $(TEST)/installed $(SPARK)/installed
	$(TEST)/bin/python -m benchmarks.speed
	$(TEST)/bin/python -m benchmarks.pipelines
	$(TEST)/bin/python -m benchmarks.kernel
	$(TEST)/bin/python -m benchmarks.surrogate
	$(TEST)/bin/python -m benchmarks.startup
	$(TEST)/bin/python -m benchmarks.report
	$(TEST)/bin/python -m benchmarks.command
	$(SPARK)/bin/python -m benchmarks.spark
	$(TEST)/bin/python -m benchmarks.files
	$(TEST)/bin/python -m benchmarks.lrp --data $(DATA)
	$(TEST)/bin/python -m benchmarks.text
	$(TEST)/bin/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(TEST)/bin/python -m benchmarks.table1 --data $(DATA)
	$(TEST)/bin/python -m benchmarks.table1 --deep --data $(DATA)
	$(TEST)/bin/python -m benchmarks.rules --data $(DATA)
	$(TEST)/bin/python -m benchmarks.beta --data $(DATA)
	$(TEST)/bin/python -m benchmarks.varying
	$(TEST)/bin/python -m benchmarks.runtime
	$(TEST)/bin/python -m benchmarks.compiled
	$(TEST)/bin/python -m benchmarks.segments --data $(DATA)

bench-zennit: $(ZENNIT)/installed
	$(ZENNIT)/bin/python -m benchmarks.zennit_oracle --data $(DATA)

$(DEMO)/installed: pyproject.toml $(LOOPS) $(shell find src -name '*.py')
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/pip install --quiet '.[cli]'
	touch $@

# torch on its own first: anything that asks for it later then finds the pinned CPU build. ClustPy without what it
# asks for: all of that is there, and its torchvision would bring another torch (see tests/deep/__init__.py); and
# axe-playwright-python, which is here for its axe.min.js, without a second browser.
$(TEST)/installed: pyproject.toml $(LOOPS) constraints.txt
	$(PYTHON) -m venv $(TEST)
	$(TEST)/bin/pip install --quiet --constraint constraints.txt torch
	$(TEST)/bin/pip install --quiet --constraint constraints.txt --editable '.[categories,cli,dask,deep,faiss,files,medoids,shap,tabular,test]'
	$(TEST)/bin/pip install --quiet --constraint constraints.txt --no-deps axe-playwright-python clustpy torchvision
	touch $@

# The report is tested in Debian's Chromium. Without it, and without the right to install it, these tests are skipped.
browser:
	@command -v chromedriver > /dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		$(INSTALL) chromium chromium-driver > /dev/null; \
	else echo 'No chromedriver, and no right to install it: the tests in a browser will be skipped.'; fi

# The loops of k-means are compiled when the package is installed. Without a compiler the tests that want them fail.
compiler:
	@command -v cc > /dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		$(INSTALL) gcc libc6-dev > /dev/null; \
	else echo 'No C compiler, and no right to install it: tests of the compiled loops will fail.'; fi

# anndata needs an older pandas than the other tests, so it has an environment of its own.
$(BIO)/installed: pyproject.toml $(LOOPS) constraints-bio.txt
	$(PYTHON) -m venv $(BIO)
	$(BIO)/bin/pip install --quiet --constraint constraints-bio.txt --editable '.[bio]' 'dask[array]' hypothesis leidenalg pytest scanpy
	touch $@

# Spark asks for an older pandas too, and has its own environment. Without Java 17 or later its tests are skipped.
$(SPARK)/installed: pyproject.toml $(LOOPS) constraints-spark.txt
	$(PYTHON) -m venv $(SPARK)
	$(SPARK)/bin/pip install --quiet --constraint constraints-spark.txt --editable '.[spark]' hypothesis 'pyspark[connect]' pytest
	touch $@

# zennit without what it asks for: its torchvision would bring another torch.
$(ZENNIT)/installed: pyproject.toml $(LOOPS) constraints.txt
	$(PYTHON) -m venv $(ZENNIT)
	$(ZENNIT)/bin/pip install --quiet --constraint constraints.txt torch
	$(ZENNIT)/bin/pip install --quiet --constraint constraints.txt --editable . pillow
	$(ZENNIT)/bin/pip install --quiet --constraint constraints.txt --no-deps zennit
	touch $@

clean:
	rm -rf $(DEMO) $(TEST) $(BIO) $(SPARK) $(ZENNIT) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis \
		src/whycluster/core/compiled/_kmeans.so src/whycluster/core/compiled/.build-*

golden: $(TEST)/installed
	$(TEST)/bin/python -m tests.golden
