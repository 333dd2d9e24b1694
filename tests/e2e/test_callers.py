"""Only the API server may call: the files of docs/certificates.md, as an API server of our own reads them."""

import json
import re
import ssl
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests import ROOT
from tests.e2e import control_plane, pki
from tests.e2e.control_plane import Cluster, answers
from tests.e2e.guard import Guard
from tests.e2e.objects import pod
from tests.support.waiting import reached

PAGE = ROOT / "docs/certificates.md"
CONFIGURATION, KUBECONFIG = (yaml.safe_load(each) for each in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S))
PARTS = (("certificate", "crt"), ("key", "key"))
CALLER = "kube-apiserver-webhooks"


class Closed(Guard):
    """A webhook that answers only callers with a certificate and a name."""

    def start(self, policy: str | None = None, *options: str | Path) -> None:
        authority = self.cluster.folder / "ca.crt"
        super().start(policy, "--client-ca", authority, "--client-name", CALLER, *options)

    def _ready(self) -> bool:
        context = ssl.create_default_context(cadata=b64decode(self._bundle).decode("ascii"))
        context.load_cert_chain(self.cluster.folder / "caller.crt", self.cluster.folder / "caller.key")
        return reached(f"{self.url}/readyz", context)


def certify(cluster: Cluster, name: str) -> None:
    """Have the API server show a certificate of that name, from its next start on."""
    assert cluster.authority is not None
    pair = pki.client_pair(cluster.authority, name, ())
    (cluster.folder / "caller.crt").write_bytes(pair.certificate_pem)
    (cluster.folder / "caller.key").write_bytes(pair.key_pem)


def configure(cluster: Cluster, address: str) -> None:
    """Start the API server again with the files of the page, for a webhook at an address."""
    for plugin in CONFIGURATION["plugins"]:
        plugin["configuration"]["kubeConfigFile"] = str(cluster.folder / "callers.yaml")
    (user,) = KUBECONFIG["users"]
    user["name"] = address
    user["user"] = {f"client-{each}": str(cluster.folder / f"caller.{end}") for each, end in PARTS}
    (cluster.folder / "callers.yaml").write_text(yaml.safe_dump(KUBECONFIG))
    (cluster.folder / "admission.yaml").write_text(yaml.safe_dump(CONFIGURATION))
    stopped = cluster.stop("kube-apiserver")
    flag = f"--admission-control-config-file={cluster.folder / 'admission.yaml'}"
    command = [each for each in stopped.command if each != flag]
    cluster.resume(replace(stopped, command=(*command, flag)))
    cluster.wait_until("the API server is back", lambda: answers(cluster))


@pytest.fixture(scope="module")
def closed(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    with control_plane.running(tmp_path_factory.mktemp("callers"), programs) as cluster:
        certify(cluster, CALLER)
        guard = Closed(cluster)
        guard.start()
        yield guard


def created(guard: Guard) -> str:
    """Return what the API server says of a GPU pod; empty if it lets it in."""
    asks = json.dumps(pod("probe", "default"))
    return guard.cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=asks).stderr


def test_only_callers_with_the_api_servers_certificate_are_answered(closed: Guard) -> None:
    cluster = closed.cluster
    configure(cluster, closed.url.removeprefix("https://"))
    closed.register()
    assert closed.asked("default")
    # The same API server under another name, and then without a certificate.
    certify(cluster, "somebody")
    configure(cluster, closed.url.removeprefix("https://"))
    assert "failed calling webhook" in created(closed)
    certify(cluster, CALLER)
    configure(cluster, "elsewhere.example:443")
    assert "failed calling webhook" in created(closed)
    configure(cluster, closed.url.removeprefix("https://"))
    assert "failed calling webhook" not in created(closed)
