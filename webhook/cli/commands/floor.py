"""`slicewarden floor`: print what the API server can hold of a policy by itself."""

from collections.abc import Sequence

import click

from webhook import rules
from webhook.cli import inputs, options, outputs, parser
from webhook.documents import goyaml_writer
from webhook.engine.registration import LABELS
from webhook.floor import current, policies
from webhook.model import Problem, Unusable
from webhook.policy.model import Policy
from webhook.text.words import shown

FORMS = ("vap", "static")

STALE = 1
"""The exit status of a check that found differences."""


@click.command(
    cls=parser.Command,
    page=parser.Page(
        (
            "slicewarden floor --policy policies/ > floor.yaml",
            "slicewarden floor --policy policies/ --actions Audit | kubectl apply -f -",
            "slicewarden floor --policy policies/ --check floor.yaml",
            "slicewarden floor --policy policies/ --check --live",
            "slicewarden floor --policy policies/ --as static > /etc/kubernetes/admission/policies/slicewarden.yaml",
        ),
        {**parser.SHOWN, "1": "with --check: the floor is not the one that the policy needs"},
        environment=parser.KUBECONFIG,
    ),
    help="Print ValidatingAdmissionPolicies and their bindings, by which the API server holds what it can of a policy "
    "while the webhook is away, or when its registration is gone. They never deny what the webhook allows. "
    "`slicewarden rules RULE` says what they hold of a rule. Print them again for each policy and release. They need "
    "Kubernetes 1.35; the static form needs 1.37.",
)
@click.argument(
    "file", required=False, type=options.PATH, metavar="[FILE]", help="manifests to compare; - is standard input"
)
@options.policy()
@click.option(
    "--as",
    "form",
    type=parser.Choice(FORMS),
    default="vap",
    help="vap: objects of the API; static: files that the API server reads from a folder, which nobody deletes by the "
    "API; default: vap",
)
@click.option(
    "--actions",
    type=parser.Choice([each.value for each in policies.Answer]),
    help="what comes of a request that a rule denies; each is written to the audit log too; default: Deny. "
    "--check compares them if they are given, and else names those that it found",
)
@click.option("--check", is_flag=True, help="compare FILE, or the cluster with --live, with what the policy needs")
@click.option("--live", is_flag=True, help="with --check: ask the cluster")
@options.cluster
def command(
    file: str | None,
    policy: str | None,
    form: str,
    actions: str | None,
    check: bool,
    live: bool,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """Print the floor, or compare what is there with it."""
    if check and (file is None) is not live:
        raise click.UsageError("--check needs either FILE or --live")
    if not check and (file is not None or live):
        raise click.UsageError("--live and FILE need --check")
    options.only_live(live=live, kubeconfig=kubeconfig, context=context)
    inputs.note_sample(policy)
    loaded = inputs.load_policy(policy)
    answer = policies.Answer(actions) if actions else None
    made = policies.floor(loaded, rules.walk(), answer or policies.Answer.DENY)
    if form == "static":
        made = policies.static(made, loaded)
    if check:
        typed = f" --policy {policy}" if policy else ""
        if form == "static":
            typed += " --as static"
        return _compared(made, loaded, answer, typed, file, inputs.Target(kubeconfig, context, None))
    outputs.show(
        f"# Made from policy {shown(loaded.name, quotes=False)} by `slicewarden floor`. Make it again with each policy "
        "and\n# with each release.\n"
    )
    for each in made:
        outputs.show("---\n" + goyaml_writer.write(each))
    return 0


def _compared(
    made: Sequence[policies.Made],
    policy: Policy,
    answer: policies.Answer | None,
    typed: str,
    file: str | None,
    target: inputs.Target,
) -> int:
    """Compare a floor with what is there. `typed` are the options that the command to make it again has too."""
    if file is None:
        from webhook.cluster import listing, registered  # bring the client, which only a live cluster needs

        label = ",".join(f"{key}={value}" for key, value in LABELS.items())
        found = registered.policies(listing.connect(target.kubeconfig, target.context), label)
    else:
        found = current.ours(item.value for item in inputs.load_objects(file))
        if not found:
            raise Unusable((Problem(file, 0, "no ValidatingAdmissionPolicy of Slicewarden in it"),))
    where = file or "the cluster"
    differing = current.differences(made, found, actions=answer is not None)
    answers = current.answers(found)
    if not differing:
        actions = f", actions: {' and '.join(answers)}" if answers else ""
        outputs.show(f"{where}: the floor is current, made from policy {policy.digest}{actions}\n")
        return 0
    outputs.show("".join(f"{where}: {line}\n" for line in differing))
    wanted = answer or next(iter(answers), policies.Answer.DENY)
    if wanted is not policies.Answer.DENY:
        typed += f" --actions {wanted}"
    write = f"slicewarden floor{typed} > "
    way = f"{write}floor.yaml, and apply it" if file in (None, "-") else f"{write}{file}"
    outputs.say([f"the floor is stale; run: {way}"])
    return STALE
