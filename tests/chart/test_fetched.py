"""Charts and bases that `--fetch` downloads, by the real programs from a server of the test."""

import os
import subprocess
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest

from tests.support.fetching import CHART, check, package, releases
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts


class Served(NamedTuple):
    """A server: its address, the folder that it serves, and the paths that were asked for."""

    url: str
    folder: Path
    asked: list[str]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Serve a folder, and the repositories of Git in it."""
    folder, asked = tmp_path / "served", list[str]()
    folder.mkdir()

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(folder))

        def do_GET(self) -> None:
            asked.append(self.path)
            if "/info/refs" in self.path:
                self._git()
            else:
                super().do_GET()

        def do_POST(self) -> None:
            self._git()

        def _git(self) -> None:
            """Answer as git-http-backend(1) does, which is a program of CGI."""
            path, _, query = self.path.partition("?")
            environment = {
                **os.environ,
                "GIT_PROJECT_ROOT": str(folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            done = subprocess.run(
                ["git", "http-backend"], input=body, env=environment, stdout=subprocess.PIPE, check=True
            )
            head, _, data = done.stdout.partition(b"\r\n\r\n")
            self.send_response(404 if b"404" in head.splitlines()[0] else 200)
            for line in head.decode().splitlines():
                name, _, value = line.partition(": ")
                if name != "Status":
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield Served(f"http://127.0.0.1:{server.server_port}", folder, asked)
    server.shutdown()
    server.server_close()


@pytest.fixture
def charts(served: Served, programs: dict[str, Path], tmp_path: Path) -> Served:
    """A repository of charts with one chart."""
    package(programs["helm"], tmp_path, served.folder)
    subprocess.run([programs["helm"], "repo", "index", "."], cwd=served.folder, check=True)
    return served


def test_a_chart_is_downloaded_once_for_its_releases(
    charts: Served, repository: Path, engine: Engine, sample_facts: Facts
) -> None:
    several = [(f"app-{each}", "web", "1.2.3", "all" if each == 1 else "void") for each in range(4)]
    (repository / "releases.yaml").write_text(releases(*several, url=charts.url))
    report = check(engine, sample_facts)
    assert {one.name: one.verdict.allowed for one in report.judged} == {
        "app-0": True,
        "app-1": False,
        "app-2": True,
        "app-3": True,
    }
    assert {(one.namespace, one.file) for one in report.judged} == {("lab", "releases.yaml")}
    assert sorted(charts.asked) == ["/index.yaml", "/web-1.2.3.tgz"]


def test_nothing_is_downloaded_without_fetch(
    charts: Served, repository: Path, engine: Engine, sample_facts: Facts
) -> None:
    (repository / "releases.yaml").write_text(releases(("app", "web", "1.2.3", "all"), url=charts.url))
    (repository / "kustomization.yaml").write_text(f"resources: ['{charts.url}/pod.yaml']\n")
    report = check(engine, sample_facts, fetch=False)
    assert (report.judged, charts.asked) == ((), [])
    assert any(f"helm pull --untar -d charts --repo={charts.url} --version=1.2.3 web" in note for note in report.notes)


@pytest.mark.parametrize(
    ("chart", "version"),
    [
        ("/etc", ""),
        ("../..", ""),
        ("../repository/chart", ""),
        ("--post-renderer=/bin/sh", ""),
        ("web", "--plain-http"),
        ("web", "1.2.3 -- /etc"),
        ("web", "../../1.2.3"),
        ("web", "$(touch made)"),
        ("web", "\\0"),
        ("web", "9.9.9"),
        ("absent", "1.2.3"),
    ],
)
def test_a_hostile_name_or_version_is_one_note(
    charts: Served, repository: Path, engine: Engine, sample_facts: Facts, chart: str, version: str
) -> None:
    (repository / "chart/templates").mkdir(parents=True)
    (repository / "chart/Chart.yaml").write_text(CHART["Chart.yaml"].replace("name: web", "name: mine"))
    (repository / "releases.yaml").write_text(releases(("app", chart, version, "all"), url=charts.url))
    report = check(engine, sample_facts)
    assert (report.judged, report.problems) == ((), ())
    (note,) = [note for note in report.notes if "HelmRelease lab/app not rendered" in note]
    assert "/etc/" not in note
    assert sorted(path.name for path in repository.iterdir()) == [".git", "chart", "releases.yaml"]


@pytest.mark.parametrize(
    "url", ["file:///etc", "/etc", "..", "--ca-file=/etc/passwd", "http://127.0.0.1:1", "oci://127.0.0.1:1"]
)
def test_an_address_that_is_none_of_charts_is_one_note(
    repository: Path, engine: Engine, sample_facts: Facts, url: str
) -> None:
    (repository / "releases.yaml").write_text(releases(("app", "web", "1.2.3", "all"), url=url))
    report = check(engine, sample_facts)
    assert (report.judged, report.problems) == ((), ())
    assert len([note for note in report.notes if "HelmRelease lab/app not rendered" in note]) == 1


POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: made}\nspec: {hostPID: true, containers: [{name: c, image: i}]}\n"


@pytest.fixture
def base(served: Served, tmp_path: Path) -> Path:
    """A bare repository of Git with a base."""
    folder = tmp_path / "base"
    (folder / "deploy").mkdir(parents=True)
    (folder / "deploy/kustomization.yaml").write_text("resources: [pod.yaml]\n")
    (folder / "deploy/pod.yaml").write_text(POD)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*who, "commit", "-q", "-m", "base"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    bare = served.folder / "base.git"
    subprocess.run(["git", "clone", "-q", "--bare", folder, bare], check=True)
    return bare


def test_a_base_of_git_is_downloaded_by_kustomize(
    served: Served, base: Path, repository: Path, engine: Engine, sample_facts: Facts
) -> None:
    assert base.is_dir()
    (repository / "kustomization.yaml").write_text(
        f"namespace: lab\nresources: ['{served.url}/base.git//deploy?ref=main']\n"
    )
    report = check(engine, sample_facts, fetch=False)
    assert (report.judged, served.asked) == ((), [])
    report = check(engine, sample_facts)
    assert report.problems == ()
    assert [(one.namespace, one.name, one.file, one.root) for one in report.judged] == [("lab", "made", ".", ".")]
    assert any("/base.git/info/refs" in path for path in served.asked)


@pytest.mark.parametrize(
    "address", ["file://BASE//deploy?ref=main", "git::file://BASE//deploy?ref=main", "BASE//deploy?ref=main"]
)
def test_a_repository_of_this_machine_is_not_downloaded(
    base: Path, repository: Path, engine: Engine, sample_facts: Facts, address: str
) -> None:
    (repository / "kustomization.yaml").write_text(
        f"namespace: lab\nresources: ['{address.replace('BASE', str(base))}']\n"
    )
    assert check(engine, sample_facts).judged == ()
