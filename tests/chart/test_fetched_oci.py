"""Charts that `--fetch` downloads from a registry, by the real Helm from a server of the test.

Source: the OCI distribution specification (GET of manifests, blobs and tags), and Helm's media types (pkg/registry).
"""

import hashlib
import json
import re
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest

from tests.support.fetching import check, package, releases
from tests.support.webhooks import certify
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Blob(NamedTuple):
    """A blob of a registry: its media type and contents."""

    kind: str
    data: bytes

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"

    @property
    def descriptor(self) -> dict[str, Any]:
        return {"mediaType": self.kind, "digest": self.digest, "size": len(self.data)}


class Registry(NamedTuple):
    """A registry: its host and port, the digest of its chart's manifest, and the paths that were asked for."""

    host: str
    digest: str
    asked: list[str]


@pytest.fixture
def registry(programs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """Serve the chart as `charts/web` in version 1.2.3, by TLS, as Helm asks for it."""
    archive = package(programs["helm"], tmp_path, tmp_path).read_bytes()
    layer = Blob("application/vnd.cncf.helm.chart.content.v1.tar+gzip", archive)
    config = Blob("application/vnd.cncf.helm.config.v1+json", b'{"apiVersion":"v2","name":"web","version":"1.2.3"}')
    text = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config.descriptor, "layers": [layer.descriptor]}
    manifest = Blob(MANIFEST, json.dumps(text).encode())
    tags = Blob("application/json", b'{"name": "charts/web", "tags": ["1.2.3", "1.0.0"]}')
    found = {f"blobs/{each.digest}": each for each in (layer, config)}
    found |= {f"manifests/{name}": manifest for name in ("1.2.3", manifest.digest)} | {"tags/list": tags}
    asked = list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            path = re.sub(r"^/v2/charts/web/|\?.*", "", self.path)
            blob = found.get(path)
            self.send_response(200 if blob or self.path == "/v2/" else 404)
            if blob:
                self.send_header("Content-Type", blob.kind)
                self.send_header("Docker-Content-Digest", blob.digest)
            self.send_header("Content-Length", str(len(blob.data) if blob else 0))
            self.end_headers()
            if blob and self.command == "GET":
                self.wfile.write(blob.data)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    (tmp_path / "ca.pem").write_bytes(certify(tmp_path))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    yield Registry(f"localhost:{server.server_port}", manifest.digest, asked)
    server.shutdown()
    server.server_close()


OF_ARTIFACT = """\
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: ours, namespace: lab}
spec: {url: "oci://HOST/charts/web", ref: {REF}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: app, namespace: lab}
spec: {chartRef: {kind: OCIRepository, name: ours}, values: {devices: all}}
"""

APPLICATION = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: app, namespace: argocd}
spec:
  destination: {namespace: lab}
  source: {repoURL: HOST/charts, chart: web, targetRevision: 1.2.3, helm: {valuesObject: {devices: all}}}
"""

KUSTOMIZATION = """\
namespace: lab
helmCharts: [{name: web, repo: "oci://HOST/charts", version: 1.2.3, releaseName: app, valuesInline: {devices: all}}]
"""

HELMFILE = """\
repositories: [{name: ours, url: HOST/charts, oci: true}]
releases: [{name: app, namespace: lab, chart: ours/web, version: 1.2.3, values: [{devices: all}]}]
"""

SOURCES = {
    "HelmRepository": ("a.yaml", releases(("app", "web", "1.2.3", "all"), url="oci://HOST/charts")),
    "a tag": ("a.yaml", OF_ARTIFACT.replace("REF", "tag: 1.2.3")),
    "a range": ("a.yaml", OF_ARTIFACT.replace("REF", 'semver: ">=1.0.0"')),
    "a digest": ("a.yaml", OF_ARTIFACT.replace("REF", "digest: DIGEST")),
    "Argo CD": ("a.yaml", APPLICATION),
    "kustomize": ("kustomization.yaml", KUSTOMIZATION),
    "helmfile": ("helmfile.yaml", HELMFILE),
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_chart_of_a_registry_is_downloaded_by_helm(
    registry: Registry, repository: Path, engine: Engine, sample_facts: Facts, source: str
) -> None:
    name, text = SOURCES[source]
    (repository / name).write_text(text.replace("HOST", registry.host).replace("DIGEST", registry.digest))
    report = check(engine, sample_facts, fetch=False)
    assert (report.judged, registry.asked) == ((), [])
    assert any(f"oci://{registry.host}/charts/web" in note and "--fetch" in note for note in report.notes)
    report = check(engine, sample_facts)
    assert report.problems == ()
    assert [(one.namespace, one.name, one.verdict.allowed) for one in report.judged] == [("lab", "app", False)]
    assert [one.file for one in report.judged] == [name]
    assert any("/blobs/" in path for path in registry.asked)
    if source == "a digest":
        assert f"/v2/charts/web/manifests/{registry.digest}" in registry.asked
        assert not any("tags/list" in path for path in registry.asked)
