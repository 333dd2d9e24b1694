# Everything a target needs is installed into .venv by the target itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Where it is set, each of the many processes that a target starts compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test fuzz e2e versions node agent browser faults soak signing programs frameworks nightly lint fixtures docs site release publish rehearsal man chart lock sbom advisories image bench clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@sed -n 's/^\([a-z0-9]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "slicewarden needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@echo "installing into $(VENV), which takes a minute or two the first time"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

demo: $(READY)  ## a tour: real HTTPS webhook on loopback, sample cluster, decisions and patches
	$(BIN)/slicewarden demo

test: lint  ## every test that needs no cluster
	$(BIN)/pytest -n 2 --dist worksteal

# KUBECONFIG_E2E=FILE takes a cluster that is there; WEBHOOK_HOST=ADDRESS is where its API server reaches this machine.
# Without it two processes share the modules, and each starts a control plane of its own.
e2e: $(READY)  ## against a real API server, NVIDIA's plugin and toolkit (needs Go; builds Kubernetes the first time, ten minutes)
	$(BIN)/python -m tests.e2e.binaries $(if $(KUBECONFIG_E2E),kubectl kwok) >/dev/null
	$(BIN)/pytest tests/e2e tests/conformance tests/oracles tests/evaluator tests/chart tests/monitoring \
		$(if $(KUBECONFIG_E2E),--kubeconfig '$(KUBECONFIG_E2E)',-n 2 --dist loadfile --no-loadscope-reorder) $(if $(WEBHOOK_HOST),--webhook-host '$(WEBHOOK_HOST)')

# K8S='1.30 1.33' takes other releases that tests/e2e/releases pins, and MODULES=test_install some of the modules.
versions: $(READY)  ## installation, admission and fallback on the oldest Kubernetes and on the newest (builds it the first time, twenty minutes)
	$(BIN)/python -m tests.e2e.releases $(K8S) $(if $(MODULES),--modules $(MODULES))

# TESTS='-k runtime' takes some of them; whatever it lacks (root, CAP_SYS_ADMIN, nft, Go) is said in one line.
node: $(READY)  ## real kubelets, containerd and NVIDIA's plugin, with the image on them (needs root and Go; the packages are in CONTRIBUTING.md)
	$(BIN)/python -m tests.node $(TESTS)

agent: $(READY)  ## the agent on a pretended card: real processes in real cgroups; says in one line what it skips for want of cgroup v2
	$(BIN)/pytest -rs -m '' tests/agent

browser: $(READY)  ## the HTML reports and the live page in Chromium without a window; skipped without one (apt-get install chromium)
	$(BIN)/pytest -rs tests/browser

faults: $(READY)  ## what killed workers, rotated certificates, slow peers and lost API servers cost, counted under load
	$(BIN)/pytest tests/faults

soak: $(READY)  ## half of what saturates it for 20 minutes, or MINUTES=N: memory must not grow, nothing may fail (needs Go)
	$(BIN)/python -m tests.faults.soak $(or $(MINUTES),20)

nightly:  ## all of .ci/run whatever was green before, the agent's tests, signed statements, new cases of the fuzzer, the soak, other releases of Kubernetes, Flux, Argo CD, and faults during changes
	CI= ALL=1 .ci/run
	$(MAKE) agent fuzz soak signing versions
	$(BIN)/pytest -m thorough tests/monitoring tests/e2e/test_flux.py tests/oracles/test_argo.py
	$(BIN)/python -m tests.e2e.nightly --minutes $(or $(MINUTES),30)

signing: $(READY)  ## statements that cosign itself signs, and a release published to a registry, verified and installed from there (needs Go and what make node does; seven minutes the first time)
	$(BIN)/pytest tests/signing

programs: $(READY)  ## print the folders of cosign, crane and Helm, built from their pins, as $PATH has them (needs Go)
	@$(BIN)/python -m tests.signing

frameworks: $(READY)  ## the caps in real PyTorch, JAX, TensorFlow and CuPy, on a pretended card (4 GB of wheels the first time)
	$(BIN)/python -m tests.frameworks
	$(BIN)/pytest -n 2 tests/frameworks

# MINUTES=60 goes on for so long; SEED=... gives the cases of another run again. Properties try more EXAMPLES than in make test.
fuzz: $(READY)  ## 120,000 hostile reviews, streams, configurations and policies; what they break is kept as a test
	EXAMPLES=$(or $(EXAMPLES),50) $(BIN)/pytest -n 2 -m 'thorough or hypothesis'
	$(BIN)/python -m tests.fuzz $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

lint: $(READY)  ## ruff, mypy, and the messages of commits
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.support.commits

fixtures: $(READY)  ## write the golden pages of the rules again; read the diff before you commit it
	UPDATE_GOLDEN=1 $(BIN)/pytest tests/rules/test_fixtures.py

docs: $(READY)  ## write the generated pages and pictures again, and the schemas that editors read
	$(BIN)/slicewarden explain frameworks > docs/frameworks.md
	$(BIN)/slicewarden policy lints --markdown > docs/policy-lints.md
	$(BIN)/slicewarden rules --markdown > docs/rules.md
	$(BIN)/slicewarden help --markdown > docs/command-line.md
	$(BIN)/slicewarden schema --markdown > docs/policy.md
	$(BIN)/slicewarden schema > docs/schemas/gpusharingpolicy.json
	$(BIN)/slicewarden schema --kind PolicyTest > docs/schemas/policytest.json
	$(BIN)/python -m docs.parts
	$(BIN)/python -m bench page
	$(BIN)/python -m tests.e2e.releases.page
	$(BIN)/python -m docs.draw

site: $(READY)  ## the documentation as a site, into build/site; a link that leads nowhere is an error
	$(BIN)/python -m docs.site

release: $(READY)  ## the files of a release, into build/release (needs PyPI); docs/releases.md has REHEARSAL, IMAGE and SIGN
	$(BIN)/python -m manifests.make_release $(if $(REHEARSAL),--rehearsal) $(if $(IMAGE),--image '$(IMAGE)') $(if $(SIGN),--sign $(SIGN))

publish: $(READY)  ## the files of a release, its image and its chart, to REGISTRY and signed (docs/releases.md has LAYOUT and SIGN)
	$(BIN)/python -m manifests.publish '$(REGISTRY)' '$(LAYOUT)' $(if $(REHEARSAL),--rehearsal) $(if $(SIGN),--sign $(SIGN))

rehearsal: $(READY)  ## the files of a release made twice of one commit, checked, and installed (needs PyPI)
	$(BIN)/pytest tests/release

man: $(READY)  ## write the man pages of all commands into build/man
	$(BIN)/slicewarden help --man build/man

chart: $(READY)  ## write the sample policy's registration and fallback, the rights in the manifests, manifests/install.yaml and the Helm chart
	$(BIN)/slicewarden registration --policy policies/sample.yaml > policies/registration.yaml
	$(BIN)/slicewarden fallback --policy policies/sample.yaml --actions ByRule > policies/fallback/fallback.yaml
	$(BIN)/python -m manifests.make_chart

LOCKED := export --quiet --frozen --no-default-groups --no-emit-project --no-header --no-annotate

lock: $(READY)  ## pin what the image is made of, with hashes; `make lock UPGRADE=--upgrade` takes newer releases
	$(BIN)/uv lock $(UPGRADE)
	$(BIN)/uv $(LOCKED) --extra agent > manifests/image/runtime.txt
	$(BIN)/uv $(LOCKED) --only-group build > manifests/image/build.txt
	$(BIN)/uv $(LOCKED) --only-group lock > .github/uv.txt

sbom: $(READY)  ## print what the image is made of, as CycloneDX
	@$(BIN)/uv export --quiet --frozen --no-default-groups --extra agent --preview-features sbom-export --format cyclonedx1.5

# ADVISORIES=FOLDER is a clone of PyPA's advisory database, or another set in the format of OSV (docs/releases.md).
advisories: $(READY)  ## known flaws of what the image is made of, in a set of ADVISORIES on this machine
	@$(MAKE) --no-print-directory --silent sbom | $(BIN)/python -m manifests.advisories '$(ADVISORIES)'

image: $(READY)  ## the image's build steps, run here without a container, and what they make put to use (needs PyPI; buildah for one test)
	$(BIN)/pytest -rs tests/image

bench: $(READY)  ## the figures of docs/evidence/speed.md and its charts (needs Go; builds Kubernetes the first time, ten minutes)
	$(BIN)/python -m bench
	$(BIN)/python -m docs.draw

clean:
	rm -rf $(VENV) .hypothesis .mypy_cache .ruff_cache .pytest_cache dist build
