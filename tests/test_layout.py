"""Imports point one way, and heavy libraries load late."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

import sottovoce

SOURCE = Path(sottovoce.__file__).parent
BELOW = {  # package -> the packages it may import from, lazy imports included
    "core": "",
    "problems": "core",
    "privacy": "core ledger",
    "ledger": "core privacy",
    "solvers": "core",
    "algorithms": "core problems privacy solvers",
}
BELOW["rules"] = f"{BELOW['algorithms']} algorithms"
BELOW["experiment"] = f"{BELOW['rules']} ledger rules"
BELOW["deploy"] = BELOW["auditing"] = BELOW["planning"] = f"{BELOW['experiment']} experiment"
BELOW["report"] = BELOW["estimators"] = f"{BELOW['planning']} auditing planning"
BELOW["reproduce"] = f"{BELOW['report']} report"
BELOW["cli"] = f"{BELOW['reproduce']} deploy estimators reproduce"
FILES = sorted(SOURCE.rglob("*.py"))


@functools.cache
def parsed(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text()).body


def is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


@functools.cache
def imports(path: Path, for_types: bool = True) -> frozenset[str]:
    """The modules that a file imports, lazily too; `for_types`: also those that only a type checker reads."""
    names = set()
    for node in (node for top in parsed(path) if for_types or not is_for_types(top) for node in ast.walk(top)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= inner if inner <= MODULES.keys() else inner | {node.module}  # a package is more than its modules
    return frozenset(names)


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


def test_imports_point_one_way() -> None:
    wrong = []
    for path in FILES:
        here = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if here in ("__init__", "__main__"):
            continue
        for name in imports(path) & MODULES.keys():
            parts = name.split(".")
            if len(parts) > 1 and parts[1] != here and parts[1] not in BELOW[here].split():
                wrong.append(f"{path.relative_to(SOURCE)} imports {name}")
    assert wrong == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {
        name: (imports(path, for_types=False) & MODULES.keys()) - {"sottovoce", name} for name, path in MODULES.items()
    }
    del graph["sottovoce"]
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"a cycle: {' -> '.join((*trail[trail.index(name) :], name))}"
        if name in done:
            return
        for other in sorted(graph[name]):
            visit(other, (*trail, name))
        done.add(name)

    for name in sorted(graph):
        visit(name, ())


@pytest.mark.parametrize(
    ("library", "homes"),
    [
        ("dp_accounting", {"losses.py", "second_accountant.py"}),
        ("opendp", {"discrete_noise.py"}),
        ("plotly", {"page.py"}),
        ("mlflow", {"track.py"}),
    ],
)
def test_one_file_knows_the_library(library: str, homes: set[str]) -> None:
    users = {path.name for path in FILES if any(name.split(".")[0] == library for name in imports(path))}
    assert users <= homes


def test_the_second_accountant_does_not_ask_the_first() -> None:
    assert not any(
        "accounting" in name for name in imports(SOURCE / "auditing/second_accountant.py") if "sotto" in name
    )


def test_import_is_light() -> None:
    heavy = ["scipy", "numba", "sklearn", "pyarrow", "matplotlib", "dp_accounting", "opendp", "rich", "typer"]
    code = f"import sottovoce, sys; print([m for m in {heavy!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
