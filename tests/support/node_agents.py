"""Simulates agents on the nodes of a cluster, which are asked through its API server."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.listening import Asked, listening


@contextmanager
def cluster(
    tmp_path: Path,
    answers: Mapping[str, tuple[int, bytes]],
    nodes: list[str] | None,
    metrics: Mapping[str, tuple[int, bytes]] | None = None,
    asked_for: list[str] | None = None,
) -> Iterator[list[str]]:
    """Serve an API server, and an agent on each node that has an answer. Yields the options for commands.

    With None, nodes may not be listed. `answers` are those of /usage, and `metrics` those of /metrics. `asked_for`
    receives the requested paths.
    """
    pods = [
        {
            "metadata": {"name": f"agent-{node}", "uid": node},
            "spec": {"nodeName": node, "containers": [{"ports": [{"name": "health", "containerPort": 9000}]}]},
        }
        for node in {**(metrics or {}), **answers}
    ]

    def answer(asked: Asked) -> None:
        url = urlsplit(asked.path)
        if asked_for is not None:
            asked_for.append(url.path)
        start = "/api/v1/namespaces/slicewarden-node/pods"
        status, body = 200, b"{}"
        if url.path == start:
            body = json.dumps({"metadata": {}, "items": pods}).encode()
        elif url.path == "/api/v1/nodes":
            status = 200 if nodes is not None else 403
            body = json.dumps(
                {"metadata": {}, "items": [{"metadata": {"name": each}} for each in nodes or ()]}
            ).encode()
        elif url.path.startswith(f"{start}/agent-"):
            name, _, rest = url.path.removeprefix(f"{start}/agent-").partition(":")
            if rest == "9000/proxy/metrics" and metrics is not None:
                status, body = metrics[name]
            else:
                assert rest == "9000/proxy/usage"
                assert url.query.startswith("hours=")
                status, body = answers[name]
        asked.give(status, body, Content_Type="application/json")

    with listening(answer) as url:
        file = tmp_path / "kubeconfig"
        context = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
        config = {"clusters": [{"name": "c", "cluster": {"server": url}}], "contexts": context}
        users = {"users": [{"name": "u", "user": {}}], "current-context": "c", "kind": "Config", "apiVersion": "v1"}
        file.write_text(json.dumps({**config, **users}))
        yield ["--kubeconfig", str(file)]
