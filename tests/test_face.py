"""What `import sottovoce` offers: every public name, loaded on first use, and known to type checkers."""

import ast
import inspect
import tomllib
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest

import sottovoce
from sottovoce.algorithms import ALGORITHMS
from sottovoce.core.participation import PARTICIPATION
from sottovoce.problems.losses import LOSSES
from sottovoce.problems.penalties import PENALTIES

ROOT = Path(__file__).parent.parent
FACE: Any = sottovoce  # its names are looked up as text
MODULES = {module.name for module in iter_modules(sottovoce.__path__) if module.name != "__main__"}


def test_everything_that_a_run_file_can_name_has_a_name_here() -> None:
    for kinds in (ALGORITHMS, LOSSES, PENALTIES, PARTICIPATION):
        for kind in kinds.values():
            assert getattr(FACE, kind.__name__) is kind
            assert kind.__name__ in FACE.__all__


def test_everything_is_listed() -> None:
    assert FACE.__all__[:3] == ["train", "Result", "Federation"]  # everyday names first
    assert len(set(FACE.__all__)) == len(FACE.__all__)
    assert set(dir(sottovoce)) == {"__version__", *FACE.__all__, *MODULES}
    everything: dict[str, Any] = {}
    exec("from sottovoce import *", everything)
    assert everything.keys() >= set(FACE.__all__)
    for module in MODULES:
        assert getattr(FACE, module).__name__ == f"sottovoce.{module}"


def test_everything_has_a_docstring() -> None:
    """A class its own (a dataclass would make one up), a method perhaps that of a base class.

    The methods of an algorithm are its paper's algorithm box, and have equation numbers instead.
    """
    for name in FACE.__all__:
        thing = getattr(FACE, name)
        assert not (thing.__doc__ or name).startswith(name), f"{name} has no docstring"
        if thing in ALGORITHMS.values() or not inspect.isclass(thing):
            continue
        for method, function in inspect.getmembers(thing, inspect.isfunction):
            if method[0] != "_" and function.__module__.startswith("sottovoce"):
                assert inspect.getdoc(getattr(thing, method)), f"{name}.{method} has no docstring"


@pytest.mark.parametrize("name", ["Nonsense", "nonsense", "__main__", "_Nonsense"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'sottovoce' has no attribute '{name}'"):
        getattr(sottovoce, name)


def test_type_checkers_see_the_names_that_are_loaded() -> None:
    """The imports under TYPE_CHECKING are those of the table; those of algorithms are imported with a star."""
    tree = ast.parse((ROOT / "src/sottovoce/__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    exported = {alias.asname: f"{node.module}" for node in imports for alias in node.names if alias.asname}
    names = {name: module for name, module in exported.items() if module != "sottovoce"}
    assert names == sottovoce._MODULE_OF
    assert exported.keys() - names.keys() == MODULES
    assert [node.module for node in imports if node.names[0].name == "*"] == ["sottovoce.algorithms"]
    for kind in ALGORITHMS.values():  # the star finds them
        assert getattr(sottovoce.algorithms, kind.__name__) is kind


def test_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/sottovoce/__init__.py"
    assert f"\nversion: {sottovoce.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
