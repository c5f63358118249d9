"""Rows stored in float32: half the memory, the same answers to seven digits, and bounds that hold exactly."""

import warnings

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms import FedAvg
from sottovoce.core.check import InvalidInput
from sottovoce.ledger.budget import LedgerError
from sottovoce.problems.federation import Federation
from sottovoce.problems.rows import Rows

SIZES = (3, 1, 700, 8)


def made(rows: int = sum(SIZES), features: int = 7) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, features))
    return X / np.linalg.norm(X, axis=1)[:, None], np.where(rng.random(rows) < 0.5, 1.0, -1.0)


def federation(row_bound: float | None = None) -> Federation:
    X, y = made()
    return Federation.from_arrays(X, y, np.repeat(np.arange(len(SIZES)), SIZES), row_bound=row_bound)


@pytest.mark.parametrize("engine", ["numpy", "kernel"])
@pytest.mark.parametrize("clip", [None, 0.3])
def test_answers_are_those_of_the_same_rows_in_float64(engine: str, clip: float | None) -> None:
    narrow = federation().in_float32()
    assert narrow.X.dtype == np.float32
    rows = Rows(narrow.X, narrow.y, narrow.offsets, sv.Logistic(), engine=engine)
    wide = Rows(narrow.X.astype(np.float64), narrow.y, narrow.offsets, sv.Logistic(), engine=engine)
    assert rows.X is narrow.X
    w = np.random.default_rng(1).normal(size=(2, len(SIZES), rows.dim))
    np.testing.assert_allclose(rows.gradient(w, clip=clip), wide.gradient(w, clip=clip), rtol=1e-13, atol=1e-15)
    assert np.array_equal(rows.value(w), wide.value(w))
    assert np.array_equal(rows.smoothness(), wide.smoothness())
    assert np.array_equal(rows.longest_row(), wide.longest_row())


def test_a_client_alone_gets_the_same_bits() -> None:
    narrow = federation().in_float32()
    rows = Rows(narrow.X, narrow.y, narrow.offsets, sv.Logistic(), engine="kernel")
    w = np.random.default_rng(1).normal(size=(len(SIZES), rows.dim))
    together = rows.gradient(w, clip=0.3)
    for client, (X, y) in enumerate(narrow.data()):
        alone = Rows(X, y, [0, len(y)], sv.Logistic(), engine="kernel")
        assert np.array_equal(alone.gradient(w[client : client + 1], clip=0.3)[0], together[client])


@pytest.mark.parametrize("engine", ["numpy", "kernel"])
def test_the_clip_bounds_every_row_to_float64_precision(engine: str) -> None:
    X, y = made(50)
    X = (X * 10.0 ** np.random.default_rng(2).uniform(-20, 20, (50, 1))).astype(np.float32)
    rows = Rows(X, y, np.arange(51), sv.Squared(), scale="sum", engine=engine)  # a client of each row
    for scale in (1e-3, 1.0, 1e30):
        gradient = rows.gradient(np.full((1, rows.dim), scale), clip=0.7)
        assert np.linalg.norm(gradient, axis=1).max() <= 0.7 * (1 + 1e-14)


def test_no_row_gets_longer_and_a_promise_still_holds() -> None:
    exact = federation(row_bound=1 + 1e-15)
    narrow = exact.in_float32()  # checks the promise again
    assert np.all(np.abs(narrow.X) <= np.abs(exact.X))
    np.testing.assert_allclose(narrow.X, exact.X, rtol=2**-23)
    rounded = exact.X.astype(np.float32)
    assert np.linalg.norm(rounded.astype(np.float64), axis=1).max() > 1 + 1e-12  # to the nearest would break it
    with pytest.raises(InvalidInput, match="row_bound"):
        Federation(rounded, exact.y, exact.offsets, exact.names, row_bound=1.0)


def test_training_ends_where_float64_does() -> None:
    goal = sv.Objective(sv.Logistic(), sv.L2(1e-2))
    ends = {}
    for privacy in (sv.NoPrivacy(), sv.Proven(10.0, 1e-5, 1.0)):
        for rows in (federation(), federation().in_float32()):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                result = sv.train(FedAvg(step=1.0), rows, goal, rounds=50, privacy=privacy, seed=0, engine="numpy")
            ends[privacy.mode, rows.X.dtype.name] = result
    # With noise of its own: in common it would cancel, and leave what rounding takes off private rows.
    for mode, least, most in (("none", 0.0, 1e-6), ("proven", 1e-3, np.inf)):
        wide, narrow = ends[mode, "float64"], ends[mode, "float32"]
        assert least < np.abs(wide.model - narrow.model).max() < most
        assert abs(wide.history["objective"][-1] - narrow.history["objective"][-1]) <= most / 10
        assert str(wide.guarantee) == str(narrow.guarantee)
    assert ends["none", "float32"].config["data"]["stored"] == "float32"
    assert "stored" not in ends["none", "float64"].config["data"]


def test_a_ledger_on_disk_takes_them_for_other_rows(tmp_path) -> None:
    goal, privacy = sv.Objective(sv.Logistic(), sv.L2(1e-2)), sv.Proven(1.0, 1e-5, 1.0)
    sv.train(FedAvg(), federation(), goal, rounds=2, privacy=privacy, ledgers=tmp_path / "kept")
    with pytest.raises(LedgerError, match="another data set"):
        sv.train(FedAvg(), federation().in_float32(), goal, rounds=2, privacy=privacy, ledgers=tmp_path / "kept")


def test_what_float32_cannot_hold_is_refused() -> None:
    X, y = made()
    X[5, 2] = 1e50
    too_large = Federation.from_arrays(X, y, np.repeat(np.arange(len(SIZES)), SIZES))
    with pytest.raises(InvalidInput, match=r"at most 3\.4e\+38 to fit in float32\. Scale") as error:
        too_large.in_float32()
    assert "1e+50" not in str(error.value)  # it is private
