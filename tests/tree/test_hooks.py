"""The hooks into other tools: what they read is of their form, and what they run does what it says."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest

from tests import ROOT
from tests.support import layouts
from tests.support.command_lines import pages
from tests.support.command_lines import read as read_command
from webhook.cli import main as cli
from webhook.cli.root import root
from webhook.documents import documents

SCHEMAS = ROOT / "tests/schemas"
CI = ROOT / "docs" / "ci"


def read(file: Path) -> Any:
    text = file.read_text("utf-8").replace("\non:", '\n"on":')  # which YAML 1.1 takes for true
    (document,), problems = documents.read(text, file.name)
    assert not problems
    return document.value


ACTION = read(ROOT / "action.yml")
STEPS = {each["id"]: each for each in ACTION["runs"]["steps"]}


def follows(value: Any, schema: str) -> None:
    known = json.loads((SCHEMAS / f"{schema}.json").read_text("utf-8"))
    jsonschema.Draft7Validator(known).validate(value)


# Their form


def test_the_action_is_of_the_form_that_github_publishes() -> None:
    follows(ACTION, "github-action")
    with pytest.raises(jsonschema.ValidationError):
        follows({**ACTION, "runs": {"using": "composite"}}, "github-action")
    with pytest.raises(jsonschema.ValidationError):
        follows({**ACTION, "runs": {"using": "composite", "steps": [{"run": "true"}]}}, "github-action")  # no shell


def test_the_examples_are_of_the_form_of_their_build_servers() -> None:
    follows(read(CI / "github.yaml"), "github-workflow")
    follows(read(CI / "gitlab.yml"), "gitlab-ci")
    with pytest.raises(jsonschema.ValidationError):
        follows({"jobs": {}}, "github-workflow")


def test_the_workflow_gives_the_action_what_it_takes() -> None:
    (use,) = [each for each in read(CI / "github.yaml")["jobs"]["check"]["steps"] if "slicewarden@" in each["uses"]]
    assert set(use["with"]) <= set(ACTION["inputs"])


def test_the_example_follows_the_majors_of_other_actions() -> None:
    text = (CI / "github.yaml").read_text("utf-8")
    used = [each for each in re.findall(r"uses: (\S+)", text) if not each.startswith("example/")]
    assert len(used) == 2
    assert all(re.fullmatch(r"[a-z-]+/[a-z/-]+@v[0-9]+", each) for each in used)


def test_nothing_that_a_pull_request_holds_is_pasted_into_a_script() -> None:
    assert [each["id"] for each in STEPS.values() if "${{" in each.get("run", "")] == []


def test_the_commands_of_the_gitlab_example_can_be_typed() -> None:
    jobs = [job for name, job in read(CI / "gitlab.yml").items() if name != "variables"]
    lines = [line.split() for job in jobs for line in job.get("script", ())]
    assert {program for program, *_ in lines} == {"slicewarden"}
    for _, *words in lines:
        read_command(*words)


def test_every_hook_runs_a_command_there_is() -> None:
    hooks = read(ROOT / ".pre-commit-hooks.yaml")
    assert [each["id"] for each in hooks] == ["slicewarden-check", "slicewarden-test", "slicewarden-policy-lint"]
    for each in hooks:
        words = [*each["entry"].split(), *each.get("args", ())]
        read_command(*words[1:])
        assert each["language"] == "python"


@pytest.mark.parametrize(
    ("files", "changed", "status"),
    [
        ({"Kustomization": "resources: [pod.txt]\n"}, "Kustomization", 1),
        ({"Kustomization": "resources: [pod.txt]\n"}, "pod.txt", 1),
        ({"README.md": "# A kind: of title\n\n- a: b\n* c\n"}, "README.md", 0),
        ({"main.py": 'kind = {"kind": 1}\ndef f():\n\treturn kind\n'}, "main.py", 0),
        ({}, "pod.txt", 1),
        ({"logo.png": "\0PNG"}, "logo.png", 0),
        ({"web-1.0.0.tgz": "\0"}, "web-1.0.0.tgz", 0),
        ({"kustomization.yaml": "resources: [logo.png]\n", "logo.png": "POD"}, "logo.png", 1),
    ],
)
def test_the_hook_judges_files_of_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Mapping[str, str], changed: str, status: int
) -> None:
    hook, *_ = read(ROOT / ".pre-commit-hooks.yaml")
    assert (hook["types"], hook["types_or"]) == ([], ["file", "symlink"])
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    pod = (ROOT / "tests/fixtures/multiple-slices/deny-one-in-each-of-two-containers.yaml").read_text()
    for name, text in {"pod.txt": pod, **files}.items():
        (tmp_path / name).write_text(text.replace("POD", pod))
    assert cli.main([*hook["entry"].split()[1:], *hook["args"], changed]) == status


@pytest.mark.parametrize(
    ("files", "target", "status"),
    [
        ({"logo.png": "POD"}, "../logo.png", 1),
        ({"logo.png": "\0PNG"}, "../logo.png", 0),
        ({"apps/pod.yaml": "POD"}, "../apps", 1),
        ({"kustomization.yaml": "resources: [deploy/link.yaml]\n", "apps/pod.yaml": "POD"}, "../apps/pod.yaml", 1),
        ({"../outside/pod.yaml": "POD"}, "../../outside", 0),
        ({"pod.yaml": "POD"}, "..", 1),
        ({}, "gone.yaml", 0),
        ({}, "link.yaml", 0),
    ],
)
def test_the_hook_follows_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Mapping[str, str], target: str, status: int
) -> None:
    """kubectl reads what a link leads to. No commit has a folder outside of the repository."""
    hook, *_ = read(ROOT / ".pre-commit-hooks.yaml")
    pod = (ROOT / "tests/fixtures/multiple-slices/deny-one-in-each-of-two-containers.yaml").read_text()
    for name, text in {".git/config": "", "deploy/README.md": "", **files}.items():
        path = tmp_path / "repository" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("POD", pod))
    (tmp_path / "repository/deploy/link.yaml").symlink_to(target)
    monkeypatch.chdir(tmp_path / "repository")
    assert cli.main([*hook["entry"].split()[1:], *hook["args"], "deploy/link.yaml"]) == status


def spelled() -> list[str]:
    """Each option of `check` as a file may be named, and the two words that are none."""
    context = root.make_context("slicewarden", ["check"], resilient_parsing=True)
    command = root.get_command(context, "check")
    assert command is not None
    names = [name for each in command.params for name in (*each.opts, *each.secondary_opts) if name.startswith("-")]
    return ["-", "--", "-h", "--help", *names, *(f"{name}=p" for name in names), *(f"{name}p" for name in names)]


@pytest.mark.parametrize("args", [[], ["--facts", "facts.yaml"], ["--facts", "facts.yaml", "--"]])
def test_no_file_of_a_commit_is_an_option_of_the_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], args: list[str]
) -> None:
    hook, *_ = read(ROOT / ".pre-commit-hooks.yaml")
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "webhook/sample/facts.yaml", "facts.yaml")
    text = (ROOT / "tests/fixtures/multiple-slices/deny-one-in-each-of-two-containers.yaml").read_text()
    words = [*hook["entry"].split()[1:], *(args or hook["args"])]
    for name in spelled():
        Path(name).write_text(text)
        status = cli.main([*words, name])
        out, err = capsys.readouterr()
        refused = name in ("-", *words) or "--" not in words
        assert status == (2 if refused else 1), name
        assert (f'error: the file "{name}" would be taken for' in err) is refused
        assert (f"  {name}:" in out) is not refused
        Path(name).unlink()
    Path("pod.yaml").write_text(text)
    assert cli.main([*words, "pod.yaml"]) == 1


def test_no_command_takes_a_file_for_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [
        each.command_path.split()[1:]
        for each in pages()
        if any(isinstance(one, click.Argument) and isinstance(one.type, click.Path) for one in each.command.params)
    ]
    assert len(commands) > 10
    for words in commands:
        Path("--help").touch()
        assert cli.main([*words, "--help"]) == 2, words
        assert 'write "./--help", or remove the file' in capsys.readouterr().err
        Path("--help").unlink()
        assert cli.main([*words, "--help"]) == 0, words


# What the action runs


@pytest.fixture
def runner(tmp_path: Path) -> Any:
    """Run a step as a runner does, in a repository with a pod that is denied and one that is not."""
    for folder in ("temp/slicewarden/bin", "bin", "work/deploy"):
        (tmp_path / folder).mkdir(parents=True)
    command = tmp_path / "temp/slicewarden/bin/slicewarden"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m webhook "$@"\n')
    command.chmod(0o755)
    shutil.copy(
        ROOT / "tests/fixtures/multiple-slices/deny-one-in-each-of-two-containers.yaml", tmp_path / "work/deploy"
    )
    (tmp_path / "work/fine pods").mkdir()
    shutil.copy(ROOT / "tests/fixtures/multiple-slices/allow-one.yaml", tmp_path / "work/fine pods")
    defaults = {name: each.get("default", "") for name, each in ACTION["inputs"].items()}

    def step(name: str, given: Mapping[str, str]) -> tuple[int, str, dict[str, str], str]:
        for file in ("output", "summary"):
            (tmp_path / file).write_text("")
        known = {**defaults, "facts": str(ROOT / "webhook/sample/facts.yaml"), **given}
        fill = re.compile(r"\$\{\{ (?:inputs|steps\.check\.outputs|github\.event\.pull_request)\.([a-z-]+) \}\}")
        environment = {
            **os.environ,
            **{key: fill.sub(lambda found: known[found[1]], text) for key, text in STEPS[name]["env"].items()},
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(tmp_path / "temp"),
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_OUTPUT": str(tmp_path / "output"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
            "GITHUB_REPOSITORY": "team/manifests",
        }
        # As https://docs.github.com/actions/reference/workflows-and-actions/workflow-syntax says of `shell: bash`.
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]]
        done = subprocess.run(
            shell, cwd=tmp_path / "work", env=environment, capture_output=True, text=True, check=False
        )
        rows = (line.partition("=") for line in (tmp_path / "output").read_text().splitlines())
        outputs = {key: value for key, _, value in rows}
        return done.returncode, done.stdout + done.stderr, outputs, (tmp_path / "summary").read_text()

    return step


def test_no_module_of_the_repository_runs(tmp_path: Path) -> None:
    first, *_ = STEPS["install"]["run"].splitlines()
    (tmp_path / "venv.py").write_text("import pathlib\npathlib.Path('ran').touch()\n")
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@" --without-pip\n')
    (tmp_path / "python").chmod(0o755)
    around = {**os.environ, "PYTHON": str(tmp_path / "python"), "RUNNER_TEMP": str(tmp_path / "temp")}
    subprocess.run(["bash", "-c", first], cwd=tmp_path, env=around, check=True)
    assert (tmp_path / "temp/slicewarden/pyvenv.cfg").is_file()
    assert not (tmp_path / "ran").exists()


def test_a_denial_is_in_log_diff_summary_and_sarif_and_fails_at_the_end(runner: Any) -> None:
    status, log, outputs, summary = runner("check", {"paths": "deploy\n\nfine pods\n"})
    assert status == 0
    assert "\ndenied" in f"\n{log}"
    assert "::error file=deploy/" in log
    assert "2 objects: 1 allowed, 1 denied" in log
    assert summary.startswith("### Slicewarden: 1 of 2 objects denied")
    found = json.loads(Path(outputs["sarif"]).read_text())["runs"][0]["results"]
    assert {each["ruleId"] for each in found if each["level"] == "error"} == {"multiple-slices"}
    assert outputs["status"] == "1"
    assert runner("verdict", {"status": outputs["status"]})[0] == 1


@pytest.mark.thorough
def test_only_annotations_are_commands_of_the_runner(runner: Any, tmp_path: Path) -> None:
    text = (tmp_path / "work/deploy/deny-one-in-each-of-two-containers.yaml").read_text()
    (tmp_path / "work/deploy/a\n::stop-commands::x\n##[add-mask]b.yaml").write_text(text)
    _, log, _, _ = runner("check", {"paths": "deploy"})
    stopped, _, rest = log.partition("::stop-commands::")[2].partition("\n")
    assert re.fullmatch("[0-9a-f]{32}", stopped)
    printed, _, commands = rest.partition(f"\n::{stopped}::\n")
    assert "2 objects: " in printed
    assert not re.search(r"^\s*::|##\[", printed, re.MULTILINE)
    assert "::error file=deploy/" in commands
    assert runner("check", {"paths": "deploy"})[1].partition("\n")[0] != log.partition("\n")[0]


@pytest.mark.thorough
def test_what_a_kustomization_makes_is_marked_in_the_patch_that_people_edit(runner: Any, tmp_path: Path) -> None:
    layout = layouts.load("overlay-patch")
    layout.write(tmp_path / "work")
    _, log, outputs, summary = runner("check", {"paths": "base\noverlays"})
    marked = {(file, int(line)) for file, line in re.findall(r"^::error file=([^,]+),line=(\d+)", log, re.MULTILINE)}
    assert marked == {(file, line) for file, line, _, _ in layout.found}
    assert "media" in summary
    found = json.loads(Path(outputs["sarif"]).read_text())["runs"][0]["results"]
    places = [each["locations"][0]["physicalLocation"] for each in found if each["level"] == "error"]
    assert {(place["artifactLocation"]["uri"], place["region"]["startLine"]) for place in places} == marked


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"paths": "fine pods"}, "0"),
        ({"fail-on": "never"}, "0"),
        ({"paths": "--help"}, "2"),
        ({"format": "sarif"}, "2"),
    ],
)
def test_the_inputs_of_the_action_choose_what_fails(runner: Any, given: dict[str, str], status: str) -> None:
    done, log, outputs, _ = runner("check", {"paths": "deploy", **given})
    assert outputs["status"] == status, log
    assert done in (0, int(status))


GH = """#!/bin/sh
printf '%s\\n' "$*" >>"$RUNNER_TEMP/calls"
case $* in
*graphql*) echo 'slicewarden[bot]' ;;
*--paginate*) cat "$RUNNER_TEMP/known" ;; *) [ ! -e "$RUNNER_TEMP/powerless" ] ;; esac
"""


@pytest.mark.thorough
def test_a_comment_is_made_once_and_kept_up_to_date(runner: Any, tmp_path: Path) -> None:
    temp = tmp_path / "temp"
    (tmp_path / "bin/gh").write_text(GH)
    (tmp_path / "bin/gh").chmod(0o755)
    (temp / "known").write_text("")
    runner("check", {"paths": "deploy"})

    def commented() -> tuple[str, str]:
        (temp / "calls").write_text("")
        status, log, _, _ = runner("comment", {"token": "t", "number": "7"})
        assert status == 0
        return (temp / "calls").read_text().splitlines()[-1], log

    call, _ = commented()
    assert call.startswith("api --method POST repos/team/manifests/issues/7/comments --field body=@")
    assert (temp / "comment.md").read_text().startswith("<!-- slicewarden -->\n### Slicewarden: 1 of")
    (temp / "known").write_text("31\n47\n")
    call, _ = commented()
    asked = next(line for line in (temp / "calls").read_text().splitlines() if "--paginate" in line)
    assert 'select(.user.login == "slicewarden[bot]" and (.body | startswith("<!-- slicewarden -->")))' in asked
    assert call.startswith("api --method PATCH repos/team/manifests/issues/comments/31 ")
    (temp / "powerless").touch()
    assert "::warning title=Slicewarden::the comment could not be written" in commented()[1]
