"""`slicewarden fallback`: print the part of a policy that the API server can enforce by itself."""

import re
from collections.abc import Sequence

import click

from webhook import rules
from webhook.cli import checks, inputs, options, outputs, parser
from webhook.documents import goyaml_writer
from webhook.facts.snapshot import Facts
from webhook.fallback import mutations, policies
from webhook.fallback.answers import ValidationActions
from webhook.fallback.comparison import options_of
from webhook.fallback.params import Params
from webhook.text.words import one_line, shown

FORMS = ("vap", "static")


class _Params(click.ParamType[Params]):
    """The type of an option that names a ConfigMap: NAME in the webhook's namespace, or `NAMESPACE/NAME`."""

    name = "params"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Params:
        if not re.fullmatch(rf"({parser.DNS_LABEL}/)?{parser.DNS_LABEL}(\.{parser.DNS_LABEL})*", value):
            self.fail("must be the name of a ConfigMap, or its namespace, a slash and its name", param, ctx)
        return Params.of(value)


PARAMS = _Params()


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        (
            "slicewarden fallback --policy policies/ > fallback.yaml",
            "slicewarden fallback --policy policies/ --actions ByRule --live | kubectl apply -f -",
            "slicewarden fallback --policy policies/ --mutate --facts cluster.json > fallback.yaml",
            "slicewarden fallback --policy policies/ --params fallback > fallback.yaml",
            "slicewarden fallback --policy policies/ --check fallback.yaml",
            "slicewarden fallback --policy policies/ --check --live",
            "slicewarden fallback --policy policies/ --as static > /etc/kubernetes/admission/policies/slicewarden.yaml",
        ),
        {**parser.SHOWN, "1": "with --check: the fallback is not the one that the policy needs"},
        environment=parser.KUBECONFIG,
    ),
    help="Print ValidatingAdmissionPolicies and their bindings, with which the API server itself enforces part of a "
    "policy while the webhook is down, or after its registration was deleted. They never deny what the webhook "
    "allows. `slicewarden rules RULE` says how much of a rule they enforce. Print them again for each policy and "
    "release. They need Kubernetes 1.35; with --live the API server says whether it accepts them. The static form "
    "needs 1.37.",
)
@checks.shared(
    "ask the cluster; with --check: compare its fallback; without: ask its API server by dry runs whether it accepts "
    "all objects, and print nothing if it does not"
)
@options.policy()
@click.option(
    "--as",
    "form",
    type=parser.WordChoice(FORMS),
    default="vap",
    help="vap: objects of the API; static: files that the API server reads from a folder, which the API cannot "
    "delete; default: vap",
)
@click.option(
    "--actions",
    type=parser.WordChoice([each.value for each in ValidationActions]),
    help="the effect on a request that a rule denies; it is always written to the audit log too; ByRule: Audit for "
    "rules that can wait for the webhook, and Deny for the others; default: Deny. --check compares them if they are "
    "given, and otherwise names the ones that it found",
)
@click.option(
    "--mutate",
    is_flag=True,
    help="experimental: also print a MutatingAdmissionPolicy, with which the API server steers, guards and caps pods "
    "as far as it can, so that a small cluster needs no webhook; comments say what is missing then; needs Kubernetes "
    "1.36. --check "
    "compares it if it is there, and with --mutate it has to be; if --facts has nodes, its caps have to fit their "
    "cards",
)
@click.option(
    "--params",
    type=PARAMS,
    metavar="[NAMESPACE/]NAME",
    help="have the API server read grants by namespace and maxRequest from this ConfigMap, which is printed too; a "
    "change of them changes only it. Without the ConfigMap every pod is refused outside the namespaces of leaveAlone",
)
@options.facts()
@options.cluster
def command(
    file: str | None,
    policy: str | None,
    form: str,
    actions: str | None,
    check: bool,
    live: bool,
    mutate: bool,
    params: Params | None,
    facts: Sequence[str],
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """Print the fallback, or compare the installed one with it."""
    if check or file is not None:
        checks.given(file, check=check, live=live)
    static = form == "static"
    if static and live:
        files = "no API shows the static form; compare the file of each control plane node"
        raise click.UsageError(f"{files}: slicewarden fallback --as static --check FILE")
    if params and (static or mutate):
        raise click.UsageError(f"--params cannot be used with {'--as static' if static else '--mutate'}; leave it out")
    if mutate and static:
        raise click.UsageError("--mutate cannot be used with --as static; leave it out")
    options.only_live(live=live, kubeconfig=kubeconfig, context=context)
    inputs.note_sample(policy)
    loaded = inputs.load_policy(policy)
    answer = ValidationActions(actions) if actions else None
    known = Facts.of(item.value for item in inputs.load_facts(facts))
    if check:
        part = checks.Fallback(loaded, answer, params, static, mutate, known)
        return checks.run(part, file, policy, inputs.Target(kubeconfig, context, None))
    made = policies.fallback(loaded, rules.walk(), answer or ValidationActions.DENY, params)
    if static:
        made = policies.static(made, loaded)
    mutating = mutations.mutating(loaded, rules.walk(), known) if mutate else []
    if live:
        checks.accepted([*made, *mutating], inputs.Target(kubeconfig, context, None))
    given = options_of(answer or ValidationActions.DENY, params, static=static) + (" --mutate" if mutate else "")
    outputs.show(
        f"# Made from policy {shown(loaded.name, quotes=False)} by `slicewarden fallback{given}`.\n"
        "# Make it again with each policy and with each release.\n"
    )
    if mutate:
        missing = mutations.unwritten(loaded, rules.walk(), mutations.cappings(loaded, known))
        outputs.show(
            "# Without the webhook this is missing:\n" + "".join(f"# - {one_line(each)}\n" for each in missing)
        )
    for each in (*made, *mutating):
        outputs.show("---\n" + goyaml_writer.write(each))
    return 0
