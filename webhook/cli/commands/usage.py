"""`slicewarden usage`: report who held and used the shared cards, and for how long."""

from collections.abc import Sequence

import click

from webhook.cli import counters, outputs, parser, usages
from webhook.cli.counters import UsageSource
from webhook.reports import usage_report


def _page(report: usage_report.UsageSums) -> str:
    from webhook.reports import usage_page  # brings Jinja, which only the page needs

    return usage_page.write(report)


FORMS = {
    "table": usage_report.table,
    "json": usage_report.write,
    "csv": usage_report.comma_separated,
    "html": _page,
}

WITH_HOURS = ("json", "html")
"""The forms that have the hours."""

_MORE = (
    "The agents count on each node (slicewarden agent --usage). They are asked through the API server, which needs the "
    "right to `list` pods and to `get` pods/proxy in the namespace slicewarden-node, and to `list` nodes. The rows "
    "(free) and (not seen) hold the rest: with them, the card-hours are those of all cards. Slices of containers whose "
    "card is not known are in their own row, and in (not seen) too. What was not seen is never estimated. With "
    "--prometheus, the counters are read that Prometheus has scraped from the agents; neither the cluster nor a right "
    "there is needed."
)


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        (
            "slicewarden usage --by namespace --since 7d --price NVIDIA-A10=1.20",
            "slicewarden usage --by workload --since 24h --format csv",
            "slicewarden usage --from usage.sqlite",
            "slicewarden usage --since 30d --prometheus https://prometheus.example.com --prometheus-config client.yaml",
        ),
        usages.STATUS,
        more=_MORE,
        environment=parser.KUBECONFIG,
        files={},
    ),
    help="Show who held slices of the shared GPUs and used them: slice-hours, card-hours, working and idle hours, and "
    "memory next to the cap.",
)
@click.option(
    "--by",
    type=parser.WordChoice(tuple(usage_report.GROUPS)),
    default="namespace",
    help="what a row is; default: namespace",
)
@click.option(
    "--since",
    type=usages.TimeSpan(),
    default="24h",
    metavar="TIME",
    help="how far to go back, in whole hours: 24h or 7d; default: 24h; at most 35d",
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="[PRODUCT=]PRICE",
    help="price of a whole card for an hour, of one product as nvidia.com/gpu.product names it, or of all; repeatable",
)
@click.option(
    "--format",
    "-o",
    "form",
    type=parser.WordChoice(tuple(FORMS)),
    default="table",
    help="table (for people), json, csv or html (a page for a browser)",
)
@usages.sources()
@counters.source
def command(
    by: str,
    since: int,
    prices: Sequence[str],
    namespace: str | None,
    form: str,
    source: UsageSource,
) -> int:
    """Read the usage, add it up, and write it."""
    known = _prices(prices)
    nodes, unseen = counters.read(source, -(-since // 3600), namespace or "", hourly=form in WITH_HOURS)
    report = usage_report.sums(nodes, unseen, by, known, namespace or "")
    outputs.show(FORMS[form](report))
    outputs.say([*report.notes, *usages.unseen_lines(unseen)])
    return int(bool(unseen))


def _prices(given: Sequence[str]) -> dict[str, float]:
    """Read `--price`. Raises click.UsageError."""
    found: dict[str, float] = {}
    for each in given:
        product, _, text = each.rpartition("=")
        if product in found:
            raise click.UsageError(f"--price: {product or 'the price of all'} is given twice")
        try:
            price = float(text)
        except ValueError:
            price = -1.0
        if not 0 <= price < 1e9:
            raise click.UsageError(f"--price: {each!r} is no price; write one such as 1.20 or NVIDIA-A10=1.20")
        found[product] = price
    return found
