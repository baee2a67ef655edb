# The web targets, included by the root Makefile: `make web-test`, `make web-demo`, `make web-page`.

NPM := npm --prefix web --no-fund --no-audit

.PHONY: web-test web-demo web-page web-picture web-fuzz web-bench

web/node_modules/.stamp: web/package-lock.json
	$(NPM) ci
	@touch $@

# Tests in Node.js and, where it is installed, in Chromium; the package as it is published.
web-test: web/node_modules/.stamp
	$(NPM) test

# The static demo, web/demo/dist: one folder that any static host can serve.
web-demo: web/node_modules/.stamp
	$(NPM) run demo
	@echo "Open http://localhost:8000 while this runs: $(PYTHON) -m http.server 8000 --bind 127.0.0.1 -d web/demo/dist"

# The model in the service's page: `python -m cloud_anchor.serve --page web/page/dist`.
web-page: web/node_modules/.stamp
	$(NPM) run page

# The demo in Chromium, photographed: the picture of docs/start/web.md. Run it for a new pair, after web/demo/record.py.
web-picture: web-demo $(VENV)/dev.stamp
	$(RUN) -m tests.cloud_anchor.serve.page_browser --demo --width 1040 -o web/edge-runtime/demo.png

# Hostile bytes for the payload decoder in JavaScript, a million by default.
web-fuzz: web/node_modules/.stamp
	$(NPM) run fuzz $(if $(EXECUTIONS),-- $(EXECUTIONS))

# Measures the speed table of lab/results/device.md and puts it there: BUNDLES='FOLDER ...', the shipped pair's by
# default. Beside transformers.js.
web-bench: web/node_modules/.stamp
	npm --prefix web install --no-save --no-fund --no-audit @huggingface/transformers
	$(NPM) run bench -- --write $(abspath $(BUNDLES))
