"""`slicewarden prove`: try each way to a GPU on a live cluster, by dry runs, and by pods with --run."""

import secrets
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from webhook.cli import inputs, options, outputs, parser, verifying
from webhook.cli.outputs import Wanted
from webhook.documents import goyaml_writer
from webhook.engine.engine import Engine
from webhook.engine.registration import MADE_FROM, NAME
from webhook.facts.snapshot import Facts
from webhook.model import Object, Problem, Requester, Unusable
from webhook.policy.model import Policy
from webhook.reports import proof_report, proof_rows
from webhook.text.words import listed, several

if TYPE_CHECKING:
    from webhook.cluster.client import Api
    from webhook.proving.calls import ProbeCalls
    from webhook.proving.proof import Tried
    from webhook.proving.running import ProbeRun

STATUS = {
    "0": "every way was tried, and is shut; without --run, every way of a new pod",
    "1": "a way is open",
    "2": "a way could not be tried, and none is open",
}


def _user(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not (value and value.isascii() and value.isprintable()):
        raise click.BadParameter("name a user by printable ASCII characters", context, parameter)
    return value


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        (
            "slicewarden prove --policy policies/",
            "slicewarden prove --as ada@example.com --namespace vision",
            "slicewarden prove --format json --output proof.json --format junit --output proof.xml",
            "slicewarden prove --verify proof.sigstore.json --key cosign.pub",
            "slicewarden prove --run --namespace prove --image registry.example.com/slicewarden:0.1.0 --yes",
            "slicewarden prove --rights --namespace prove > roles.yaml",
        ),
        STATUS,
        environment=parser.KUBECONFIG | parser.LOOK,
    ),
    help="Try each way to a GPU on a live cluster, in each pool and with each level of trust, and report which are "
    "shut, and by which rule. The API server judges the pods as dry runs, so nothing starts and nothing is stored, "
    "unless --run starts the pods that it lets in. It needs the right to create pods in the namespaces that it names, "
    "and to list what `slicewarden facts` lists.",
)
@options.policy()
@options.cluster
@options.namespace("try the ways only in this namespace; default: for each pool, the first whose pods may use it")
@click.option(
    "--as",
    "as_",
    callback=_user,
    metavar="USER",
    help="try the ways as this user, as kubectl's --as does; default: yourself. Rules do not bind everyone alike, so "
    "name a tenant, or a service account: system:serviceaccount:NAMESPACE:NAME",
)
@click.option("--dry-run", is_flag=True, help="only send dry runs, as without --run")
@click.option(
    "--run",
    is_flag=True,
    help="then start the pods that admission let in, one at a time, and report what they saw; also try, by dry runs, "
    "what changes a pod that exists; needs --namespace, and --yes after it has said how many pods these are at most",
)
@click.option("--yes", is_flag=True, help="with --run: start the pods; without it, only say how many")
@click.option("--image", metavar="IMAGE", help="with --run: the image of the pods; default: slicewarden:0.1.0")
@click.option(
    "--seconds",
    type=parser.Number(10, 600),
    help="with --run: how long a pod may run, with the pull of its image; default: 120",
)
@click.option(
    "--priority-class",
    metavar="NAME",
    help="with --run: the PriorityClass of the pods, such as one that never preempts; default: the cluster's",
)
@click.option(
    "--memory",
    is_flag=True,
    help="with --run: where a pool has caps of memory, a second honest pod takes its slice of the card and 256 MiB "
    "more, and gives them back at once; meanwhile the neighbours on the card have that much less",
)
@click.option("--rights", is_flag=True, help="write the Roles that --run needs as YAML, and do nothing else")
@options.report(proof_report.FORMATS, fail_on=())
@verifying.verifiable
def command(
    policy: str | None,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    as_: str | None,
    dry_run: bool,
    run: bool,
    yes: bool,
    image: str | None,
    seconds: int | None,
    priority_class: str | None,
    memory: bool,
    rights: bool,
    wanted: Sequence[Wanted],
) -> int:
    """Plan the probes by the policy and the facts, send them, and write the outcomes."""
    if run and dry_run:
        raise click.UsageError("--run starts pods, and --dry-run none: give one of them")
    if (run or rights) and namespace is None:
        raise click.UsageError(f"--{'run' if run else 'rights'} needs --namespace: all pods are in that one")
    if not run and (yes or memory or image is not None or seconds is not None or priority_class is not None):
        raise click.UsageError("--yes, --image, --seconds, --priority-class and --memory need --run")
    from webhook.cluster import client, listing  # 30 MiB, which only a live cluster needs
    from webhook.proving import calls, capacity, evidence, probes, proof, running
    from webhook.telemetry import release

    inputs.note_sample(policy)
    engine = inputs.engine(policy)
    if rights:
        _write_rights(engine.policy, str(namespace))
        return 0
    api = listing.connect(kubeconfig, context)
    try:
        version = client.ask(api, "/version")
    except (client.StatusError, client.Unreachable) as error:
        raise Unusable((Problem("cluster", 0, str(error)),)) from error
    registered = _registered(api)
    installed = _installed(registered, engine.policy)
    objects, unknown = listing.facts(api, [engine.policy], namespace, holders=False)
    if unknown:
        raise Unusable(unknown)
    now = datetime.now(UTC)
    facts = replace(Facts.of(objects), today=now.date())
    sender = listing.connect(kubeconfig, context) if as_ else api
    if as_:
        sender.default_headers["Impersonate-User"] = as_
    user = _requester(sender)
    outputs.say(_unbound(user, engine.policy))
    tried: list[proof.Tried] = []
    untried: list[probes.Untried] = []
    for target in probes.targets(engine, facts, namespace):
        if isinstance(target, probes.Untried):
            untried.append(target)
        else:
            ask = partial(calls.created, sender, dry=True)
            tried.append(proof.prove(engine.policy, target, ask, (rule.id for rule in engine.rules)))
    if run:
        own = running.ProbeRun(
            secrets.token_hex(4),
            str(namespace),
            image or running.RELEASED,
            seconds or running.SECONDS,
            priority_class=priority_class or "",
            memory=max((capacity.most(engine.policy, each.target, facts) for each in tried), default=0)
            if memory
            else 0,
        )
        outputs.say(_bound(tried, own, yes=yes))
        if memory and not own.memory:
            outputs.say(["note: no node is known whose pods have a cap of memory, so none is measured"])
        if not yes:
            return options.UNUSABLE
        tried = _started(calls.ProbeCalls(api, sender), engine, own, tried)
    kubernetes = str(version.get("gitVersion", ""))
    result = proof.ProofRun(
        engine.policy,
        installed,
        kubernetes,
        now,
        tuple(tried),
        tuple(untried),
        evidence.registration(registered or ()),
        evidence.nodes(engine.policy, facts),
        evidence.software(calls.software(api, engine.policy)),
        release.known(),
        ran=run,
        cluster=calls.cluster(api),
        user=user.username if isinstance(user, Requester) else "",
        image=(image or running.RELEASED) if run else "",
    )
    outputs.write(wanted, lambda name, look: proof_report.render(name, result, look))
    return verifying.status(proof_rows.rows(result))


def _registered(api: "Api") -> list[Object] | None:
    """Return the webhook configurations; None, with a note, if they cannot be read."""
    from webhook.cluster import registered

    try:
        return registered.configurations(api, NAME)
    except Unusable as error:
        outputs.say([f"note: the policy cannot be compared with the installed one: {error}"])
        return None


def _installed(found: list[Object] | None, policy: Policy) -> str:
    """Return the digest of the policy that the registration was made from, with a note if it has none.

    Raises Unusable if it is another policy's: the probes of one prove nothing about another, such as of its pools.
    """
    if found is None:
        return ""
    digests = {str((each["metadata"].get("annotations") or {}).get(MADE_FROM, "")) for each in found} - {""}
    if others := sorted(digests - {policy.digest}):
        why = f"policy {listed(others, 2)} is installed, not {policy.name} {policy.digest}; name the installed one"
        raise Unusable((Problem("cluster", 0, why),))
    if not digests:
        outputs.say(["note: the cluster has no registration of a policy"])
    return min(digests, default="")


def _requester(api: "Api") -> Requester | str:
    """Return who sends the probes; or why that is not known."""
    from webhook.cluster import client

    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = client.ask(api, "/apis/authentication.k8s.io/v1/selfsubjectreviews", method="POST", body=review)
    except (client.StatusError, client.Unreachable) as error:
        return str(error)
    info = (answer.get("status") or {}).get("userInfo") or {}
    return Requester(str(info.get("username", "")), frozenset(map(str, info.get("groups") or ())))


def _unbound(user: Requester | str, policy: Policy) -> Iterable[str]:
    """Yield a note if the rules do not bind whoever sends the probes as they bind a tenant."""
    if isinstance(user, str):
        yield f"note: the API server does not say who sends the probes: {user}"
    elif policy.administrators.include(user) or policy.schedulers.include(user):
        yield (
            f"note: the policy lists {user.username} as an administrator or a scheduler, who may do more than a "
            "tenant; name a tenant with --as"
        )


def _write_rights(policy: Policy, namespace: str) -> None:
    from webhook.proving import rights

    for role in rights.roles(rights.rights(policy, namespace)):
        outputs.show("---\n" + goyaml_writer.write(role))


def _bound(tried: Sequence["Tried"], run: "ProbeRun", *, yes: bool) -> Iterator[str]:
    """Say how many pods a run starts at most, for how long, and what they take."""
    from webhook.proving import running

    most = several(running.most(tried, 2 if run.memory else 1), "pod")
    bound = f"--run starts at most {most} of {run.image} in namespace {run.namespace}, one after another"
    held = several(running.most_held(tried), "pod")
    yield f"--run creates at most {held} that never start, and sends changes of them as dry runs"
    if run.memory:
        yield f"with --memory, some take at most {run.memory} MiB and a context of their card, and give it back"
    yield f"{bound}, each for at most {run.seconds} s{'' if yes else '; give --yes to start them'}"


def _started(api: "ProbeCalls", engine: Engine, run: "ProbeRun", tried: Sequence["Tried"]) -> list["Tried"]:
    """Start the pods that admission let in. Raises Unusable."""
    from webhook.proving import runner

    try:
        with _ended_as_by_ctrl_c(), runner.opened(api, run) as own:
            started = runner.ProbeRunner(api, engine.policy, own, (rule.id for rule in engine.rules))
            return [started.run(each) for each in tried]
    except (runner.RunInProgress, runner.CallFailed) as error:
        raise Unusable((Problem("cluster", 0, str(error)),)) from error


@contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a block as Ctrl-C does. One that is ignored stays so, as nohup wants it."""
    ending = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    for each in ending:
        signal.signal(each, signal.default_int_handler)
    try:
        yield
    finally:
        for each in ending:
            signal.signal(each, signal.SIG_DFL)
