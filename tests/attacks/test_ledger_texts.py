"""What is written or said beside the answers: ledgers, warnings, errors. None of it may depend on private values.

Who attacks reads ledger files, logs, or the text of an error that was pasted into a bug report.
"""

import hashlib
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import DPSGD, FedSPDDP
from sottovoce.core.check import SottovoceError
from sottovoce.core.round import Checkpoint
from sottovoce.estimators import FederatedClassifier, VerticalClassifier
from sottovoce.experiment.train import train
from sottovoce.ledger.file import FileLedger
from sottovoce.privacy.modes import Proven
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Logistic
from sottovoce.problems.rows import Rows
from tests.attacks.attacker import spent, written
from tests.attacks.test_noise_key import make_room
from tests.cases import COLUMN_UNITS, goal, small

CLIENT = Proven(epsilon=2.0, delta=1e-3, clip=1.0, unit="client")
RECORD = Proven(epsilon=2.0, delta=1e-3, clip=1.0)
PARTIES = COLUMN_UNITS["proven, record"]
MARK = 0.123456789


def digests(*parts: np.ndarray) -> list[bytes]:
    """What a reader of a ledger would try: digests of a guess, in the ways that are easy to think of."""
    content = [np.ascontiguousarray(part, dtype=np.float64) for part in parts]
    with_shapes = b"".join(f"{part.shape};".encode() + part.tobytes() for part in content)
    plain = b"".join(part.tobytes() for part in content)
    found = []
    for guess in (with_shapes, plain, content[0].tobytes(), f"{content[0].shape};".encode() + content[0].tobytes()):
        for kind in (hashlib.sha256, hashlib.sha1, hashlib.md5, hashlib.blake2b):
            found.append(kind(guess).digest())
    return found


def test_a_ledger_does_not_confirm_a_guess_of_exact_numbers(tmp_path: Path) -> None:
    """Unit "client": someone with the ledger file guesses a client's rows, computes what it would upload, and looks
    for a digest of that in the file. A guess must find nothing: the exact upload is what the noise hides."""
    data = small()
    method = DPSGD(step=1.0)
    train(method, data, goal(), rounds=1, privacy=CLIENT, seed=5, engine="numpy", ledgers=tmp_path)
    everything = b"".join(content for _, content in written(tmp_path))
    for X, y in data.data():
        gradient = -(X * (y / 2)[:, None]).mean(axis=0)  # of the logistic loss at 0, written out
        exact = Rows(X, y, [0, len(y)], Logistic(), engine="numpy").gradient(np.zeros((1, 4)))[0]  # bit for bit
        np.testing.assert_allclose(exact, gradient, atol=1e-12)
        for guess in digests(exact, np.zeros(4), np.array([1.0])):
            short = guess.hex()[:32].encode()
            assert short not in everything, "a digest of the exact upload stands in the ledger"
            assert guess[:16] not in everything


def test_two_ledgers_have_nothing_in_common_that_names_their_rows(tmp_path: Path) -> None:
    """Someone with two ledgers asks whether they are about the same rows: every digest of data must be salted.

    The same settings three times, twice on the same rows: no long hexadecimal text may stand in these two alone.
    """
    texts: list[set[bytes]] = []
    for number, data in enumerate((small(), small(), small(seed=4))):
        folder = tmp_path / f"{number}"
        train(DPSGD(), data, goal(), rounds=1, privacy=CLIENT, seed=5, engine="numpy", ledgers=folder)
        found = [re.findall(rb"[0-9a-f]{32,}", content) for _, content in written(folder)]
        texts.append({text for each in found for text in each})
    assert not (texts[0] & texts[1]) - texts[2], "a digest that follows from the rows stands in both ledgers"


# ---------------------------------------------------------------------------------------------------- errors, warnings

X = np.full((12, 3), MARK)
Y = np.where(np.arange(12) % 2 == 0, 1.0, -1.0)
CALLS: dict[str, Callable[[], Any]] = {
    "rows in place of a federation": lambda: train(DPSGD(), (X, Y), goal(), rounds=1, privacy=RECORD),  # type: ignore[arg-type]
    "an array in place of a federation": lambda: train(DPSGD(), X, goal(), rounds=1, privacy=RECORD),  # type: ignore[arg-type]
    "rows in place of the objective": lambda: train(DPSGD(), small(), (X, Y), rounds=1, privacy=RECORD),  # type: ignore[arg-type]
    "rows in place of the algorithm": lambda: train((X, Y), small(), goal(), rounds=1, privacy=RECORD),  # type: ignore[arg-type]
    "rows in place of the privacy": lambda: train(DPSGD(), small(), goal(), rounds=1, privacy=(X, Y)),  # type: ignore[arg-type]
    "rows in place of rounds": lambda: train(DPSGD(), small(), goal(), rounds=X, privacy=RECORD),  # type: ignore[arg-type]
    "rows in place of a seed": lambda: train(DPSGD(), small(), goal(), rounds=1, privacy=RECORD, seed=X),  # type: ignore[arg-type]
    "rows in place of a bound": lambda: Federation.from_clients([(X, Y)], row_bound=X),  # type: ignore[arg-type]
    "too long a row": lambda: Federation.from_clients([(X, Y)], row_bound=0.1),
    "labels that are none": lambda: train(
        DPSGD(), Federation.from_clients([(X, Y + MARK)]), goal(), rounds=1, privacy=RECORD
    ),
    "rows in place of a clip norm": lambda: Proven(epsilon=1.0, delta=1e-3, clip=X),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", CALLS)
def test_no_error_quotes_rows(what: str) -> None:
    """Arguments in the wrong order: the error is pasted into a bug report. It must not show a private value."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Exception) as refused:  # noqa: PT011 (any refusal; what counts is its text)
            CALLS[what]()
    text = str(refused.value)
    assert "0.123" not in text, f"the error shows rows: {text[:200]}"
    assert "1.123" not in text
    assert "0.876" not in text


def texts_of(work: Callable[[], Any]) -> list[str]:
    """All that is said on the way: warnings, and the error if there is one."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        error = ""
        try:
            work()
        except Exception as refused:
            error = str(refused)
    return [*sorted(str(each.message) for each in said), error]


@pytest.mark.parametrize("kind", ["rows", "columns"])
def test_no_warning_depends_on_private_columns(kind: str) -> None:
    """An estimator warns, or not, by what the private columns look like: whether they were scaled by their own rows.

    Somebody who sees the log of a fit learns an exact fact about the rows. What is said must be the same for all rows.
    """
    rng = np.random.default_rng(0)
    plain = rng.uniform(-0.4, 0.6, size=(60, 4))
    scaled = (plain - plain.mean(axis=0)) / plain.std(axis=0)
    one_scaled = plain.copy()
    one_scaled[:, 2] = scaled[:, 2]
    unit = (plain - plain.min(axis=0)) / np.ptp(plain, axis=0)
    y = np.where(np.arange(60) % 2 == 0, "no", "yes")

    def fit(X: np.ndarray) -> list[str]:
        if kind == "rows":
            model: Any = FederatedClassifier(
                epsilon=5.0, delta=1e-3, clip=1.0, rounds=2, random_state=0, classes=["no", "yes"]
            )
            return texts_of(lambda: model.fit(X, y, groups=np.arange(60) % 3))
        model = VerticalClassifier([2, 2], privacy=PARTIES, rounds=2, random_state=0, classes=["no", "yes"])
        return texts_of(lambda: model.fit(X, y))

    assert fit(plain) == fit(scaled) == fit(one_scaled) == fit(unit), "a warning tells what the private columns are"


# -------------------------------------------------------------------------------- what an earlier run's guarantee needs


def test_a_later_run_keeps_what_the_earlier_one_rests_on(tmp_path: Path) -> None:
    """First a run whose proof needs that no row is longer than 1, then one that needs nothing, on the same ledgers.

    The second guarantee covers "this and all earlier runs", so it must still say on which rows the first one rests.
    """
    first = FedSPDDP(rho=0.3, gamma=0.6, local_steps=3, variant="P")
    options: dict[str, Any] = {"rounds": 1, "privacy": RECORD, "seed": 5, "engine": "numpy", "ledgers": tmp_path}
    said = train(first, small(), goal(), **options).guarantee
    assert "no row longer than 1" in said.text
    make_room(tmp_path)
    later = train(DPSGD(), small(), goal(), **options).guarantee
    assert spent(tmp_path) == [2] * 6
    assert "earlier runs" in later.text
    assert "no row longer than 1" in later.text, "the earlier run's condition was dropped"
    assert "no row longer than 1" in later.unit


# ------------------------------------------------------------------------------------------------------------- resuming


def test_resuming_gives_no_other_answers_for_free(tmp_path: Path) -> None:
    """A run is stopped after round 2 of 3 and resumed twice from its checkpoint, the second time on other rows'
    answers: from a checkpoint whose server state was moved. Each round that is answered anew must be charged."""
    kept: list[Checkpoint] = []
    options: dict[str, Any] = {"rounds": 3, "privacy": RECORD, "seed": 5, "engine": "numpy", "ledgers": tmp_path}
    train(DPSGD(step=1.0), small(), goal(), after_round=kept.append, **options)
    assert spent(tmp_path) == [3] * 6
    make_room(tmp_path)
    moved = replace(kept[1], server=type(kept[1].server)(kept[1].server.w + 0.5))
    for checkpoint in (kept[1], moved):
        before = spent(tmp_path)
        try:
            resumed = train(DPSGD(step=1.0), small(), goal(), resume=checkpoint, **options)
        except SottovoceError:
            continue  # refused
        paid = [after - b for after, b in zip(spent(tmp_path), before, strict=True)]
        assert paid == [resumed.rounds - 2] * 6, "round 3 was answered again, from the rows, and not charged"


def test_a_seeded_run_is_charged_each_time_it_is_started(tmp_path: Path) -> None:
    """The same experiment, the same seed, the same folder, started three times: each start looks at the rows."""
    for runs in (1, 2, 3):
        options: dict[str, Any] = {"rounds": 2, "privacy": RECORD, "seed": 5, "engine": "numpy", "ledgers": tmp_path}
        train(DPSGD(), small(), goal(), **options)
        make_room(tmp_path)
        assert spent(tmp_path) == [2 * runs] * 6
        with FileLedger.open(tmp_path / "0000.ledger") as ledger:
            assert len(list(ledger.receipts())) == 2 * runs
