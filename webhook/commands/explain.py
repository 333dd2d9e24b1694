"""`slicewarden explain`: say how memory caps come about."""

from argparse import ArgumentParser, Namespace

from webhook import explain, inputs, outputs
from webhook import options as common
from webhook.facts import Facts
from webhook.model import Problem, Unusable


def options(parser: ArgumentParser) -> None:
    """Add the topics and the options of each."""
    topics = parser.add_subparsers(title="topics", required=True, metavar="TOPIC")
    topic = topics.add_parser("caps", help="the budget of every card: reserve, context, cap")
    common.policy(topic)
    common.facts(topic)
    topic.add_argument("--pool", metavar="NAME", help="of one pool alone")
    topic.set_defaults(topic=_caps)
    topic = topics.add_parser("frameworks", help="what each framework knows of caps, in Markdown")
    topic.set_defaults(topic=_frameworks)


def run(chosen: Namespace) -> int:
    """Explain the topic."""
    outputs.show(chosen.topic(chosen))
    return 0


def _caps(chosen: Namespace) -> str:
    policy = inputs.load_policy(chosen.policy)
    facts = Facts.of(item.value for item in (inputs.load_facts(chosen.facts) if chosen.facts else ()))
    pools = [pool for pool in policy.pools if chosen.pool in (None, pool.name)]
    if not pools:
        known = ", ".join(pool.name for pool in policy.pools)
        raise Unusable((Problem(chosen.pool, 0, f"no such pool; known are {known}"),))
    return explain.caps(policy, facts, pools)


def _frameworks(_: Namespace) -> str:
    return explain.frameworks()
