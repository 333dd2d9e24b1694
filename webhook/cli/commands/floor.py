"""`slicewarden floor`: print what the API server can hold of a policy by itself."""

import click

from webhook import rules
from webhook.cli import inputs, options, outputs, parser
from webhook.documents import goyaml_writer
from webhook.floor import policies
from webhook.text.words import shown

FORMS = ("vap", "static")


@click.command(
    cls=parser.Command,
    page=parser.Page(
        (
            "slicewarden floor --policy policies/ > floor.yaml",
            "slicewarden floor --policy policies/ --actions Audit | kubectl apply -f -",
            "slicewarden floor --policy policies/ --as static > /etc/kubernetes/admission/policies/slicewarden.yaml",
        ),
        parser.SHOWN,
        environment={},
    ),
    help="Print ValidatingAdmissionPolicies and their bindings, by which the API server holds what it can of a policy "
    "while the webhook is away, or when its registration is gone. They never deny what the webhook allows. "
    "`slicewarden rules RULE` says what they hold of a rule. Print them again for each policy and release. They need "
    "Kubernetes 1.35; the static form needs 1.37.",
)
@options.policy()
@click.option(
    "--as",
    "form",
    type=parser.Choice(FORMS),
    default="vap",
    help="vap: objects of the API; static: files that the API server reads from a folder, which nobody deletes by the "
    "API",
)
@click.option(
    "--actions",
    type=parser.Choice([each.value for each in policies.Answer]),
    default=policies.Answer.DENY.value,
    help="what comes of a request that a rule denies; each is written to the audit log too",
)
def command(policy: str | None, form: str, actions: str) -> None:
    """Print the floor."""
    inputs.note_sample(policy)
    loaded = inputs.load_policy(policy)
    made = policies.floor(loaded, rules.walk(), policies.Answer(actions))
    if form == "static":
        made = policies.static(made, loaded)
    outputs.show(
        f"# Made from policy {shown(loaded.name, quotes=False)} by `slicewarden floor`. Make it again with each policy "
        "and\n# with each release.\n"
    )
    for each in made:
        outputs.show("---\n" + goyaml_writer.write(each))
