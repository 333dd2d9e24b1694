"""The shape of the code: its layers, one home for each third-party package, and rules that are pure."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests import ROOT, SUITES
from tests.support.layers import LAYERS
from webhook.memory import frameworks
from webhook.memory.frameworks import Framework

AGENT = (("observe",), ("actions",), ("limits", "turns", "recorder"), ("metrics",), ("agent",))
"""The parts of webhook/agent/, lowest layer first. A module imports from its own part and from layers below."""

HOMES = {
    "aiohttp": {"webhook.http.connection", "webhook.http.port"},
    "cel_expr_python": {"webhook.placing.scheduling.selectors"},
    "click": {"webhook.cli"},
    "flask": {"webhook.serving.app", "webhook.ui.server"},
    "jinja2": {"webhook.reports.formats.html", "webhook.starter.text"},
    "kubernetes": {"webhook.cluster.client", "webhook.cluster.watch"},
    "markupsafe": {"webhook.reports.formats.html"},  # Jinja's own foundation, for text that is HTML already
    "werkzeug": {"webhook.serving.app", "webhook.ui.server"},  # Flask's own foundation: its errors, and a server
    "uvloop": {"webhook.http.meter", "webhook.serving.worker"},
    "prometheus_client": {
        "webhook.agent.metrics",
        "webhook.controller.health",
        "webhook.telemetry.metrics",
        "webhook.usage.series",
    },
    "pynvml": {"webhook.agent.observe.nvml"},
    "msgspec": {"webhook.cluster.decoding"},
    "orjson": {"webhook.api.admission", "webhook.cluster.decoding", "webhook.telemetry.log"},
    "urllib3": {  # the Kubernetes client's own foundation, for its errors, timeouts and connections
        "webhook.cluster.client",
        "webhook.cluster.responses",
    },
    "yaml": {
        "webhook.documents.goyaml",
        "webhook.documents.goyaml_composer",
        "webhook.documents.goyaml_quick",
        "webhook.documents.goyaml_writer",
        "webhook.documents.merged_values",
        "webhook.documents.yaml_versions",
    },
    "jsonschema": {"webhook.policy.schemas"},
    "cryptography": {"certs.issue", "certs.read", "webhook.serving.tls"},
    "certs": {
        "webhook.cli.commands.certs",
        "webhook.cli.demo",
        "webhook.cluster.cert_store",
        "webhook.controller.certificates",
        "webhook.doctor.doctor",
    },
}
"""The modules and packages where a third-party package may be imported; certs imports itself anywhere."""

OUTSIDE = {
    "builtins",
    "ctypes",
    "datetime",
    "functools",
    "gc",
    "http",
    "importlib",
    "inspect",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "pickle",
    "random",
    "re",
    "secrets",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "urllib",
    "uuid",
    "webhook.documents.files",
}
"""What would let a rule remember, wait, guess, or look beyond its arguments; and `re`, for tenants' text."""

FORBIDDEN_CALLS = {
    "__import__",
    "breakpoint",
    "compile",
    "delattr",
    "eval",
    "exec",
    "globals",
    "input",
    "locals",
    "open",
    "print",
    "setattr",
    "vars",
}


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class _Trees(Mapping[str, ast.Module]):
    """The syntax trees of modules by their names, each read when it is first asked for."""

    def __init__(self, files: Iterable[Path]) -> None:
        self.files = {name_of(file): file for file in files}
        self._trees: dict[str, ast.Module] = {}

    def __getitem__(self, name: str) -> ast.Module:
        if name not in self._trees:
            self._trees[name] = ast.parse(self.files[name].read_text("utf-8"))
        return self._trees[name]

    def __contains__(self, name: object) -> bool:
        return name in self.files

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


MODULES = _Trees(file for package in ("webhook", "certs") for file in sorted((ROOT / package).rglob("*.py")))
RULES = sorted(name for name in MODULES if name.startswith("webhook.rules."))

each_rule = pytest.mark.parametrize("rule", RULES)


@cache
def imported(tree: ast.Module) -> frozenset[str]:
    """The modules that a module imports anywhere in it, ours by their full names."""
    return frozenset(_imported(tree))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                assert level == 0, "imports are absolute"
                for full in (f"{module}.{each.name}" for each in names):
                    yield full if full in MODULES else str(module)


def layer(module: str) -> int:
    """How high a module's package stands; -1 for webhook itself. ValueError when LAYERS does not name the package."""
    _, _, name = module.partition(".")
    package = name.partition(".")[0]
    if not package:
        return -1
    for height, packages in enumerate(LAYERS):
        if package in packages:
            return height
    raise ValueError(f"{module} stands in no layer: add its package to LAYERS")


# Layers


def test_every_package_has_a_layer() -> None:
    packages = {name.split(".")[1] for name in MODULES if name.startswith("webhook.")}
    assert packages == {package for packages in LAYERS for package in packages}


def test_the_readme_lists_the_folders_of_the_tree() -> None:
    tree = (ROOT / "README.md").read_text("utf-8").partition("## The tree\n\n```\n")[2].partition("\n```")[0]
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    there = {path.partition("/")[0] for path in tracked.splitlines() if "/" in path and not path.startswith(".")}
    assert {line.partition("/")[0] for line in tree.splitlines()} == there


def test_nothing_imports_upwards() -> None:
    assert {module: wrong for module in MODULES if (wrong := upwards(module))} == {}


def upwards(module: str) -> set[str]:
    """The modules of webhook that a module imports from its own layer or above; certs is below all of them."""
    ours = {name for name in imported(MODULES[module]) if name.partition(".")[0] == "webhook"}
    if module.startswith("certs"):
        return ours
    own = module.split(".")[:2]
    return {name for name in ours if name.split(".")[:2] != own and layer(name) >= layer(module)}


def part_of_agent(module: str) -> str | None:
    """The part of webhook/agent/ that a module belongs to; None for a module of another package."""
    names = module.split(".")
    return names[2] if names[:2] == ["webhook", "agent"] and len(names) > 2 else None


def test_every_part_of_the_agent_has_a_layer() -> None:
    parts = {part for module in MODULES if (part := part_of_agent(module)) is not None}
    assert parts == {part for layer in AGENT for part in layer}


@pytest.mark.parametrize("module", [name for name in MODULES if part_of_agent(name)])
def test_nothing_in_the_agent_imports_upwards(module: str) -> None:
    heights = {part: height for height, layer in enumerate(AGENT) for part in layer}
    own = part_of_agent(module)
    assert own is not None
    others = {part for name in imported(MODULES[module]) if (part := part_of_agent(name)) not in (None, own)}
    assert not {part for part in others if heights[str(part)] >= heights[own]}


def test_no_modules_import_each_other_in_a_circle() -> None:
    waiting = {module: imported(tree) & MODULES.keys() - {module} for module, tree in MODULES.items()}
    while free := [module for module, needs in waiting.items() if not needs & waiting.keys()]:
        for module in free:
            del waiting[module]
    assert not waiting


@pytest.mark.parametrize("word", ["manager", "handler", "processor", "utils", "helpers", "common", "misc"])
def test_no_module_is_called_utils_or_helpers(word: str) -> None:
    assert not [name for name in MODULES if word in name.rpartition(".")[2]]


def test_no_two_classes_have_one_name() -> None:
    homes: dict[str, list[str]] = {}
    for module, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and module.startswith("webhook."):
                homes.setdefault(node.name, []).append(module)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


ONE_FILE_EACH = {"webhook.rules", "webhook.cli.commands"}
"""Packages that are a family: one file for each member, which reads by itself. They grow with what there is to do."""


def test_no_package_is_too_large_to_survey() -> None:
    """At most 3,500 lines that are not blank. A member of a family has at most 450."""
    lines: Counter[str] = Counter()
    for module, file in MODULES.files.items():
        family = next((name for name in ONE_FILE_EACH if module.startswith(f"{name}.")), None)
        written = sum(bool(line.strip()) for line in file.read_text("utf-8").splitlines())
        lines[module if family else ".".join(module.split(".")[:2])] += written
    assert {name: count for name, count in lines.items() if count > 3_500} == {}
    assert {name: count for name, count in lines.items() if name.count(".") > 1 and count > 450} == {}


# Homes


def test_packages_are_imported_at_home() -> None:
    assert {module: wrong for module in MODULES if (wrong := abroad(module))} == {}


def abroad(module: str) -> set[str]:
    """The packages that a module imports without being their home."""
    tops = {name.partition(".")[0] for name in imported(MODULES[module])}
    foreign = tops - sys.stdlib_module_names - {module.partition(".")[0], "_typeshed"}
    return {top for top in foreign if not any(_within(module, home) for home in HOMES.get(top, ()))}


def _within(module: str, home: str) -> bool:
    return module == home or module.startswith(f"{home}.")


def test_every_listed_home_of_a_dependency_uses_it() -> None:
    lived_in = {(name.partition(".")[0], module) for module, tree in MODULES.items() for name in imported(tree)}
    for top, homes in HOMES.items():
        for home in homes:
            assert any(name == top and _within(module, home) for name, module in lived_in), (top, home)


# Frameworks

FRAMEWORKS = "webhook.memory.frameworks."
IN_PODS = ("webhook.memory.shim.sitecustomize", "webhook.proving.probe")
"""Files that run in pods by themselves, and so can import no table."""


@pytest.mark.parametrize("framework", frameworks.walk(), ids=lambda framework: framework.name)
def test_only_its_own_file_names_a_framework_and_its_variables(framework: Framework) -> None:
    variables = {variable.name for variable in framework.variables} | {defeat.name for defeat in framework.defeats}
    for module in MODULES:
        if module in (f"{FRAMEWORKS}{framework.name}", *IN_PODS):
            continue
        assert not texts(module) & variables, module
        assert not (module.startswith("webhook.memory") and framework.name in texts(module)), module


@cache
def texts(module: str) -> frozenset[str]:
    """The texts in a module, without docstrings."""
    nodes = [*ast.walk(MODULES[module])]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    constants = (node for node in nodes if isinstance(node, ast.Constant) and id(node) not in docstrings)
    return frozenset(constant.value for constant in constants if isinstance(constant.value, str))


# Rules


def impurities(tree: ast.Module) -> Iterator[str]:
    """Whatever in a rule could make it more than a function of its arguments."""
    yield from (f"imports {name}" for name in imported(tree) if {name, name.partition(".")[0]} & OUTSIDE)
    for statement in tree.body:
        if not _harmless(statement):
            yield f"line {statement.lineno}: {type(statement).__name__} at the top"
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
                yield f"line {node.lineno}: calls {name}"
            case ast.Global() | ast.Nonlocal():
                yield f"line {node.lineno}: {', '.join(node.names)} from outside the function"
            case ast.FunctionDef(decorator_list=[_, *_]):
                yield f"line {node.lineno}: {node.name} is decorated"
            case ast.Attribute(ctx=ast.Store() | ast.Del()):
                yield f"line {node.lineno}: sets the attribute {node.attr}"
            case ast.arguments(defaults=defaults, kw_defaults=more):
                if not all(each is None or _frozen(each) for each in (*defaults, *more)):
                    yield "a default argument that can change"


def _harmless(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.FunctionDef():
            return True
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            return _frozen(value)
    return False


def _frozen(value: ast.expr) -> bool:
    """Tell whether an expression makes a value that nothing can change."""
    match value:
        case ast.Constant() | ast.Name() | ast.Attribute():
            return True
        case ast.Tuple(elts=elements):
            return all(map(_frozen, elements))
        case ast.Subscript(value=ast.Name(), slice=slice_):  # the name of a type
            return _frozen(slice_)
        case ast.BinOp(left=left, right=right):
            return _frozen(left) and _frozen(right)
        case ast.UnaryOp(operand=operand):
            return _frozen(operand)
        case ast.Call(func=ast.Name(id="frozenset")):
            return True
    return False


@each_rule
def test_rule_is_pure(rule: str) -> None:
    assert not list(impurities(MODULES[rule]))


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "import os.path",
        "from urllib.parse import quote",
        "from webhook.documents import files",
        "def f():\n    import time",
        "def f():\n    print('x')",
        "def f():\n    return eval('1')",
        "seen = []",
        "seen: dict[str, int] = {}",
        "seen = (1, [])",
        "seen = dict()",
        "count = 0\ndef f():\n    global count\n    count += 1",
        "def f(seen=[]):\n    pass",
        "@cached\ndef f():\n    pass",
        "def f(pod):\n    pod.spec = {}",
        "class Seen:\n    names = []",
        "for x in (): pass",
    ],
)
def test_impurity_is_found(source: str) -> None:
    assert list(impurities(ast.parse(source)))


# Caches

MEMOIZERS = {"cache", "lru_cache"}
WRITERS = {"add", "append", "extend", "insert", "setdefault", "update"}
KEPT = {"Cap", "Facts", "Policy", "Pool"}
"""What a cache may have for its keys: made of the policy and the cluster, never of the object under review."""

REVIEWING = sorted(
    name
    for name in MODULES
    if name.startswith(tuple(f"webhook.{part}" for part in ("deviceplugin", "gpu", "memory", "review", "rules")))
)


def caches(tree: ast.Module) -> Iterator[str]:
    """Whatever a module keeps of one review until the next; a review keeps it in its cached properties."""
    assigned = [statement for statement in tree.body if isinstance(statement, ast.Assign | ast.AnnAssign)]
    names = (name for statement in assigned for name in ast.walk(statement) if isinstance(name, ast.Name))
    top = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    within = {id(inner) for node in ast.walk(tree) if _memoized(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(args=ast.arguments(args=args)) if _memoized(node):
                keys = {ast.unparse(each.annotation) if each.annotation else each.arg for each in args}
                yield from (f"line {node.lineno}: {node.name} is cached by {key}" for key in sorted(keys - KEPT))
            case ast.Call(func=func) if _memoizes(func) and id(node) not in within:
                yield f"line {node.lineno}: a cache that goes with no snapshot"
            case ast.Global():
                yield f"line {node.lineno}: {', '.join(node.names)} from outside the function"
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()) if name in top:
                yield f"line {node.lineno}: writes into {name}"
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if name in top and attr in WRITERS:
                yield f"line {node.lineno}: writes into {name}"


def _memoized(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any(map(_memoizes, node.decorator_list))


def _memoizes(node: ast.expr) -> bool:
    """Tell whether an expression is `functools.cache` or `lru_cache`, with or without its size."""
    match node:
        case ast.Call(func=func):
            return _memoizes(func)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in MEMOIZERS
    return False


def test_nothing_of_an_object_outlives_its_review() -> None:
    assert {module: found for module in REVIEWING if (found := [*caches(MODULES[module])])} == {}


@pytest.mark.parametrize(
    "source",
    [
        "@lru_cache(maxsize=1)\ndef place(pod: Pod, policy: Policy): pass",
        "@functools.lru_cache\ndef held(text: str): pass",
        "@cache\ndef f(facts): pass",
        "class C:\n    @lru_cache(maxsize=8)\n    def f(self, policy: Policy): pass",
        "place = lru_cache(maxsize=1)(find)",
        "def f(pod: Pod): return lru_cache(find)(pod)",
        "last = {}\ndef f(pod: Pod):\n    last[0] = pod",
        "last = []\ndef f(pod: Pod):\n    last.append(pod)",
        "last = None\ndef f(pod: Pod):\n    global last\n    last = pod",
    ],
)
def test_a_cache_is_found(source: str) -> None:
    assert list(caches(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "@cache\ndef walk(): pass",
        "@lru_cache(maxsize=2)\ndef f(policy: Policy, facts: Facts): return lru_cache(maxsize=8)(partial(g, facts))",
        "class C:\n    @cached_property\n    def requests(self): pass",
        "def f(pod: Pod):\n    seen = {}\n    seen[0] = pod",
    ],
)
def test_a_cache_that_lives_with_a_snapshot_or_a_review_is_allowed(source: str) -> None:
    assert not list(caches(ast.parse(source)))


CONTAINERS = {"Counter", "OrderedDict", "Queue", "defaultdict", "deque", "dict", "list", "set"}
OF_REVIEWS = {"webhook.cluster.events": {"EventNote", "Owner"}, "webhook.cluster.rights": {"Account"}}
"""Parts of an object that are kept after its review; tests/cluster tries them with long texts."""
OF_THE_CLUSTER = {
    "webhook.cluster.cert_store": {"str"},
    "webhook.cluster.listing": {"str"},
    "webhook.cluster.watch": {"Resource"},
    "webhook.facts.rights": {"str"},
}
"""Keys that are configured, or names of objects that an API server has, and so has bounded."""


def kept(tree: ast.Module) -> set[str]:
    """The types of the keys by which the objects of a module keep something in a container."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(
                target=ast.Attribute(value=ast.Name(id="self")),
                annotation=ast.Subscript(value=ast.Name(id=name), slice=key),
            ) if name in CONTAINERS:
                found.add(ast.unparse(key.elts[0] if isinstance(key, ast.Tuple) else key))
    return found


def test_what_outlives_a_review_to_ask_the_cluster_is_known() -> None:
    """A new container fails here until it is named above. Its keys must have a bounded length."""
    outside = {name for name in MODULES if name.startswith(("webhook.cluster.", "webhook.facts."))}
    assert {name: found for name in outside if (found := kept(MODULES[name]))} == OF_REVIEWS | OF_THE_CLUSTER


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("self._known: OrderedDict[Account, Answer] = OrderedDict()", "Account"),
        ("self._again: Queue[Account] = Queue(16)", "Account"),
        ("self.seen: set[str] = set()", "str"),
        ("known: dict[str, str] = {}", None),
        ("self._until: float = 0", None),
    ],
)
def test_a_container_that_is_kept_is_found(source: str, key: str | None) -> None:
    assert kept(ast.parse(source)) == ({key} if key else set())


TESTS = sorted((ROOT / "tests").glob("*/*.py"))


def imports_of_tests(tree: ast.Module) -> list[str]:
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return [name for node in nodes for alias in node.names if ".test_" in (name := f"{node.module}.{alias.name}")]


def test_no_test_is_imported() -> None:
    for file in TESTS:
        assert imports_of_tests(ast.parse(file.read_text("utf-8"))) == [], file


@pytest.mark.parametrize("source", ["from tests.rules import test_rules", "from tests.rules.test_rules import KINDS"])
def test_an_imported_test_is_found(source: str) -> None:
    assert imports_of_tests(ast.parse(source))


PACKAGES = {file.parent.name for file in (ROOT / "webhook").glob("*/__init__.py")}


def test_a_folder_of_tests_is_a_package_or_a_suite() -> None:
    folders = {file.parent.name for file in TESTS if file.name.startswith("test_")}
    assert folders <= PACKAGES | SUITES | {"certs", "fuzz", "tree"}
    assert not PACKAGES & SUITES


@each_rule
def test_rule_says_the_way_out(rule: str) -> None:
    page = ast.get_docstring(MODULES[rule])
    assert page
    assert page.split("\n\n")[-1].startswith("Way out:")


@each_rule
def test_rule_has_one_check(rule: str) -> None:
    (check,) = [n for n in MODULES[rule].body if isinstance(n, ast.FunctionDef) and n.name == "check"]
    names = [(each.arg, ast.unparse(each.annotation or ast.Constant(None))) for each in check.args.args]
    ((name, review),) = names
    assert name == "review"
    assert review.startswith(("PodReview", "ConfigMapReview", "Review["))
    assert ast.unparse(check.returns or ast.Constant(None)) == "Iterator[Finding]"
    assert ast.get_docstring(check)
    assert any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(check))
