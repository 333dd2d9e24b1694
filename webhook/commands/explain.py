"""`slicewarden explain`: say how memory caps come about."""

from argparse import ArgumentParser, Namespace

from webhook import inputs, manual, outputs
from webhook import options as common
from webhook.facts import Facts
from webhook.memory import explain, page
from webhook.model import Problem, Unusable
from webhook.spelling import hint


def options(parser: ArgumentParser) -> None:
    """Add the topics and the options of each."""
    parser.description = "Say how memory caps come about: the sums for every pool, and what each framework can be told."
    parser.epilog = manual.epilog(
        ("slicewarden explain caps --facts cluster.yaml --pool shared", "slicewarden explain frameworks"), manual.PLAIN
    )
    topics = parser.add_subparsers(title="topics", required=True, metavar="TOPIC")
    topic = topics.add_parser(
        "caps",
        help="the budget of every card: reserve, context, cap",
        description="Write the budget of every card in each shared pool, in MiB: what is kept back for the driver, "
        "what a process takes beside its framework's allocator, and the cap that is left.",
        epilog=manual.epilog(("slicewarden explain caps --facts cluster.yaml --pool shared",), manual.PLAIN),
    )
    common.policy(topic)
    common.facts(topic)
    topic.add_argument("--pool", metavar="NAME", help="of one pool alone")
    topic.set_defaults(topic=_caps)
    topic = topics.add_parser(
        "frameworks",
        help="what each framework knows of caps, in Markdown",
        description="Write which variables each framework knows, since when, and where that is known from.",
        epilog=manual.epilog(("slicewarden explain frameworks",), manual.PLAIN, files={}, environment={}),
    )
    topic.set_defaults(topic=_frameworks)


def run(chosen: Namespace) -> int:
    """Explain the topic."""
    outputs.show(chosen.topic(chosen))
    return 0


def _caps(chosen: Namespace) -> str:
    inputs.tell_of_sample(chosen.policy)
    policy = inputs.load_policy(chosen.policy)
    facts = Facts.of(item.value for item in inputs.load_facts(chosen.facts or ()))
    pools = [pool for pool in policy.pools if chosen.pool in (None, pool.name)]
    if not pools:
        known = [pool.name for pool in policy.pools]
        raise Unusable((Problem(chosen.pool, 0, f"no such pool{hint(chosen.pool, known)}"),))
    return explain.caps(policy, facts, pools)


def _frameworks(_: Namespace) -> str:
    return page.text()
