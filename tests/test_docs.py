"""What the docs print runs, what they name exists, and they build without a warning."""

import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


WITH_CODE = [page for page in PAGES if blocks(page, "python")]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_python_runs_as_printed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page, one after the other; the README's expect X, y, groups and X_new of the reader's own."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(300, 4)), rng.integers(0, 5, size=300)
    names = {"X": X, "y": np.where(X[:, 0] > 0, 1.0, -1.0), "groups": groups, "X_new": X[:3]}
    module = type(sys)("printed")  # dataclasses look their module up
    monkeypatch.setitem(sys.modules, "printed", module)
    module.__dict__.update(names)
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), module.__dict__)  # our own text
    assert module.__dict__["result"].guarantee.epsilon <= 2.0


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")], ids=lambda page: page.stem)
def test_run_files_run_as_printed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sottovoce.run import experiment

    monkeypatch.chdir(tmp_path)
    for block in blocks(page, "toml"):
        read = tomllib.loads(block)
        if "algorithm" not in read:  # another kind of file
            continue
        rng = np.random.default_rng(1)
        data = read["data"]
        names = ["age", "pressure", data["label"], data["owner"]]
        lines = [f"{a:.3f},{b:.3f},{int(a > b)},{'ab'[i % 2]}" for i, (a, b) in enumerate(rng.normal(size=(200, 2)))]
        Path(data["csv"]).write_text("\n".join([",".join(names), *lines]))
        Path("run.toml").write_text(block)
        result = experiment.load(Path("run.toml"), rounds=3).train()
        assert result.rounds == 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_named_exists(page: Path) -> None:
    from typer.main import get_command

    from sottovoce.run.cli import app

    known = get_command(app).commands  # type: ignore[attr-defined]
    for command, options in re.findall(r"(?:bin/|`)sottovoce ([a-z]+)\b([^`\n#]*)", page.read_text(encoding="utf-8")):
        assert command in known, f"{page.name} names `sottovoce {command}`"
        offered = {name for option in known[command].params for name in option.opts}
        for option in re.findall(r"(?<!\S)--[a-z-]+", options):
            assert option in offered, f"{page.name}: `sottovoce {command}` has no {option}"


def test_the_readme_names_every_command() -> None:
    from typer.main import get_command

    from sottovoce.run.cli import app

    known = set(get_command(app).commands)  # type: ignore[attr-defined]
    assert known <= set(re.findall(r"bin/sottovoce (\w+)", (ROOT / "README.md").read_text()))
