"""`slicewarden test`: run a policy's tests."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from webhook import rules
from webhook.cli import fleets, inputs, options, outputs, parser
from webhook.cli.outputs import Wanted
from webhook.documents import files as manifests
from webhook.documents.documents import Document
from webhook.engine.engine import Engine
from webhook.model import Problem, Unusable
from webhook.policy import load
from webhook.policytests import policy_tests, suites
from webhook.policytests.policy_tests import SuiteRun
from webhook.reports import suite_report

if TYPE_CHECKING:
    from webhook.reports.fleet import Line

FAILED = 1

SAMPLE = """\
apiVersion: slicewarden.dev/v1alpha1
kind: PolicyTest
metadata:
  name: first
spec:
  policy: ..                  # relative to this file; add facts: [FILE] for pools and trust
  cases:
    - name: a pod with a GPU stays out of the host's process namespace
      object:
        apiVersion: v1
        kind: Pod
        metadata: {name: train, namespace: lab}
        spec:
          hostPID: true
          containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]
      expect:
        verdict: denied
        message: hostPID      # each key that expect may have: slicewarden schema --kind PolicyTest --markdown"""
"""An example test, printed for a folder without tests."""


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        (
            "slicewarden test",
            "slicewarden test policies --run slices",
            "slicewarden test policies --format junit --output junit.xml",
            "slicewarden test policies/tests --policy HEAD:policies",
            "slicewarden test --policy 'policies/{cluster}' --cluster eu-1=clusters/eu-1 --cluster us-2=clusters/us-2",
        ),
        {**parser.SHOWN, "0": "all cases passed", "1": "at least one case failed"},
        files={"./policies": "where tests are searched for if no PATH is given; else in this folder"},
    ),
    help="Run the PolicyTests of a policy. Failures show expected and actual verdicts, with the line of the "
    "expectation.",
)
@click.argument(
    "paths",
    nargs=-1,
    type=options.PATH,
    metavar="[PATH]...",
    help="files and folders with PolicyTests; default: ./policies if it exists, else this folder",
)
@options.policy("test this policy instead of the one that each test names", alone=True)
@fleets.OPTION
@click.option("--run", "named", metavar="NAME", help="run only the cases with this text in their name")
@options.report(suite_report.FORMATS, fail_on=())
@options.WATCH
def command(
    paths: Sequence[str],
    policy: str | None,
    fleet: Sequence[fleets.Member],
    named: str | None,
    wanted: Sequence[Wanted],
    watch: bool,
) -> int:
    """Run the cases and write their results. The exit status is that of the worst one."""
    loaded = cache(inputs.engine)
    if fleet:
        fleets.exclude(wanted, PATH=paths, **{"--watch": watch})
        own = partial(_of_member, loaded=loaded, policy=policy, named=named)
        return fleets.run(fleet, "FleetTestReport", wanted, own)
    paths = paths or ["policies" if Path("policies").is_dir() else "."]
    if watch:
        return options.again(lambda: _watched(paths, policy))
    tests, problems = _tests(paths)
    if not tests and not problems:
        outputs.say(
            [
                f"error: {paths[0]}: no PolicyTest in it; a first one, such as policies/tests/first.yaml:",
                "",
                *SAMPLE.split("\n"),
            ]
        )
        return options.UNUSABLE
    result = _run(tests, problems, loaded, policy, named, paths[0])
    outputs.write(wanted, lambda name, look: suite_report.render(name, result, look))
    return _status(result)


def _of_member(
    member: fleets.Member, loaded: Callable[[str], Engine], policy: str | None, named: str | None
) -> "tuple[Line, int]":
    """Run the tests in the folder of a cluster, under its policy or the one that each test names."""
    from webhook.reports.fleet import Line  # which other runs do not need

    tests, problems = _tests([member.folder])
    if not tests and not problems:
        raise Unusable((Problem(member.folder, 0, "no PolicyTest in it"),))
    result = _run(tests, problems, loaded, member.own(policy), named, member.folder)
    counts = {"failed": result.failed, "passed": len(result.outcomes) - result.failed}
    return Line(member.name, counts, result.problems), _status(result)


def _tests(paths: Sequence[str]) -> tuple[list[Document], list[Problem]]:
    """Read the PolicyTests at some paths, and the problems of the files."""
    documents, problems = manifests.load(paths)
    problems += load.misspellings(documents)
    return [document for document in documents if policy_tests.holds(document)], problems


def _run(
    tests: Sequence[Document],
    problems: Sequence[Problem],
    loaded: Callable[[str], Engine],
    policy: str | None,
    named: str | None,
    place: str,
) -> SuiteRun:
    """Run the cases of tests. Raises Unusable, at the place where they are from, if none has the name."""
    loaders = suites.Loaders(loaded, cache(inputs.load_objects), cache(inputs.load_known))
    result = suites.run(tests, [rule.id for rule in rules.walk()], loaders, problems, policy=policy, named=named)
    if not result.outcomes and not result.problems:
        raise Unusable((Problem(place, 0, f"no case with {named} in its name"),))
    return result


def _status(result: SuiteRun) -> int:
    if result.problems:
        return options.UNUSABLE
    return FAILED if result.failed else 0


def _watched(paths: Sequence[str], policy: str | None) -> Iterator[str]:
    """Yield the files of the tests, and the files that they refer to."""
    yield from inputs.found(paths)
    yield from inputs.policy_files(policy) if policy else ()
    for document in filter(policy_tests.holds, manifests.load(paths)[0]):
        folder, spec = Path(document.file).parent, document.value.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        named = [spec.get("policy"), *(spec.get("facts") or ())]
        for path in (str(folder / name) for name in named if isinstance(name, str)):
            yield from inputs.policy_files(path) if Path(path).is_dir() else [path]
