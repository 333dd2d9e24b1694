# Everything a target needs is installed into .venv by the target itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test e2e frameworks lint fixtures docs bench clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@sed -n 's/^\([a-z0-9]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "slicewarden needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

demo: $(READY)  ## a tour: real HTTPS webhook on loopback, sample cluster, decisions and patches
	$(BIN)/slicewarden demo

test: lint  ## every test that needs no cluster
	$(BIN)/pytest -n 2

# KUBECONFIG_E2E=FILE takes a cluster that is there; WEBHOOK_HOST=ADDRESS is where its API server reaches this machine.
e2e: $(READY)  ## against a real API server and NVIDIA's plugin (needs Go; builds Kubernetes the first time, ten minutes)
	cd tests && ../$(BIN)/python -m cluster.binaries $(if $(KUBECONFIG_E2E),kubectl kwok) >/dev/null
	$(BIN)/pytest tests/cluster tests/conformance $(if $(KUBECONFIG_E2E),--kubeconfig '$(KUBECONFIG_E2E)') \
		$(if $(WEBHOOK_HOST),--webhook-host '$(WEBHOOK_HOST)')

frameworks: $(READY)  ## the caps in real PyTorch, JAX, TensorFlow and CuPy, on a pretended card (4 GB of wheels the first time)
	cd tests && ../$(BIN)/python -m frameworks
	$(BIN)/pytest -n 2 tests/frameworks

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fixtures: $(READY)  ## write the golden pages of the rules again; read the diff before you commit it
	UPDATE_GOLDEN=1 $(BIN)/pytest tests/test_fixtures.py

docs: $(READY)  ## write the generated pages again, and the schemas that editors read
	$(BIN)/slicewarden explain frameworks > docs/frameworks.md
	$(BIN)/slicewarden policy lints --markdown > docs/policy-lints.md
	$(BIN)/slicewarden schema > docs/schemas/gpusharingpolicy.json
	$(BIN)/slicewarden schema --kind PolicyTest > docs/schemas/policytest.json

bench: $(READY)  ## the figures of the README (needs Go; builds Kubernetes the first time, ten minutes)
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) .hypothesis .mypy_cache .ruff_cache .pytest_cache dist build
