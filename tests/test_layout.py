"""Imports point one way, heavy libraries load late, and the list of public names stays short."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sottovoce

SOURCE = Path(sottovoce.__file__).parent
LAYERS = {"core": 0, "problems": 1, "privacy": 1, "solvers": 2, "tables": 2, "preparation": 3, "algorithms": 3}
LAYERS |= {"run": 4, "reproduce": 4, "estimators": 5}
ONE_LAYER = {"run", "reproduce"}  # experiments use runs, and a command runs experiments
FILES = sorted(SOURCE.rglob("*.py"))


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    here = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if here not in LAYERS:
        return
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "sottovoce" and len(parts) > 1 and parts[1] in LAYERS and parts[1] != here:
            below = LAYERS[parts[1]] < LAYERS[here] or {parts[1], here} == ONE_LAYER
            assert below, f"{path.name} imports {name}"


@pytest.mark.parametrize(
    ("library", "homes"),
    [
        ("dp_accounting", {"accounting.py", "second_accountant.py"}),
        ("opendp", {"mechanisms.py"}),
        ("plotly", {"report.py"}),
        ("mlflow", {"track.py"}),
    ],
)
def test_one_file_knows_the_library(library: str, homes: set[str]) -> None:
    users = {path.name for path in FILES if any(name.split(".")[0] == library for name in imports(path))}
    assert users <= homes


def test_the_second_accountant_does_not_ask_the_first() -> None:
    assert not any("accounting" in name for name in imports(SOURCE / "privacy/second_accountant.py") if "sotto" in name)


def test_import_is_light() -> None:
    heavy = ["scipy", "numba", "sklearn", "pyarrow", "matplotlib", "dp_accounting", "opendp", "rich", "typer"]
    code = f"import sottovoce, sys; print([m for m in {heavy!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_public_names() -> None:
    assert len(sottovoce.__all__) <= 20
    assert all(getattr(sottovoce, name) is not None for name in sottovoce.__all__)
    assert set(dir(sottovoce)) >= set(sottovoce.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = sottovoce.Nonsense
