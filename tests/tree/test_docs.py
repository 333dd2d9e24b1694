"""The pages for readers: every command that is shown is run, every link leads somewhere, every message is ours."""

import io
import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from tests import ROOT
from tests.support import kubectl_outputs
from tests.support.command_lines import pages, read
from webhook import rules
from webhook.cli import inputs
from webhook.cli import main as cli
from webhook.scan import reduced

PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("manifests/**/*.md"), *ROOT.glob("bench/*.md")]
)
PARSERS = {page.command_path: page for page in pages()}
READERS = [page for page in PAGES if page.name != "CHANGELOG.md"]

each_page = pytest.mark.parametrize("page", READERS, ids=lambda page: str(page.relative_to(ROOT)))

ELSEWHERE = {
    "awk": "shapes what kubectl prints",
    "buildah": "needs a base image of a registry; make node runs it on another",
    "cd": "goes to another folder",
    "cosign": "is built by make signing, whose tests run it",
    "crane": "asks a registry; tests/facts has what it prints",
    "curl": "asks a webhook that runs; the last test of this page has one",
    "docker": "needs a container engine; make image takes the same steps without",
    "flux": "needs a cluster with Flux; tests/e2e/test_flux.py does what it does",
    "git": "changes a repository of the reader's",
    "grep": "looks for a version in the checksums of a release; tests/signing has them",
    "helm": "needs a cluster, or a chart of the reader's; tests/chart renders ours",
    "kubectl": "needs a cluster; tests/e2e has one, and applies the manifests",
    "kustomize": "needs an overlay of the reader's",
    "make": "is what runs this test, and the others",
    "pip": "installs the project; make image does",
    "pre-commit": "installs the project; it is tried by hand",
    "python3": "makes a virtual environment",
    "sed": "changes a file of the reader's",
    "sha256sum": "checks the files of a release; tests/release makes one",
    "skopeo": "asks a registry; tests/facts has what it prints",
    "until": "waits for a cluster",
}
"""Other programs whose commands are shown, and why they are not run here."""

AS_SHOWN = ("cp ", "mv ", "openssl ", "printf ", "rm ")
"""Other programs that are run here as a page shows them, where they are installed."""

NOT_RUN = {
    r"slicewarden agent": "needs a GPU; tests/agent has one that is pretended",
    r"slicewarden audit": "needs a cluster; tests/scan/test_audit.py has one that is pretended",
    r"slicewarden check .*--live": "needs a cluster; so does tests/e2e/test_live.py",
    r"slicewarden diff .*--live": "needs a cluster; tests/cluster/test_listing.py has one that is pretended",
    r"slicewarden (check|diff|policy lint|test) .*--cluster": "needs folders; tests/cli/test_fleet.py has them",
    r"slicewarden certs keep": "needs a cluster; tests/certs/test_life.py and tests/e2e have one",
    r"slicewarden facts --images": "needs what a registry said; tests/scan/test_reduced.py has it",
    r"slicewarden facts --live": "needs a cluster; tests/cluster/test_listing.py has one that is pretended",
    r"slicewarden (advise|idle|top|ui|usage)": "needs agents; tests/cli/test_usage.py and others have pretended ones",
    r"slicewarden serve": "does not end; the last test of this page ends one",
    r"slicewarden demo": "make demo takes the tour; tests/serving/test_webhook.py looks at it",
    r"slicewarden prove": "needs a cluster; tests/cli/test_prove.py has one that is pretended",
    r"slicewarden doctor": "needs a cluster; tests/doctor/test_doctor.py has one that is pretended",
    r"slicewarden fallback .*--live": "needs a cluster; tests/e2e/test_fallback.py has one",
    r"(chart|images|signature)=": "are of a registry of the reader's; tests/signing has one",
    r"ca=": "is of a CA of the reader's",
    r"slicewarden registration .*--ca-bundle": "needs a CA of the reader's; tests/e2e/test_install.py has one",
    r"slicewarden registration .*--live": "needs a cluster; tests/cli/test_registration.py has one that is pretended",
}
"""What is shown of ours and not run here, and why; its options are still read."""

VARIABLES = {"$half": "mutating", "$ca": "QUJD"}
"""What a shell would put into what is shown and not run."""

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: inference
  namespace: vision
spec:
  replicas: 2
  selector:
    matchLabels: {app: inference}
  template:
    metadata:
      labels: {app: inference}
      annotations: {slicewarden.dev/trust: trusted}
    spec:
      containers:
        - name: server
          image: registry.example.com/inference:1.4
          resources:
            limits:
              nvidia.com/gpu.shared: 2
"""


class Shown(NamedTuple):
    """A command that a page shows, and what it shows of its output, None for nothing."""

    line: int
    command: str
    output: str | None


def shown(text: str) -> Iterator[Shown]:
    """The commands of all `console` and `sh` blocks, continued lines joined and comments gone."""
    for block in re.finditer(r"^```(console|sh)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, block.start(2)) + 1
        commands: list[tuple[int, str, list[str]]] = []
        for row in block[2].splitlines():
            if commands and commands[-1][1].endswith(("\\", "|")):
                start, before, _ = commands.pop()
                commands.append((start, f"{before.removesuffix(chr(92))}{row.strip()}", []))
            elif block[1] == "sh" or row.startswith("$ "):
                commands.append((line, re.sub(r"(^|\s+)#.*", "", row.removeprefix("$ ")), []))
            else:
                commands[-1][2].append(row)
            line += 1
        yield from (Shown(line, each, "\n".join(output) or None) for line, each, output in commands if each)


def run(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run the part of a command line that is ours in a folder; its output, which a redirection writes there too."""
    monkeypatch.chdir(folder)
    piped, _, ours = command.rpartition("| slicewarden ") if "| slicewarden " in command else ("", "", command)
    ours, _, then = ours.partition(" && ")
    ours, _, target = ours.removeprefix("slicewarden ").partition(" > ")
    words = shlex.split(ours.partition(" | ")[0])
    if piped:
        file = "cluster.json" if words[0] == "facts" else "deploy/inference.yaml"
        given = io.TextIOWrapper(io.BytesIO((folder / file).read_bytes()))
        monkeypatch.setattr("sys.stdin", given)
    capsys.readouterr()
    status = cli.main(words)
    output = capsys.readouterr()
    assert status in ((0,) if words[0] == "test" else (0, 1)), f"{command}: {output.err}{output.out}"
    if target and not target.startswith("~"):
        (folder / target.strip()).write_text(output.out)
    if then:
        assert then.startswith(AS_SHOWN), command
        subprocess.run(["sh", "-c", then], cwd=folder, check=True)
    return output.out


def usage(command: str) -> str:
    """Read the part of a command line that is ours; the error where it cannot be used, else nothing."""
    _, _, ours = re.sub(r".*\$\((.*)\)", r"\1", command).partition("slicewarden ")
    words = [VARIABLES.get(word, word) for word in shlex.split(re.split(r" ?\| ?| > ", ours)[0])]
    try:
        read(*words)
    except click.ClickException as error:
        return error.format_message()
    return ""


def misspelt(words: list[str]) -> list[str]:
    """The commands and options that are none, of what may leave out what else a command line needs."""
    for place, word in enumerate(words):
        page = PARSERS[" ".join(("slicewarden", *words[:place]))]
        if not isinstance(page.command, click.Group):
            known = {name for parameter in page.command.get_params(page) for name in parameter.opts}
            return [each for each in words[place:] if each.startswith("-") and each not in known]
        if word.startswith("-"):
            known = {name for parameter in page.command.get_params(page) for name in parameter.opts}
            return [word] if word not in known else []
        if page.command.get_command(page, word) is None:
            return [word]
    return []


def fits(output: str, wanted: str) -> bool:
    """Whether an output is the one shown, in which … stands for anything."""
    pattern = ".*".join(map(re.escape, wanted.strip("\n").split("…")))
    return re.fullmatch(pattern, output.strip("\n"), re.DOTALL) is not None


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository as the pages suppose one: manifests, facts, policies, and a branch that was there before."""
    folder = tmp_path_factory.mktemp("repository")
    for name in ("policies", "webhook/sample", "manifests/base", "manifests/overlays", "manifests/components"):
        shutil.copytree(ROOT / name, folder / name)
    sample = [item.value for item in inputs.load_objects(str(ROOT / "webhook/sample/facts.yaml"))]
    (folder / "dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": sample}))
    (folder / "cluster.json").write_text(reduced.json_text(reduced.reduced(sample, inputs.load_policy(None))))
    (folder / "deploy").mkdir()
    (folder / "deploy/inference.yaml").write_text(DEPLOYMENT)
    text = (ROOT / "policies/sample.yaml").read_text("utf-8")
    assert text.count('"*": Deny\n') == 1
    (folder / "policy.yaml").write_text(text)
    (folder / "new.yaml").write_text(text.replace('"*": Deny\n', '"*": Deny\n    multiple-slices: Warn\n'))
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")
    for words in ("init -q", "add .", "commit -qm before", "update-ref refs/remotes/origin/main HEAD"):
        subprocess.run([*git, *words.split()], cwd=folder, check=True)
    assert cli.main(["certs", "issue", "--out", str(folder / "issued")]) == 0
    shutil.copy(folder / "issued/tls.crt", folder)
    return folder


@pytest.fixture(scope="module")
def known() -> dict[str, str]:
    """Return what commands that write nothing have said on another page."""
    return {}


@each_page
def test_every_command_of_a_page_runs_and_shows_what_is_shown(
    page: Path,
    prepared: Path,
    known: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    commands = list(shown(page.read_text("utf-8")))
    if not commands:
        return
    folder = tmp_path / "repository"
    shutil.copytree(prepared, folder)
    for each in commands:
        where = f"{page.name}:{each.line}"
        if any(re.match(pattern, each.command) for pattern in NOT_RUN):
            if "slicewarden " in each.command.partition("|")[0]:
                assert not usage(each.command), where
            continue
        if each.command.startswith(AS_SHOWN):
            if shutil.which("openssl"):
                done = subprocess.run(["sh", "-c", each.command], cwd=folder, capture_output=True, text=True)
                assert done.returncode == 0, f"{where}: {done.stderr}"
                assert each.output is None or fits(done.stdout, each.output), where
                known = {}  # files have changed: what is said from here on is of this page alone
            continue
        if each.command.startswith("slicewarden ") or "| slicewarden " in each.command:
            output = known.get(each.command)
            if output is None:
                output = run(each.command, folder, monkeypatch, capsys)
            if not re.search(r"--out|>|certs", each.command):
                known[each.command] = output
            if each.output is not None:
                assert fits(output, each.output), f"{where}: {each.command}\n{output}"
        else:
            assert each.command.split()[0] in ELSEWHERE, f"{where}: {each.command}"


def test_every_reason_not_to_run_something_is_needed() -> None:
    commands = [each.command for page in READERS for each in shown(page.read_text("utf-8"))]
    for pattern in NOT_RUN:
        assert any(re.match(pattern, command) for command in commands), pattern
    assert sum(command.startswith("slicewarden ") for command in commands) > 40


def test_one_page_shows_what_kubectl_prints() -> None:
    """A node compares it (tests/node/test_pages.py): another page with its output needs a test there."""
    assert [str(page.relative_to(ROOT)) for page in PAGES if kubectl_outputs.shown(page)] == ["docs/denied.md"]


def unfenced(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


@each_page
def test_commands_in_prose_can_be_typed_and_longer_ones_are_in_fences(page: Path) -> None:
    text = unfenced(page)
    for found in re.findall(r"`(?:kubectl )?slicewarden ([^`]+)`", text):
        words = shlex.split(found)
        assert misspelt([] if words == ["…"] else words) == [], found
    assert re.findall(r"^ {4,}(?:\$ )?(?:slicewarden|kubectl|openssl|make) .*", text, re.MULTILINE) == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("slicewarden audit --namespaze vision", "Did you mean '--namespace'?"),
        ("slicewarden serve --live", "Missing option '--tls-cert'"),
        ("ca=$(slicewarden certs bundel tls/ca.crt)", "Did you mean 'bundle'?"),
        ("slicewarden diff OLD NEW --live > out", ""),
    ],
)
def test_a_command_that_is_not_run_is_still_read(command: str, said: str) -> None:
    error = usage(command)
    assert said in error
    assert bool(error) == bool(said)


def test_a_misspelt_command_of_prose_is_found() -> None:
    assert misspelt(["check", "PATH", "--explain"]) == []
    assert misspelt(["policy", "lynt"]) == ["lynt"]
    assert misspelt(["audit", "--systen"]) == ["--systen"]
    assert misspelt(["serve"]) == []


def test_commands_are_read_as_they_are_typed() -> None:
    text = "```console\n$ a b \\\n    c\nout\n\nmore\n$ d\n```\n\n```sh\ne |  # why\n  f\n# nothing\n```\n"
    text += "```yaml\n$ f\n```\n"
    assert [*shown(text)] == [(2, "a b c", "out\n\nmore"), (7, "d", None), (11, "e |f", None)]
    assert fits("one\ntwo\nthree\n", "one\n…\nthree")
    assert not fits("one\ntwo\nthree\n", "one\nthree")


# Links


def anchors(page: Path) -> set[str]:
    """Return what GitHub lets a link to a page end in: its headings, in lower case, of letters, digits, _ and -."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}"


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {
        (index.parent / link.partition("#")[0]).resolve()
        for link in re.findall(r"\]\(([^)\s]+)\)", index.read_text("utf-8"))
    }
    assert [page for page in sorted(ROOT.glob("docs/**/*.md")) if page != index and page not in linked] == []


@pytest.mark.parametrize("page", ["README.md", "docs/first-hour.md"])
def test_a_new_user_needs_no_command_that_the_controller_replaces(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    assert "kubectl apply -f policy.yaml" in text
    assert re.findall(r"slicewarden (?:registration|certs|fallback)\b.*", text) == []


# Who was denied


def test_the_page_denied_quotes_real_messages_and_links_to_the_rules() -> None:
    page = (ROOT / "docs" / "denied.md").read_text("utf-8")
    said = "".join(file.read_text("utf-8") for file in ROOT.glob("tests/fixtures/*/verdicts.txt"))
    quoted = re.findall(r"^> (.+)$", page, re.MULTILINE)
    assert len(quoted) > 10
    assert [quote for quote in quoted if quote not in said] == []
    assert "[rules.md](rules.md)" in page
    ways = (ROOT / "docs" / "rules.md").read_text("utf-8").split("\n## ")[1:]
    assert [way.partition("\n")[0] for way in ways if "\nWay out: " in way] == [rule.id for rule in rules.walk()]


# By hand


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_a_review_sent_by_hand_is_answered_as_the_page_shows(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "operate.md").read_text("utf-8").partition("## Run it by hand")[2].partition("\n## ")[0]
    with socket.create_server(("127.0.0.1", 0)) as a, socket.create_server(("127.0.0.1", 0)) as b:
        ports = {"8443": str(a.getsockname()[1]), "8080": str(b.getsockname()[1])}
    here = re.sub("|".join(ports), lambda port: ports[port[0]], page)
    (review,) = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    monkeypatch.setenv("no_proxy", "*")
    issue, serve, *asks = shown(here)
    folder = tmp_path / "repository"
    shutil.copytree(prepared, folder)
    (folder / "review.json").write_text(review)
    run(issue.command, folder, monkeypatch, capsys)
    words = shlex.split(serve.command.removeprefix("slicewarden "))
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "webhook", *words], cwd=folder, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["message"] == "serving"  # its sockets are open
            for each in asks:
                asked = ["sh", "-c", each.command]
                answer = subprocess.run(asked, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
                assert each.output is not None
                assert fits(answer.stdout, each.output), f"{each.command}\n{answer.stdout}"
        finally:
            process.terminate()
    assert len(asks) == 3
    assert process.returncode == 0
