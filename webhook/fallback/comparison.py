"""Compares a fallback with the one that a policy needs, made with the same options."""

from collections.abc import Sequence

from webhook.engine.comparison import Comparison
from webhook.facts.snapshot import Facts
from webhook.fallback import current, mutations, policies
from webhook.fallback.answers import ValidationActions
from webhook.fallback.params import Params
from webhook.model import Object
from webhook.policy.model import Policy
from webhook.rules import Rule


def compare(
    policy: Policy,
    rules: Sequence[Rule],
    found: Sequence[Object],
    answer: ValidationActions | None = None,
    params: Params | None = None,
    *,
    static: bool = False,
    mutate: bool = False,
    audit: bool = False,
    config_map: bool = False,
    facts: Facts | None = None,
) -> Comparison:
    """Compare an installed fallback with the one that a policy needs.

    If `answer` or `config_map` is not given, those with which the fallback was made are used. Without a wanted answer,
    the actions of bindings may be anything, except in a fallback made by rule. In `audit` mode the fallback must only
    record. The ConfigMap is compared if `config_map` says that it was read. Mutations are compared if there are any,
    and are required with `mutate`. Their caps are computed from the cards among the facts.
    """
    wanted_answer = answer or current.answer_of(found)
    files, steers = static or current.of_files(found), current.steers(found)
    read = None if files else params or current.params(found)
    form = policies.fallback(policy, rules, wanted_answer, read)
    form = policies.static(form, policy) if files else form
    made: list[Object] = [*form] if config_map else current.without_params(form)
    made += (
        mutations.mutating(policy, rules, facts or Facts())
        if mutate and not steers
        else mutations.again(policy, rules, facts, found)
    )
    wanted = current.recording(made) if audit else made
    actions = answer is not None or (wanted_answer is ValidationActions.BY_RULE and not current.only_records(found))
    return Comparison(
        "the fallback",
        policy.digest,
        found,
        wanted,
        current.differences(wanted, found, actions=actions),
        "slicewarden fallback",
        options_of(wanted_answer, read, static=files) + (_steering(policy, found) if mutate or steers else ""),
        current.told(found),
        mixed=answer is None and len(current.answers(found)) > 1 and current.made_with(found) is None,
    )


def options_of(answer: ValidationActions, params: Params | None, *, static: bool) -> str:
    """Write the options of `slicewarden fallback` that make a fallback of this form."""
    words = {
        "as": "static" if static else "",
        "actions": "" if answer is ValidationActions.DENY else answer,
        "params": params or "",
    }
    return "".join(f" --{name} {word}" for name, word in words.items() if word)


def _steering(policy: Policy, found: Sequence[Object]) -> str:
    """Write the options that make the mutations again. They need facts unless the caps are those of assumed cards."""
    assumed = {name: capping.card for name, capping in mutations.cappings(policy, Facts()).items()}
    said = [mutations.recorded(item) for item in found if item["kind"] == mutations.POLICY]
    return " --mutate" + ("" if said == [assumed] else " --facts FACTS")
