"""The command `slicewarden`."""

import argparse
import base64
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webhook import check, explain, files, guard, policy_file, reports, rules
from webhook.engine import Engine
from webhook.facts import KINDS, Facts, Source, group_kind
from webhook.model import Problem, Unusable
from webhook.policy import Policy

if TYPE_CHECKING:
    from webhook import serve

    _Group = argparse._MutuallyExclusiveGroup

DENIED, UNUSABLE, INTERNAL = 1, 2, 3
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 1 denied, 2 unusable input or usage, 3 internal error."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["certs"]:  # a command of its own, which knows nothing of policies
        from certs.__main__ import main as certs

        return certs(arguments[1:])
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except Unusable as error:
        print(error, file=sys.stderr)
        return UNUSABLE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has gone; so has the reason to write more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNUSABLE
    except Exception as error:  # the last place to turn a fault into an exit status
        traceback.print_exception(error.__cause__ or error)
        print(f"slicewarden: internal error: {error}", file=sys.stderr)
        return INTERNAL


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slicewarden",
        description="Admission control for shared GPUs on Kubernetes.",
        epilog="Exit status: 0 nothing denied, 1 something denied, 2 unusable input or usage, 3 internal error.",
    )
    parser.add_argument("--version", action="version", version=f"slicewarden {version('slicewarden')}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    command = commands.add_parser("check", help="judge manifests as the webhook would", epilog=parser.epilog)
    command.add_argument(
        "paths",
        nargs="*",
        default=["."],
        metavar="PATH",
        help="files and folders, - for standard input; default: this folder",
    )
    _policy_options(command)
    command.add_argument("--format", choices=sorted(reports.FORMATS), default="table", help="default: table")
    command.add_argument("--output", metavar="FILE", help="write the report there, not to standard output")
    command.add_argument("--explain", action="store_true", help="say of each pod its pool, its nodes and its cap")
    command.set_defaults(run=_check)

    command = commands.add_parser("serve", help="run the admission webhook")
    facts = _policy_options(command, facts_needed=True)
    facts.add_argument("--live", action="store_true", help="watch the cluster for facts")
    command.add_argument(
        "--kubeconfig", metavar="FILE", help="for --live; default: the pod's service account, else kubectl's"
    )
    command.add_argument("--context", metavar="NAME", help="of the kubeconfig")
    command.add_argument(
        "--listen", type=_address, default="0.0.0.0:8443", metavar="HOST:PORT", help="default: 0.0.0.0:8443"
    )
    command.add_argument("--tls-cert", type=Path, required=True, metavar="FILE", help="serving certificate, PEM")
    command.add_argument("--tls-key", type=Path, required=True, metavar="FILE", help="its key, PEM")
    command.add_argument("--client-ca", type=Path, metavar="FILE", help="only callers with a certificate of this CA")
    command.add_argument(
        "--health-listen",
        type=_address,
        metavar="HOST:PORT",
        help="health over plain HTTP, on a port of its own",
    )
    command.add_argument("--workers", type=_workers, default=2, metavar="N", help="processes; default: 2")
    command.set_defaults(run=_serve)

    command = commands.add_parser("demo", help="a tour: the real webhook on loopback, and a sample cluster")
    command.set_defaults(run=_demo)

    command = commands.add_parser("explain", help="say how memory caps come about")
    topics = command.add_subparsers(title="topics", required=True, metavar="TOPIC")
    topic = topics.add_parser("caps", help="the budget of every card: reserve, context, cap")
    _policy_options(topic)
    topic.add_argument("--pool", metavar="NAME", help="of one pool alone")
    topic.set_defaults(run=_explain_caps)
    topic = topics.add_parser("frameworks", help="what each framework knows of caps, in Markdown")
    topic.set_defaults(run=_explain_frameworks)

    command = commands.add_parser("rules", help="list the rules, or show the page of one")
    command.add_argument("rule", nargs="?", metavar="RULE", help="its id")
    command.set_defaults(run=_rules)

    command = commands.add_parser("schema", help="print the JSON Schema of a policy, for editors")
    command.set_defaults(run=_schema)

    command = commands.add_parser("registration", help="print the webhook configurations that a policy needs")
    _policy_option(command)
    command.add_argument(
        "--ca-bundle",
        type=_base64,
        metavar="BASE64",
        help="print only the caBundle of every webhook, for kubectl patch",
    )
    command.add_argument("--half", choices=("mutating", "validating"), help="print only this configuration")
    command.set_defaults(run=_registration)

    commands.add_parser("certs", help="issue a certificate authority and serving certificates")
    return parser


def _policy_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--policy", metavar="PATH", help="file or folder; default: ./policies if it is there, else the sample"
    )


def _policy_options(command: argparse.ArgumentParser, *, facts_needed: bool = False) -> "_Group":
    _policy_option(command)
    facts = command.add_mutually_exclusive_group(required=facts_needed)
    facts.add_argument(
        "--facts", metavar="PATH", help="namespaces, nodes and so on, as kubectl get -o yaml prints them"
    )
    return facts


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - no host means all of them


def _base64(text: str) -> str:
    try:
        if base64.b64decode(text, validate=True):
            return text
    except ValueError:
        pass
    raise argparse.ArgumentTypeError("must be what `slicewarden certs bundle` prints")


def _workers(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 64):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 64")
    return int(text)


def _check(options: argparse.Namespace) -> int:
    engine = Engine(load_policy(options.policy), rules.walk())
    documents, unreadable = files.load(options.paths)
    items, unusable = files.items(documents)
    known = load_facts(options.facts) if options.facts else []
    facts = replace(Facts.of(item.value for item in (*known, *items)), today=datetime.now(UTC).date())
    if caution := guard.unguarded(engine.policy, facts):
        print(f"warning: {caution}", file=sys.stderr)
    report = check.check(items, engine, facts, explained=options.explain)
    problems = sorted((*unreadable, *unusable, *report.problems), key=lambda p: (p.file, p.line))
    report = check.Report(report.judged, tuple(problems))
    text = reports.FORMATS[options.format](report)
    if options.output:
        _write(options.output, text)
    else:
        _print(text)
    if report.problems:
        return UNUSABLE
    return DENIED if report.count(allowed=False) else 0


def _print(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unusable((Problem("standard output", 0, error.strerror or str(error)),)) from error


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text, "utf-8")
    except OSError as error:
        raise Unusable((Problem(file, 0, error.strerror or str(error)),)) from error


def load_policy(path: str | None) -> Policy:
    """Read the policy from a file or folder; from ./policies or the sample in the package when None is given."""
    if path is None:
        sample = resources.files("webhook").joinpath("sample", "policy.yaml")
        path = "policies" if Path("policies").is_dir() else str(sample)
    documents, problems = files.load([path])
    if problems:
        raise Unusable(tuple(problems))
    return policy_file.load(documents, [rule.id for rule in rules.walk()], path)


def load_facts(path: str) -> list[files.Item]:
    """Read the objects that facts are made of from a file or folder."""
    documents, unreadable = files.load([path])
    items, unusable = files.items(documents)
    if unreadable or unusable:
        raise Unusable((*unreadable, *unusable))
    known = [item for item in items if group_kind(item.value) in KINDS]
    if not known:
        raise Unusable((Problem(path, 0, "no facts in it: no Namespace, Node or ClusterPolicy"),))
    return known


def load_engine(policy_path: str | None, facts_path: str) -> tuple[Engine, Facts]:
    """Read all that a worker of the webhook needs."""
    engine = Engine(load_policy(policy_path), rules.walk())
    return engine, Facts.of(item.value for item in load_facts(facts_path))


def _serve(options: argparse.Namespace) -> int:
    from webhook import serve

    # What cannot be used is found before anything listens.
    load_policy(options.policy)
    if options.facts:
        load_facts(options.facts)
    load = _live(options) if options.live else partial(_fixed, options.policy, options.facts)
    listen = serve.Listen(
        host=options.listen[0],
        port=options.listen[1],
        certificate=options.tls_cert,
        key=options.tls_key,
        client_ca=options.client_ca,
        workers=options.workers,
        health=options.health_listen,
    )
    try:
        serve.serve(listen, load)
    except OSError as error:
        raise Unusable((Problem(str(error.filename), 0, error.strerror or str(error)),)) from error
    return 0


def _fixed(policy_path: str | None, facts_path: str) -> tuple[Engine, Source]:
    from webhook import server

    engine, facts = load_engine(policy_path, facts_path)
    return engine, cautious(engine.policy, lambda: facts, server.log_line)


def cautious(policy: Policy, source: Source, log: Callable[[Mapping[str, Any]], None]) -> Source:
    """A source that, with the first facts it has, logs where nothing keeps plain pods from GPUs."""
    told = False

    def facts() -> Facts | None:
        nonlocal told
        found = source()
        if found is not None and not told:
            told = True
            if caution := guard.unguarded(policy, found):
                log({"message": "unguarded", "caution": caution})
        return found

    return facts


def _live(options: argparse.Namespace) -> "serve.Load":
    from webhook import cluster

    try:
        cluster.connect(options.kubeconfig, options.context)
    except cluster.Unreachable as error:
        raise Unusable((Problem(options.kubeconfig or "kubeconfig", 0, str(error)),)) from error
    return partial(_watching, options.policy, options.kubeconfig, options.context)


def _watching(policy_path: str | None, kubeconfig: str | None, context: str | None) -> tuple[Engine, Source]:
    from webhook import cluster, server

    engine = Engine(load_policy(policy_path), rules.walk())
    connection = cluster.connect(kubeconfig, context)
    watched = cluster.Cluster(connection, server.log_line, cluster.namespaces(engine.policy))
    watched.start()
    return engine, cautious(engine.policy, watched.facts, server.log_line)


def _demo(_: argparse.Namespace) -> int:
    from webhook import demo

    return demo.run()


def _explain_caps(options: argparse.Namespace) -> int:
    policy = load_policy(options.policy)
    facts = Facts.of(item.value for item in (load_facts(options.facts) if options.facts else ()))
    pools = [pool for pool in policy.pools if options.pool in (None, pool.name)]
    if not pools:
        known = ", ".join(pool.name for pool in policy.pools)
        raise Unusable((Problem(options.pool, 0, f"no such pool; known are {known}"),))
    _print(explain.caps(policy, facts, pools))
    return 0


def _explain_frameworks(_: argparse.Namespace) -> int:
    _print(explain.frameworks())
    return 0


def _rules(options: argparse.Namespace) -> int:
    known = {rule.id: rule for rule in rules.walk()}
    if options.rule is None:
        width = max(map(len, known))
        for rule in known.values():
            print(f"{rule.id:<{width}}  {rule.page.partition(chr(10))[0]}")
        return 0
    if options.rule not in known:
        raise Unusable((Problem(options.rule, 0, f"no such rule; known are {', '.join(known)}"),))
    print(f"{options.rule}\n\n{known[options.rule].page}")
    return 0


def _registration(options: argparse.Namespace) -> int:
    from webhook import dialect, registration

    policy, bundle = load_policy(options.policy), options.ca_bundle
    made = registration.bundles(policy, bundle) if bundle else registration.configurations(policy)
    for half, configuration in zip(("mutating", "validating"), made, strict=True):
        if options.half in (None, half):
            print("---\n" + dialect.write(configuration), end="")
    return 0


def _schema(_: argparse.Namespace) -> int:
    print(json.dumps(policy_file.schema(rule.id for rule in rules.walk()), indent=2))
    return 0
