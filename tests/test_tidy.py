"""Rules that a machine can keep: layers, public docstrings, size of functions, structure, retired words."""

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from pathlib import Path

import pytest

import holdfast
from tests.structure import COMPLEXITY_MAX, LINES_MAX, Structure, complex_functions, long_functions

SRC = Path(holdfast.__file__).parent
ROOT = SRC.parent.parent
LAYERS = [
    "cli",
    "web",
    "rpc",
    "importers",
    "amqp",
    "broker",
    "spark",
    "remote",
    "store",
    "queue",
    "table",
    "state",
    "log",
    "schemas",
    "testing",
    "base",
]
"""From the top down: a layer may import itself and the layers below it. `store`: top level, `backup`, `replica`."""
SOURCES = sorted(SRC.rglob("*.py"))
MODULES = ["holdfast", *(module.name for module in pkgutil.walk_packages([str(SRC)], "holdfast."))]


def layer_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS else "store"


def module_of(path: Path) -> str:
    return ".".join(("holdfast", *path.relative_to(SRC).with_suffix("").parts)).removesuffix(".__init__")


def imports_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "holdfast"}


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_imports_only_go_down_the_layers(path: Path) -> None:
    module = module_of(path)
    here = LAYERS.index(layer_of(module))
    for name in imports_of(path):
        if module in ("holdfast", "holdfast.__main__"):  # the list of public names; the start of the command line
            continue
        assert LAYERS.index(layer_of(name)) >= here, f"{module} imports {name}, which is above it"


def test_every_layer_is_known() -> None:
    folders = {path.name for path in SRC.iterdir() if path.is_dir() and not path.name.startswith("__")}
    assert folders <= {*LAYERS, "backup", "replica"}


@pytest.mark.parametrize("name", MODULES)
def test_every_name_in_all_exists_and_every_public_name_has_a_docstring(name: str) -> None:
    if name == "holdfast.__main__":
        return
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    first = module.__doc__.strip().splitlines()[0]
    assert first.endswith((".", ":")) and "?" not in first, f"the first line of {name} is not a statement"
    for public in getattr(module, "__all__", ()):
        assert hasattr(module, public), f"{name}.__all__ names {public}, which is not there"
        explained(f"{name}.{public}", getattr(module, public))


def explained(where: str, thing: object) -> None:
    if inspect.isfunction(thing):
        assert thing.__doc__, f"{where} has no docstring"
    elif inspect.isclass(thing) and thing.__module__.startswith("holdfast"):
        assert "__doc__" in vars(thing) and thing.__doc__, f"{where} has no docstring"
        for name, member in vars(thing).items():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if not name.startswith("_") and inspect.isfunction(function):
                documented = any(
                    name in vars(base) and getattr(vars(base)[name], "__doc__", None) for base in thing.__mro__
                )
                assert documented or implements_a_protocol(thing), f"{where}.{name} has no docstring"


def implements_a_protocol(thing: type) -> bool:
    """Their methods are explained where the protocol is."""
    return thing.__module__ == "holdfast.base.files" and thing.__name__.startswith("System")


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_every_module_says_what_it_exports(path: Path) -> None:
    text = path.read_text()
    if path.name not in ("__main__.py", "__init__.py"):
        assert "__all__" in text


def test_the_core_needs_neither_spark_nor_a_server() -> None:
    """`pip install holdfast` stays light: the layers below the servers import only what it installs."""
    allowed = {"holdfast", "fastcrc", "msgspec", "lz4", "backports", "compression", "rocksdict"}
    for path in SOURCES:
        if layer_of(module_of(path)) in ("cli", "web", "rpc", "importers", "amqp", "spark"):
            continue
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            for name in names:
                root = name.split(".")[0]
                assert root in allowed or root in sys.stdlib_module_names, f"{path.name} imports {name}"


@pytest.mark.xdist_group("tidy")
def test_groups_of_tests_stay_together_where_tests_are_distributed(request: pytest.FixtureRequest) -> None:
    """Some need a machine, a JVM or a disk to themselves: a pytest that xdist does not suit scatters them unseen."""
    if hasattr(request.config, "workerinput") and request.config.getoption("loadgroup"):
        assert request.node.nodeid.endswith("@tidy")


PRIVATE_IN_TESTS = 29
"""How many private names of the package tests may use, in the helper module `internals` of each package of tests."""
FOREIGN = {"_consumer", "_transport"}
"""Attributes of pika and Celery that tests use. Modules of the package have some of the same names."""


def test_functions_fit_on_a_screen() -> None:
    assert long_functions(SRC) == {}, f"functions of more than {LINES_MAX} lines"


def test_functions_are_not_too_complex() -> None:
    assert complex_functions(SRC) == {}, f"functions with a complexity above {COMPLEXITY_MAX}"


def test_modules_know_nothing_private_of_each_other() -> None:
    structure = Structure(SRC)
    assert structure.inheritance() == [], "a class takes code from a class of another module"
    assert structure.private_through_self() == 0
    assert structure.private_names() == [], "a module uses private names of another one"


def test_tests_use_few_private_names_of_the_package_and_in_one_module_each() -> None:
    found = {
        module: sorted(names - FOREIGN)
        for module, uses in Structure(SRC).private_names_in(ROOT / "tests").items()
        if (names := {name for _, name in uses}) - FOREIGN
    }
    outside = {module: names for module, names in found.items() if not module.endswith(".internals")}
    assert outside == {}, "use public names, or a function of `internals` of that package of tests"
    assert sum(map(len, found.values())) <= PRIVATE_IN_TESTS, found


def test_private_names_of_other_modules_are_found(tmp_path: Path) -> None:
    package, tests = tmp_path / "holdfast", tmp_path / "tests"
    for folder in (package, tests):
        folder.mkdir()
    (package / "log.py").write_text("class Log:\n    def __init__(self) -> None:\n        self._end = 0\n")
    (package / "queue.py").write_text("from re import _cache\n\n\ndef end(log):\n    return log._end + log.end\n")
    (tests / "test_log.py").write_text("def test(log, patch):\n    patch.setattr(log, '_end', 1)\n    log._other = 2\n")
    (tests / "test_own.py").write_text("class A:\n    _end = 1\n\n\nassert A()._end\n")
    structure = Structure(package)
    assert structure.private_names() == ["holdfast.queue: log._end"]
    assert structure.private_names_in(tests) == {"tests.test_log": [("patch.setattr(log, '_end', 1)", "_end")]}


RETIRED = {
    "house": r"houses?",
    "room": r"rooms?",
    "door": r"doors?",
    "story": r"stor(?:y|ies)",
    "wish": r"wish(?:es|ed)?",
    "told": r"(?:un)?told",
    "standing": r"standing|stands?(?! for\b)|stood",
    "mailbox": r"mailbox(?:es)?",
    "flight": r"flights?",
    "anew": r"anew",
    "whoever": r"whoever",
    "beside": r"beside",
    "for ever": r"for ever",
    "in life": r"in life",
    "but for": r"but for",
    "put right": r"puts? right",
    "let in": r"lets? in",
    "hand out": r"hand(?:s|ed|ing)? out",
    "give up": r"g(?:ives?|ave|iven|iving) up",
    "led to": r"led to",
    "by itself": r"by (?:itself|themselves)",
    "on its way": r"on (?:its|their) way",
    "under way": r"under way",
    "in vain": r"in vain",
}
"""Words of an earlier style, with what they were replaced by in the field's words; they may not come back."""
QUOTED = {"docs/tables-parity.md"}
"""Files that quote others."""


def retired_words(text: str) -> dict[str, int]:
    """Return how often each retired word occurs, also as a part of an identifier."""
    found = {
        word: len(re.findall(rf"(?<![A-Za-z])(?:{pattern})(?![A-Za-z])", text, re.IGNORECASE))
        for word, pattern in RETIRED.items()
    }
    return {word: count for word, count in found.items() if count}


def texts() -> list[Path]:
    """Return every file whose words people read: source with help and messages, page, docs."""
    kinds = ("*.py", "*.js", "*.html", "*.j2", "*.css", "*.capnp")
    found = [path for kind in kinds for path in SRC.rglob(kind)]
    return [*found, *(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "mkdocs.yml"]


@pytest.mark.parametrize("path", texts(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_retired_words_do_not_come_back(path: Path) -> None:
    if path.relative_to(ROOT).as_posix() not in QUOTED:
        assert not retired_words(path.read_text())
