"""Someone who gets the files of a run looks for the seed in them: with it the noise can be taken away again.

A seed that came from the operating system must be in no file. It is drawn through `secrets`, so what is drawn here is
known, and all that is written is searched for it: as decimal or hexadecimal text, and as bytes.
"""

import gzip
import io
import json
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sottovoce.algorithms import DPSGD, ADMMSharing
from sottovoce.core.round import Checkpoint
from sottovoce.estimators import FederatedClassifier
from sottovoce.experiment import saved
from sottovoce.experiment.train import train
from sottovoce.privacy.modes import Proven
from tests.attacks.attacker import holds, written
from tests.cases import COLUMN_UNITS, goal, small, small_columns
from tests.cli.test_cli import call
from tests.experiment.test_experiment import write_csv, write_toml

RECORD = Proven(epsilon=5.0, delta=1e-3, clip=1.0)


class Drawn:
    """Stands in for `secrets.randbits`, and remembers what was drawn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.numbers: list[tuple[int, int]] = []  # and how many bits they have
        self._random = np.random.default_rng(7)
        import secrets

        monkeypatch.setattr(secrets, "randbits", self.bits)

    def bits(self, count: int) -> int:
        number = int.from_bytes(self._random.bytes((count + 7) // 8), "big") >> (-count % 8) | 1 << (count - 1)
        self.numbers.append((number, count))
        return number

    def found_in(self, content: bytes) -> bool:
        return any(
            holds(part, number, (count + 7) // 8) for part in unpacked(content) for number, count in self.numbers
        )


def unpacked(content: bytes) -> Iterator[bytes]:
    """The bytes as they are, and what is compressed in them."""
    yield content
    if content[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            yield from (archive.read(name) for name in archive.namelist())
    if content[:2] == b"\x1f\x8b":
        yield gzip.decompress(content)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    return Drawn(monkeypatch)


def assert_not_written(drawn: Drawn, folder: Path) -> None:
    files = [path.relative_to(folder).as_posix() for path, content in written(folder) if drawn.found_in(content)]
    assert not files, f"the seed stands in {', '.join(files)}"


@pytest.mark.parametrize("kind", ["rows", "columns"])
def test_a_saved_result_does_not_hold_a_seed_that_was_drawn(kind: str, drawn: Drawn, tmp_path: Path) -> None:
    """`train(seed=None)`, saved: config, history, model and guarantee lie side by side, and go to somebody else."""
    if kind == "rows":
        result = train(DPSGD(), small(), goal(), rounds=2, privacy=RECORD, engine="numpy")
    else:
        result = train(ADMMSharing(), small_columns(), goal(), rounds=2, privacy=COLUMN_UNITS["proven, record"])
    assert drawn.numbers  # this is how the seed was drawn
    result.save(tmp_path / "saved")
    assert_not_written(drawn, tmp_path)
    assert not drawn.found_in(json.dumps(result.config).encode())
    assert not drawn.found_in(repr(result).encode())


def test_a_loaded_result_and_its_report_do_not_hold_it(drawn: Drawn, tmp_path: Path) -> None:
    """The same for a page that is made of a saved run, which is meant to be shown around."""
    train(DPSGD(), small(), goal(), rounds=2, privacy=RECORD, engine="numpy").save(tmp_path / "saved")
    assert call("report", tmp_path / "saved", "--released-only").exit_code == 0
    assert_not_written(drawn, tmp_path)
    assert "seed" not in saved.load_result(tmp_path / "saved").config["run"]


def test_a_run_file_without_a_seed_leaves_none_behind(
    drawn: Drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line on a file that states no seed: neither its folders nor what it prints may hold the one drawn."""
    write_csv(tmp_path)
    monkeypatch.chdir(tmp_path)
    outcome = call("run", write_toml(tmp_path, run={"rounds": 2, "engine": "numpy"}), "--out", "saved")
    assert outcome.exit_code == 0, outcome.stderr
    assert drawn.numbers
    assert_not_written(drawn, tmp_path)
    assert not drawn.found_in(outcome.output.encode())


def test_a_checkpoint_does_not_hold_a_seed_that_was_drawn(drawn: Drawn) -> None:
    """A checkpoint of a run without a seed is kept by whoever trains, and lies beside the models of later rounds."""
    kept: list[Checkpoint] = []
    train(DPSGD(), small(), goal(), rounds=2, privacy=RECORD, engine="numpy", after_round=kept.append)
    assert drawn.numbers
    for checkpoint in kept:
        assert not drawn.found_in(repr(checkpoint).encode())
        assert not drawn.found_in(pickle.dumps((checkpoint.clients, checkpoint.seed, checkpoint.k)))


def test_a_fitted_estimator_does_not_hold_it(drawn: Drawn) -> None:
    """Pickled or printed: an estimator with `random_state=None` that was fitted."""
    data = small()
    X, y = np.asarray(data.X), data.y
    groups = np.repeat(np.arange(data.n), data.sizes)
    fitted = FederatedClassifier(
        epsilon=5.0, delta=1e-3, clip=1.0, rounds=2, classes=[-1.0, 1.0], earlier_steps="public"
    ).fit(X, y, groups=groups)
    assert drawn.numbers
    assert not drawn.found_in(pickle.dumps(fitted))
    assert not drawn.found_in(repr(vars(fitted)).encode())
