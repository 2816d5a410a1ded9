"""Counts of the source's structure: inheritance and private names across modules, long and complex functions.

`tests/test_tidy.py` wants all of them to be zero.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["COMPLEXITY_MAX", "LINES_MAX", "Structure", "complex_functions", "long_functions"]

LINES_MAX = 70
COMPLEXITY_MAX = 15

_INTERFACES = {
    "ABC",
    "BaseException",
    "Enum",
    "Exception",
    "InputPartition",
    "IntEnum",
    "NamedTuple",
    "Protocol",
    "StrEnum",
    "TypedDict",
}
"""Bases that make a class an interface, an exception or plain data: others may inherit from it across modules."""

_NAMED_TUPLE = {"_asdict", "_fields", "_make", "_replace"}
"""Methods of `NamedTuple` that are not private."""

Key = tuple[str, str]
"""Module and name of a class."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def module_name(root: Path, path: Path) -> str:
    """Return the dotted name of a module below the folder that holds the package."""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _base_name(base: ast.expr) -> str:
    if isinstance(base, ast.Subscript):
        base = base.value
    return base.id if isinstance(base, ast.Name) else getattr(base, "attr", "")


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@dataclass
class Structure:
    """The classes of a package and what they take from each other."""

    root: Path
    modules: dict[str, ast.Module] = field(init=False)
    classes: dict[Key, ast.ClassDef] = field(init=False)
    _imports: dict[str, dict[str, Key]] = field(init=False)

    def __post_init__(self) -> None:
        self.modules = {
            module_name(self.root.parent, path): ast.parse(path.read_text()) for path in self.root.rglob("*.py")
        }
        self.classes = {
            (module, node.name): node
            for module, tree in self.modules.items()
            for node in tree.body
            if isinstance(node, ast.ClassDef)
        }
        self._imports = {
            module: {
                alias.asname or alias.name: (node.module, alias.name)
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom) and node.module
                for alias in node.names
            }
            for module, tree in self.modules.items()
        }

    def _resolve(self, module: str, base: ast.expr) -> Key | None:
        """Return the class of the package that a base names, through re-exports; None for any other."""
        key: Key | None = (module, _base_name(base))
        for _ in range(6):
            if key is None or key in self.classes:
                return key
            key = self._imports.get(key[0], {}).get(key[1])
        return None

    def _bases(self, key: Key) -> list[Key]:
        return [found for base in self.classes[key].bases if (found := self._resolve(key[0], base)) is not None]

    def _is_interface(self, key: Key) -> bool:
        node = self.classes[key]
        functions = [one for one in node.body if isinstance(one, Function)]
        return (
            not _INTERFACES.isdisjoint(map(_base_name, node.bases))
            or node.name.endswith(("Error", "Exception"))
            or any("abstract" in ast.dump(mark) for one in functions for mark in one.decorator_list)
            or any(self._is_interface(base) for base in self._bases(key))
            or not functions
        )

    def inheritance(self) -> list[tuple[Key, Key]]:
        """Return the classes that inherit code from a class of another module, each with that class."""
        return [
            (key, base)
            for key in self.classes
            for base in self._bases(key)
            if base[0] != key[0] and not self._is_interface(base)
        ]

    def _members(self, key: Key) -> set[str]:
        node = self.classes[key]
        found = {one.name for one in node.body if isinstance(one, Function)}
        for one in ast.walk(node):
            if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store) and _is_self(one.value):
                found.add(one.attr)
            elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                found.add(one.target.id)
        return found

    def _ancestors(self, key: Key) -> Iterator[Key]:
        while True:
            yield key
            bases = self._bases(key)
            if not bases:
                return
            key = bases[0]

    def private_through_self(self) -> int:
        """Count the uses, through `self`, of private members that a class of another module defines."""
        count = 0
        for key, base in self.inheritance():
            node = self.classes[key]
            inherited = set().union(*(self._members(one) for one in self._ancestors(base)))
            inherited -= {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
            count += sum(
                isinstance(one, ast.Attribute)
                and _is_self(one.value)
                and _is_private(one.attr)
                and one.attr in inherited
                for one in ast.walk(node)
            )
        return count

    def private_names(self) -> list[str]:
        """Return the uses of private names that only another module of the package defines.

        What no module defines belongs to another library.
        """
        defined = {module: _private_definitions(tree) for module, tree in self.modules.items()}
        ours = set().union(*defined.values())
        return [
            f"{module}: {use}"
            for module, tree in self.modules.items()
            for use, name in _private_uses(tree)
            if name in ours - defined[module]
        ]

    def private_names_in(self, tests: Path) -> dict[str, list[tuple[str, str]]]:
        """Return the uses of private names of the package in each module of tests, as text and with the name.

        A name that the file defines, too, or a file of tests from which it imports, is taken for that one.
        """
        trees = {module_name(tests.parent, path): ast.parse(path.read_text()) for path in tests.rglob("*.py")}
        ours = set().union(*map(_private_definitions, self.modules.values()))
        found = {}
        for module, tree in trees.items():
            imported = {one.module or "" for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)}
            theirs = (_private_definitions(trees[name]) for name in {module, *imported} & trees.keys())
            found[module] = [one for one in _private_uses(tree) if one[1] in ours.difference(*theirs)]
        return {module: uses for module, uses in found.items() if uses}


def _private_definitions(tree: ast.AST) -> set[str]:
    """Return the private names of functions, classes, variables and attributes of `self` that a module defines."""
    found = set()
    for one in ast.walk(tree):
        if isinstance(one, Function | ast.ClassDef):
            found.add(one.name)
        elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            found.add(one.id)
        elif isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store) and _is_self(one.value):
            found.add(one.attr)
    return set(filter(_is_private, found))


def _private_uses(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield uses of private names, each as text with the name: of other objects than `self`, imported, or patched."""
    foreign = _imported_from_elsewhere(tree)
    for one in ast.walk(tree):
        if isinstance(one, ast.Attribute) and not {"self", "cls", *foreign}.intersection([_root(one)]):
            names = [one.attr]
        elif isinstance(one, ast.ImportFrom) and _is_ours(one.module):
            names = [alias.name for alias in one.names]
        elif isinstance(one, ast.Call) and ast.unparse(one.func).endswith("attr"):  # getattr, monkeypatch.setattr ...
            names = [name for text in _texts(one.args) for name in text.split(".")]
        else:
            continue
        yield from ((ast.unparse(one), name) for name in names if _is_private(name) and name not in _NAMED_TUPLE)


def _imported_from_elsewhere(tree: ast.AST) -> set[str]:
    """Return the names that a module imports from other libraries."""
    found = set()
    for one in ast.walk(tree):
        if isinstance(one, ast.Import) or (isinstance(one, ast.ImportFrom) and not _is_ours(one.module)):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in one.names}
    return found - {"holdfast", "tests"}


def _is_ours(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] in ("holdfast", "tests")


def _root(node: ast.Attribute) -> str:
    """Return the name before the first dot; empty if there is another expression."""
    value = node.value
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else ""


def _texts(arguments: list[ast.expr]) -> list[str]:
    return [one.value for one in arguments if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def long_functions(root: Path) -> dict[str, int]:
    """Return the functions of more than `LINES_MAX` lines, by module and name, with their lines."""
    found = {}
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, Function) and node.end_lineno is not None:
                lines = node.end_lineno - node.lineno + 1
                if lines > LINES_MAX:
                    found[f"{module_name(root.parent, path)}.{node.name}"] = lines
    return found


def complex_functions(root: Path) -> dict[str, int]:
    """Return the functions with a cyclomatic complexity above `COMPLEXITY_MAX`, as ruff counts it."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "C901", "--output-format", "json"]
    limit = ["--config", f"lint.mccabe.max-complexity={COMPLEXITY_MAX}"]
    done = subprocess.run([*command, *limit, str(root)], capture_output=True, text=True, timeout=120, check=False)
    found: dict[str, int] = {}
    for one in json.loads(done.stdout):
        name, _, rest = one["message"].partition("` is too complex (")
        where = f"{module_name(root.parent, Path(one['filename']))}.{name.removeprefix('`')}"
        found[where] = max(found.get(where, 0), int(rest.split(" ")[0]))
    return found
