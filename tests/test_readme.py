"""The README's Python runs as printed."""

import re
from pathlib import Path

import numpy as np
import pytest

README = Path(__file__).parent.parent / "README.md"


def test_the_face_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(300, 4)), rng.integers(0, 5, size=300)
    names = {"X": X, "y": np.where(X[:, 0] > 0, 1.0, -1.0), "groups": groups, "X_new": X[:3]}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)  # our own text
    assert (tmp_path / "runs" / "first" / "guarantee.json").exists()
    assert names["result"].guarantee.epsilon <= 1.0


def test_every_command_named_exists() -> None:
    from typer.main import get_command

    from sottovoce.run.cli import app

    known = set(get_command(app).commands)  # type: ignore[attr-defined]
    named = set(re.findall(r"bin/sottovoce (\w+)", README.read_text()))
    assert named == known
