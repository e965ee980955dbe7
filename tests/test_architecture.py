"""Who may import whom, and that everything public is documented and can be imported."""

import ast
import importlib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import beam_dp

ROOT = Path(beam_dp.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
WITHOUT_BEAM = ("core", "accounting", "baselines")
PLAIN_MODULES = ("plans.py", "algorithms.py", "checks.py", "in_memory.py", "errors.py")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


def imports(path: Path) -> set[str]:
    """All modules a file imports, anywhere in it; `from a import b` counts as a.b where that is a module."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                found.add(submodule if submodule in MODULES else base)
    return found


def is_plain(path: Path) -> bool:
    relative = path.relative_to(ROOT)
    return relative.parts[0] in WITHOUT_BEAM or str(relative) in PLAIN_MODULES


def test_the_scan_sees_imports():
    assert "apache_beam" in imports(ROOT / "transforms" / "mad_weights.py")
    assert "beam_dp.core.grid" in imports(ROOT / "core" / "noise.py")
    assert "beam_dp.accounting.gaussian" in imports(ROOT / "accounting" / "__init__.py")
    assert sum(map(is_plain, FILES)) > 15


@pytest.mark.parametrize("path", list(filter(is_plain, FILES)), ids=module_name)
def test_the_numeric_core_knows_nothing_of_beam(path):
    forbidden = ("apache_beam", "beam_dp.transforms", "beam_dp.io")
    assert not [name for name in imports(path) if name == "beam_dp" or name.startswith(forbidden)]


def test_no_modules_import_each_other_in_a_circle():
    graph = {name: imports(path) & MODULES.keys() - {name} for name, path in MODULES.items()}
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    assert set(order) == set(MODULES)


@pytest.mark.parametrize("path", [path for path in FILES if path.name == "__init__.py"], ids=module_name)
def test_every_exported_name_can_be_imported(path):
    module = importlib.import_module(module_name(path))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                assert alias.asname == alias.name, "exports are explicit: from .x import Y as Y"
                assert getattr(module, alias.asname) is not None


@pytest.mark.parametrize("name", MODULES)
def test_every_module_can_be_imported(name):
    importlib.import_module(name)


def undocumented(node: ast.AST, prefix: str) -> Iterator[str]:
    """Public definitions without a docstring; methods of private classes are private."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef) and not child.name.startswith("_"):
            name = f"{prefix}.{child.name}"
            if ast.get_docstring(child) is None:
                yield name
            if isinstance(child, ast.ClassDef):
                yield from undocumented(child, name)


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_everything_public_has_a_docstring(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "the module itself has none"
    assert list(undocumented(tree, module_name(path))) == []


def test_every_folder_of_modules_is_a_package():
    assert {path.parent for path in FILES} == {path.parent for path in FILES if path.name == "__init__.py"}
