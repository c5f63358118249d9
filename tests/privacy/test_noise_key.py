"""What noise is bound to, one thing at a time: attacks on whole runs are in `attacks/test_noise_key.py`."""

import importlib
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms import DPSGD
from sottovoce.core.check import InvalidInput
from sottovoce.core.participation import Everyone, KOfN
from sottovoce.core.random import binding
from sottovoce.core.random.streams import Purpose, Streams
from sottovoce.experiment.local import LocalClients
from sottovoce.experiment.task import Task
from sottovoce.ledger.budget import Budget
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.privacy import noise_key
from sottovoce.privacy.events import Event
from sottovoce.privacy.noise_key import NoiseKey, Occasion, SharedNoise, rows_digests
from tests.cases import goal

WHO = np.array([0, 1, 2])
ROWS = np.array([[5, 6], [7, 8], [5, 6]], dtype=np.uint64)  # clients 0 and 2 have the same
EXACT = np.tile([0.5, -1.5, 0.25], (3, 1))
KEY = NoiseKey.of_task(Streams(3), ROWS, "a task", 0.5)


def drawn(key: NoiseKey = KEY, exact: np.ndarray = EXACT, k: int = 1, question: int = 0, **more: Any) -> np.ndarray:
    return key.noise("gaussian", Occasion(WHO, WHO, k, more.get("purpose", Purpose.NOISE), question), exact)


def test_noise_of_one_question_is_the_same_and_of_two_is_not() -> None:
    """Each of these differs from the first in one thing alone, and no two may have a number in common."""
    one_bit = EXACT.copy()
    one_bit[:, 2] = np.nextafter(0.25, 1.0)
    others = {
        "round": drawn(k=2),
        "question": drawn(question=1),
        "purpose": drawn(purpose=Purpose.RELEASE),
        "answer": drawn(exact=one_bit),
        "first word of the rows": drawn(replace(KEY, rows=ROWS + np.array([1, 0], dtype=np.uint64))),
        "second word of the rows": drawn(replace(KEY, rows=ROWS + np.array([0, 1], dtype=np.uint64))),
        "settings": drawn(NoiseKey.of_task(Streams(3), ROWS, "a task", 0.25)),
        "seed": drawn(NoiseKey.of_task(Streams(4), ROWS, "a task", 0.5)),
    }
    first = drawn()
    assert np.array_equal(first, drawn(NoiseKey.of_task(Streams(3), ROWS.copy(), "a task", 0.5), EXACT.copy()))
    for a, b in itertools.combinations([*first, *itertools.chain(*others.values())], 2):  # clients with like rows too
        assert np.abs(a - b).min() > 1e-9


@pytest.mark.parametrize("count", [3, 2000])  # by NumPy, and compiled
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_noise_that_is_added_is_that_of_the_answer(kind: str, count: int) -> None:
    importlib.import_module("numba")
    exact, scales = np.random.default_rng(0).normal(size=(3, count)), np.array([[0.5], [1.0], [2.0]])
    at = Occasion(WHO, WHO, 1, Purpose.NOISE)
    for scale in (scales, 0.3, np.broadcast_to(scales, exact.shape)):
        expected = KEY.noise(kind, at, exact) * scale + exact
        np.testing.assert_array_equal(KEY.noisy(kind, scale, at, exact), expected)


@pytest.mark.parametrize("count", [3, 2000])
@pytest.mark.parametrize("runs", [None, 2])
@pytest.mark.parametrize("scale", [2, np.int64(2), True, np.full((3, 1), 2), np.full((3, 1), 0.5, np.float32)])
def test_a_scale_may_be_of_any_type(scale: Any, runs: int | None, count: int) -> None:
    importlib.import_module("numba")
    key, at = NoiseKey.of_task(Streams(3, runs), ROWS, "a task"), Occasion(WHO, WHO, 1, Purpose.NOISE)
    exact, as_floats = np.ones((*key.streams.shape(3), count)), np.asarray(scale, np.float64)
    np.testing.assert_array_equal(
        key.noisy("gaussian", scale, at, exact, (np.broadcast_to(scale, (3, 1)),)),
        key.noisy("gaussian", as_floats, at, exact, (np.broadcast_to(as_floats, (3, 1)),)),
    )


def test_hashes_that_are_kept_are_those_of_what_is_asked() -> None:
    """Of one number for each client hashes are kept: each must be that of these numbers, seed and place alone."""
    lists: list[list[float]] = [[0.5, 1, 2], [0.5, 1, 3], [-0.0, 1, 2], [0.0, 1, 2], [0.5], [0]]
    columns = [np.array(numbers, np.float64)[:, None] for numbers in lists]
    columns += [columns[0][None], np.array([[1], [2], [4]])]
    found: set[bytes] = set()
    for _ in range(2):  # the second time they are kept
        for seed, place, column in itertools.product((0, 3, 2**70), (1, 2), columns):
            hashed = noise_key._sums(column, seed, place)
            expected = binding.sums(column, noise_key._factors(seed, 1, place))
            np.testing.assert_array_equal(hashed, expected)
            assert hashed.shape == (*column.shape[:-1], 2)
            found.add(hashed.tobytes())
    assert len(found) == 3 * 2 * (len(columns) - 1)  # one column stands there twice, once with an axis more


@pytest.mark.parametrize("count", [3, 2000])
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_two_answers_never_share_the_noise_that_is_added_to_them(kind: str, count: int) -> None:
    """An answer with more runs than the streams have, or a scale for each of two: their difference would be exact."""
    importlib.import_module("numba")
    one, at = np.ones((3, count)), Occasion(WHO, WHO, 1, Purpose.NOISE)
    with pytest.raises(ValueError):  # noqa: PT011 (NumPy's own words)
        KEY.noisy(kind, np.ones((2, 3, 1)), at, one)
    try:
        first, second = KEY.noisy(kind, 1.0, at, np.stack([one, 0 * one]))
    except (ValueError, InvalidInput):
        return  # refused
    assert np.abs(first - second - 1).min() > 1e-9


@pytest.mark.parametrize("count", [5, 2000])  # by NumPy, and compiled
@pytest.mark.parametrize("shape", [(3, 1), (2, 3), (1, 3, 1)])
def test_an_answer_of_another_shape_gets_no_noise(shape: tuple[int, ...], count: int) -> None:
    """Else each client's answer would be given several times, each time with other noise, for one charge."""
    importlib.import_module("numba")
    at = Occasion(WHO, WHO, 1, Purpose.NOISE)
    with pytest.raises(ValueError):  # noqa: PT011 (NumPy's own words)
        KEY.noisy("gaussian", 1.0, at, np.ones((*shape, count)))


@pytest.mark.parametrize("count", [5, 2000])
@pytest.mark.parametrize("runs", [None, 2])
def test_an_answer_that_clients_share_gets_noise_of_each(runs: int | None, count: int) -> None:
    key, at = NoiseKey.of_task(Streams(3, runs), ROWS, "a task"), Occasion(WHO, WHO, 1, Purpose.NOISE)
    noisy = key.noisy("gaussian", 1.0, at, np.ones((1, count)))
    noise = (noisy - 1.0).reshape(-1, count)
    assert noisy.shape == (*(() if runs is None else (runs,)), 3, count)
    assert all(np.abs(a - b).min() > 1e-9 for a, b in itertools.combinations(noise, 2))


def test_batches_are_bound_to_rows_and_questions() -> None:
    sizes = np.array([4, 5, 6])

    def batch(key: NoiseKey, k: int = 1, question: int = 0) -> np.ndarray:
        return key.batch(Occasion(WHO, WHO, k, Purpose.BATCH, question), sizes)

    others = [batch(replace(KEY, rows=ROWS + np.uint64(1))), batch(KEY, k=2), batch(KEY, question=1)]
    assert np.array_equal(batch(KEY), batch(replace(KEY, rows=ROWS.copy())))
    for a, b in itertools.combinations([batch(KEY), *others], 2):
        assert not np.isin(a, b).any()


def test_the_compiled_hash_of_a_question_is_that_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whatever arrays: one row for all clients, runs in front, one number, or none (batches have no answer)."""
    importlib.import_module("numba")  # compiled loops are used where it is loaded
    rng, key = np.random.default_rng(0), NoiseKey(Streams(7), np.zeros((60, 2), np.uint64))
    many, shared, runs = rng.normal(size=(60, 104)), rng.normal(size=(1, 104)), rng.normal(size=(2, 60, 104))
    questions = [(many, shared), (np.zeros((1, 0)), many), (runs, np.ones((60, 1)), shared), (many, np.ones((1, 1)))]
    compiled = [key.binding(np.arange(60), arrays) for arrays in questions]
    monkeypatch.setattr("sottovoce.core.random.binding.compiled_pays", lambda count: False)
    for fast, arrays in zip(compiled, questions, strict=True):
        np.testing.assert_array_equal(fast, key.binding(np.arange(60), arrays))


@pytest.mark.parametrize("runs", [None, 2])
def test_noise_that_is_bound_and_added_in_one_loop_is_that_of_numpy(
    runs: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    importlib.import_module("numba")
    rng, lead = np.random.default_rng(0), () if runs is None else (runs,)
    key = NoiseKey(Streams(7, runs), rng.integers(0, 2**32, (60, 2), np.uint64))
    at = Occasion(np.arange(60) + 5, np.arange(60), 3, Purpose.NOISE, 1)
    exact, point = rng.normal(size=(*lead, 60, 105)), rng.normal(size=(*lead, 1, 104))
    questions = [
        (exact, (np.full((1, 1), 0.5), point)),
        (exact[..., :1, :], (rng.normal(size=(60, 3)), point)),
        (exact, ()),
    ]
    compiled = [key.noisy("gaussian", 0.5, at, answer, asked) for answer, asked in questions]
    monkeypatch.setattr("sottovoce.core.random.binding.compiled_pays", lambda count: False)
    monkeypatch.setattr("sottovoce.core.random.streams.compiled_pays", lambda count: False)
    for fast, (answer, asked) in zip(compiled, questions, strict=True):
        np.testing.assert_array_equal(fast, key.noisy("gaussian", 0.5, at, answer, asked))


def test_a_digest_is_of_every_bit_of_a_clients_own_rows() -> None:
    X, y, offsets = np.arange(12.0).reshape(6, 2), np.array([1.0, -1, 1, -1, 1, -1]), np.array([0, 2, 6])
    plain = rows_digests(X, y, offsets)
    for place in np.ndindex(X.shape):
        changed = X.copy()
        changed[place] = np.nextafter(changed[place], np.inf)
        differs = (rows_digests(changed, y, offsets) != plain).any(axis=1)
        assert differs.tolist() == [place[0] < 2, place[0] >= 2]
    for row in range(6):
        changed = y.copy()
        changed[row] *= -1
        differs = (rows_digests(X, changed, offsets) != plain).any(axis=1)
        assert differs.tolist() == [row < 2, row >= 2]
    assert (rows_digests(X.astype(np.float32), y, offsets) != plain).any(axis=1).all()


def test_a_key_holds_every_setting_that_answers_depend_on() -> None:
    X, y = np.array([[0.5, 0.1], [-0.2, 0.4]]), np.array([1.0, -1.0])
    task = Task(DPSGD(), goal(), sv.Proven(1.0, 1e-5, 1.0), Everyone(), 3, "numpy")

    def seed(task: Task = task, row_bound: float | None = 1.0, noise: float = 1.0) -> int:
        federation = sv.Federation.from_clients([(X, y)], row_bound=row_bound)
        events, ledger = (Event("gaussian", noise),), MemoryLedger(Budget(1.0, 1e-5), (1,))
        return LocalClients.of(task, federation, ledger, Streams(0), events).door.key.streams.seed

    seeds = [
        seed(),
        seed(row_bound=2.0),
        seed(row_bound=None),
        seed(noise=2.0),
        seed(replace(task, engine="kernel")),
        seed(replace(task, algorithm=DPSGD(step=0.5))),
        seed(replace(task, objective=sv.Objective(goal().loss, sv.L2(7.0)))),
        seed(replace(task, privacy=sv.Proven(1.0, 1e-6, 1.0))),
        seed(replace(task, participation=KOfN(1))),
        seed(replace(task, rounds=4)),
    ]
    assert len(set(seeds)) == len(seeds)
    assert seed() == seeds[0]


@pytest.mark.parametrize("exact", [EXACT, 2 * EXACT])
def test_noise_that_audits_share_is_bound_to_the_question_alone(exact: np.ndarray) -> None:
    shared = SharedNoise(Streams(3))
    assert np.array_equal(drawn(shared), drawn(shared, exact))
    assert not np.isin(drawn(shared), drawn(shared, k=2)).any()
