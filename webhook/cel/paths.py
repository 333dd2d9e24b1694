"""Writes expressions about the paths of mounts. A path is a list of its steps (`steps`) or a text (`joined`)."""

import re
from collections.abc import Iterable

from webhook.api.pods import MESSAGE
from webhook.catalog import host_paths
from webhook.cel.write import all_of, any_of, array, one_of, strings, text
from webhook.policy.model import Policy


def steps(path: str) -> str:
    """Return a path's steps, as host_paths.normal does: without `.`, empty steps, and /var before LINKED names.

    CEL cannot resolve `..`, so the path must have none. The API server refuses such a hostPath.
    """
    return (
        f"[{path}.split('/').filter(s, s != '' && s != '.')]"
        f".map(s, size(s) > 1 && s[0] == 'var' && {one_of('s[1]', host_paths.LINKED)} ? s.slice(1, size(s)) : s)[0]"
    )


def joined(steps_: str) -> str:
    """Return the expression for the path made of some steps.

    The root is `/`, unlike in host_paths.normal, where it is empty.
    """
    return f"('/' + {steps_}.join('/'))"


def within(variable: str, places: Iterable[str]) -> str:
    """Return the CEL expression that is true if a path is one of the places or below one."""
    places = sorted(set(places))
    if not places:
        return "false"
    return f"{array(places)}.exists(place, {variable} == place || {variable}.startsWith(place + '/'))"


BELOW, ABOVE, HARMLESS, READABLE, NESTED, IF_POSSIBLE, ALLOWED, DATA, KEPT = "b", "a", "h", "r", "n", "i", "w", "d", "k"
"""One letter for each property of a path. It is below or above one of HOST_PATHS.

It is harmless always, if read-only, if recursively read-only, or if that where possible. The policy allows it. It is a
folder of data. The node keeps something in, below or above it.
"""


def letters_of(policy: Policy) -> dict[str, str]:
    """Return a letter for each place that the tables and a policy name. The letter states what may be done there."""
    letters: dict[str, str] = {}
    for letter, places in (
        (BELOW, (place for place in host_paths.HOST_PATHS if not place.endswith("*"))),
        (DATA, (place for place in host_paths.DATA_PATHS if not place.endswith("*"))),
        (KEPT, (place for place in host_paths.KEPT_PATHS if not place.endswith("*"))),
        (READABLE, (*host_paths.READ_ONLY_PATHS, *host_paths.MOUNTED_READ_ONLY_PATHS)),
        (NESTED, host_paths.RECURSIVE_READ_ONLY_PATHS),
        (IF_POSSIBLE, host_paths.RECURSIVE_IF_POSSIBLE_PATHS),
        (READABLE, (each.path for each in policy.forms.host_paths if not each.writable)),
        (ALLOWED, (each.path for each in policy.forms.host_paths if each.writable)),
    ):
        for place in places:
            letters[place] = letters.get(place, "") + letter
    return letters


def table(policy: Policy) -> str:
    """Write a CEL map of all places to their letters (`letters_of`)."""
    return strings(dict(sorted(letters_of(policy).items())))


def letters(steps_: str, table_: str, policy: Policy) -> str:
    """Return the expression for the letters of a path, from its steps and the name of the map that `table` writes.

    A pod may have thousands of paths, so each beginning of the path is looked up in a map: the cost does not depend on
    the table's length. Patterns cost most, so they are read only if the table does not decide, and `matches` reads two
    steps of the path.
    """
    depths = [*range(1, max(place.count("/") for place in letters_of(policy)) + 1)]
    above, above_kept, harmless = (
        one_of(joined(steps_), sorted(place or "/" for place in places))
        for places in (host_paths.ABOVE, host_paths.ABOVE_KEPT, host_paths.HARMLESS_PATHS)
    )
    begun = f"({joined(f'{steps_}.slice(0, size({steps_}) < 2 ? size({steps_}) : 2)')} + '/')"
    below, data, kept = (
        f"{begun}.matches({text(beginnings(places))})"
        for places in (host_paths.HOST_PATHS, host_paths.DATA_PATHS, host_paths.KEPT_PATHS)
    )
    named = f"{steps_}.exists(s, {one_of('s', host_paths.RUNTIMES)})"
    runtimes = f"({named} && !{within(joined(steps_), (host_paths.LOGS,))})"
    return (
        f"[{depths}.filter(depth, size({steps_}) >= depth)"
        f".map(depth, {table_}[?{joined(f'{steps_}.slice(0, depth)')}].orValue('')).join('')]"
        f".map(found, found.contains('{BELOW}') ? ({harmless} ? '{HARMLESS}' : found)"
        f" : {above} ? found + '{ABOVE}' : {below} || {runtimes} ? found + '{BELOW}'"
        f" : {above_kept} ? found + '{KEPT}'"
        f" : found + '{READABLE}' + (found.contains('{DATA}') || {data} ? '{DATA}' : '')"
        f" + (found.contains('{KEPT}') || {kept} ? '{KEPT}' : ''))[0]"
    )


def beginnings(places: Iterable[str]) -> str:
    """Return the pattern that matches what begins like one of the places that end in `*`.

    A pattern costs by its length, so each folder is written once.
    """
    names: dict[str, list[str]] = {}
    for place in places:
        if place.endswith("*"):
            folder, _, name = place[:-1].rpartition("/")
            names.setdefault(folder, []).append(_escaped(name))
    return "^(" + "|".join(f"{_escaped(folder)}/({'|'.join(some)})" for folder, some in names.items()) + ")"


def _escaped(plain: str) -> str:
    return re.sub(r"[^\w/-]", lambda found: re.escape(found[0]), plain)


def leads_to_gpu(letters_: str) -> str:
    """Return the CEL expression that is true if writing to a path may reach the GPUs of its node.

    It decides as host_paths.leads_to_gpu does.
    """
    leads = any_of(
        (*(f"{letters_}.contains('{each}')" for each in (BELOW, ABOVE, KEPT)), f"!{letters_}.contains('{DATA}')")
    )
    return all_of((leads, *(f"!{letters_}.contains('{each}')" for each in (HARMLESS, ALLOWED))))


def mounts(container: str, parts: Iterable[str], predicate: str, *, message: bool) -> str:
    """Return the CEL expression that is true if `predicate` is true for a mount or a device of a container.

    The predicate reads the path as `m`. With `message`, the path of the container's termination message is tried too.
    All paths for which the predicate is true contain one of the texts `parts`, so most others are excluded quickly. A
    path with `..` never counts.
    """

    def exists(listed: str, place: str) -> str:
        likely = f"{any_of(f'{place}.contains({text(part)})' for part in parts)} && !{place}.contains('..')"
        return f"{listed}.exists(v, {likely} && [{place}].exists(m, {predicate}))"

    return any_of(
        (
            exists(f"{container}.?volumeMounts.orValue([])", "v.mountPath"),
            exists(f"{container}.?volumeDevices.orValue([])", "v.devicePath"),
            *([exists(f"[{container}.?{MESSAGE}.orValue('')]", "v")] if message else []),
        )
    )
