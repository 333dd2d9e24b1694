"""The shape of the code: its layers, one home for each third-party package, and rules that are pure."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from webhook.memory import frameworks
from webhook.memory.frameworks import Framework
from webhook.targets import Subject

ROOT = Path(__file__).parents[1]

LAYERS = (
    ("model", "terminal", "tables", "spelling", "log", "serving.limits", "serving.messages", "serving.turns"),
    ("quantity", "duration", "scalars", "serving", "serving.tls", "serving.wsgi", "selectors", "allowance"),
    ("patch", "workloads", "doors", "progress", "bucket"),
    ("plugin",),
    ("dialect", "fitting"),
    ("documents", "facts", "fields"),
    ("pods",),
    ("targets", "policy", "review", "files"),
    ("policy_file", "ratchet", "linted"),
    ("gpus", "openings"),
    ("placement", "sharing", "guard", "memory", "memory.budget", "memory.tables"),
    ("plugin_config", "registration", "memory.steps"),
    ("memory.frameworks.*",),
    ("memory.frameworks",),
    ("memory.environment", "memory.command_line", "memory.annotation"),
    ("memory.plan", "memory.page"),
    ("memory.explain",),
    ("rules.*", "lints.*"),
    ("rules",),
    ("engine",),
    ("check", "policy_test", "revisions"),
    ("batches", "policy_report", "change", "lints", "living", "suites"),
    ("running",),
    ("audit",),
    ("reports.*",),
    ("reports", "change_report", "policy_test_report"),
    ("metrics", "serving.http"),
    ("serving.app", "cluster", "events", "keeper"),
    ("serving.worker", "snapshot"),
    ("publish",),
    ("serving.processes",),
    ("cli.parser", "cli.outputs", "cli.docs", "cli.demo"),
    ("cli.inputs", "cli.options"),
    ("cli.commands.*",),
    ("cli.commands",),
    ("cli.main",),
    ("cli",),
    ("__main__",),
)
"""The modules of webhook/, lowest layer first. A module imports from layers below its own, and from no other."""

HOMES = {
    "aiohttp": {"webhook.serving.http"},
    "click": {"webhook.cli"},
    "flask": {"webhook.serving.app"},
    "kubernetes": {"webhook.cluster", "webhook.events", "webhook.keeper"},
    "werkzeug": {"webhook.serving.app"},  # Flask's own foundation, for the errors it raises
    "uvloop": {"webhook.serving.worker"},
    "prometheus_client": {"webhook.metrics"},
    "orjson": {"webhook.review", "webhook.log"},
    "urllib3": {"webhook.cluster"},  # the Kubernetes client's own foundation, for its errors and timeouts
    "yaml": {"webhook.dialect"},
    "jsonschema": {"webhook.policy_file"},
    "cryptography": {"certs.issue", "certs.read", "webhook.serving.tls"},
    "certs": {"webhook.cli.commands.certs", "webhook.cli.demo", "webhook.keeper"},
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
    "webhook.files",
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


MODULES = {
    name_of(file): ast.parse(file.read_text("utf-8"))
    for package in ("webhook", "certs")
    for file in sorted((ROOT / package).rglob("*.py"))
}
RULES = sorted(name for name in MODULES if name.startswith("webhook.rules."))

each_module = pytest.mark.parametrize("module", MODULES)
each_rule = pytest.mark.parametrize("rule", RULES)


def imported(tree: ast.Module) -> set[str]:
    """The modules that a module imports anywhere in it, ours by their full names."""
    return set(_imported(tree))


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
    """How high a module of webhook/ stands; ValueError when LAYERS does not name it."""
    name = module.removeprefix("webhook").removeprefix(".")
    for height, names in enumerate(LAYERS):
        if name in names or f"{name.rpartition('.')[0]}.*" in names:
            return height
    if name == "":  # the package itself, which anything may import and which is empty
        return -1
    raise ValueError(f"{module} stands in no layer: add it to LAYERS")


# Layers


def test_every_module_has_a_layer() -> None:
    for module in MODULES:
        if module.startswith("webhook"):
            layer(module)


def test_every_layer_has_its_modules() -> None:
    listed = {name for names in LAYERS for name in names if not name.endswith("*")}
    assert not {name for name in listed if f"webhook.{name}" not in MODULES}


@each_module
def test_nothing_imports_upwards(module: str) -> None:
    ours = {name for name in imported(MODULES[module]) if name.partition(".")[0] == "webhook"}
    if module.startswith("certs"):
        assert not ours
    else:
        assert not {name for name in ours if layer(name) >= layer(module)}


# Homes


@each_module
def test_packages_are_imported_at_home(module: str) -> None:
    package = module.partition(".")[0]
    tops = {name.partition(".")[0] for name in imported(MODULES[module])}
    foreign = tops - sys.stdlib_module_names - {package, "_typeshed"}
    if package == "certs":
        assert "webhook" not in foreign
    assert not {top for top in foreign if not any(_within(module, home) for home in HOMES.get(top, ()))}


def _within(module: str, home: str) -> bool:
    return module == home or module.startswith(f"{home}.")


def test_every_home_is_lived_in() -> None:
    lived_in = {(name.partition(".")[0], module) for module, tree in MODULES.items() for name in imported(tree)}
    for top, homes in HOMES.items():
        for home in homes:
            assert any(name == top and _within(module, home) for name, module in lived_in), (top, home)


# Frameworks

FRAMEWORKS = "webhook.memory.frameworks."


@pytest.mark.parametrize("framework", frameworks.walk(), ids=lambda framework: framework.name)
def test_only_its_own_file_names_a_framework_and_its_variables(framework: Framework) -> None:
    variables = {variable.name for variable in framework.variables} | {defeat.name for defeat in framework.defeats}
    for module, tree in MODULES.items():
        if module == f"{FRAMEWORKS}{framework.name}":
            continue
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings)
        texts = {constant.value for constant in constants if isinstance(constant.value, str)}
        assert not texts & variables, module
        assert not (module.startswith("webhook.memory") and framework.name in texts), module


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
        "from webhook import files",
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


@each_rule
def test_rule_says_the_way_out(rule: str) -> None:
    page = ast.get_docstring(MODULES[rule])
    assert page
    assert page.split("\n\n")[-1].startswith("Way out:")


@each_rule
def test_rule_has_one_check(rule: str) -> None:
    (check,) = [n for n in MODULES[rule].body if isinstance(n, ast.FunctionDef) and n.name == "check"]
    names = [(each.arg, ast.unparse(each.annotation or ast.Constant(None))) for each in check.args.args]
    (_, subject), *rest = names
    assert {*subject.split(" | ")} <= {each.__name__ for each in get_args(Subject)}
    assert rest == [("policy", "Policy"), ("facts", "Facts")]
    assert ast.unparse(check.returns or ast.Constant(None)) == "Iterator[Finding]"
    assert ast.get_docstring(check)
    assert any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(check))
