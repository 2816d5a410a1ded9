"""House rules that a machine can keep: imports go down the rooms, public names are explained."""

import ast
import importlib
import inspect
import pkgutil
import sys
from pathlib import Path

import pytest

import holdfast

SRC = Path(holdfast.__file__).parent
ROOT = SRC.parent.parent
ROOMS = [
    "cli",
    "web",
    "rpc",
    "amqp",
    "broker",
    "spark",
    "store",
    "remote",
    "queue",
    "table",
    "state",
    "log",
    "testing",
    "base",
]
"""From the top down: a room may import itself and what stands below it. `store` is what lies in no room."""
SOURCES = sorted(SRC.rglob("*.py"))
MODULES = ["holdfast", *(module.name for module in pkgutil.walk_packages([str(SRC)], "holdfast."))]


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else "store"


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
def test_imports_only_go_down_the_rooms(path: Path) -> None:
    module = module_of(path)
    here = ROOMS.index(room_of(module))
    for name in imports_of(path):
        if module == "holdfast.__main__":  # the door to the command line
            continue
        assert ROOMS.index(room_of(name)) >= here, f"{module} imports {name}, which is above it"


def test_every_room_is_known() -> None:
    folders = {path.name for path in SRC.iterdir() if path.is_dir() and not path.name.startswith("__")}
    assert folders <= set(ROOMS)


@pytest.mark.parametrize("name", MODULES)
def test_every_name_in_all_exists_and_every_public_name_has_a_docstring(name: str) -> None:
    if name == "holdfast.__main__":
        return
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    assert module.__doc__.strip().splitlines()[0].endswith((".", ":")), f"the first line of {name} is no sentence"
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
    """`pip install holdfast` stays light: the rooms below the doors import only what it installs."""
    allowed = {"holdfast", "fastcrc", "msgspec", "lz4", "backports", "compression", "rocksdict"}
    for path in SOURCES:
        if room_of(module_of(path)) in ("cli", "web", "rpc", "amqp", "spark"):
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
