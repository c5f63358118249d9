from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core.check import InvalidInput
from sottovoce.core.participation import PARTICIPATION, Bernoulli, Covering, Everyone, KOfN, Participation, Schedule
from sottovoce.core.random.streams import Streams


def masks(rule: Participation, n: int, rounds: int, seed: int = 0, runs: int | None = None) -> np.ndarray:
    return np.array(list(islice(rule.masks(n, Streams(seed, runs)), rounds)))


def test_everyone() -> None:
    assert masks(Everyone(), 5, 3).all()
    assert masks(Everyone(), 5, 3, runs=2).shape == (3, 2, 5)


@given(st.integers(1, 12), st.data())
def test_k_of_n(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n))
    drawn = masks(KOfN(k), n, 5, seed=data.draw(st.integers(0, 9)), runs=3)
    assert (drawn.sum(axis=-1) == k).all()


def test_k_of_n_is_uniform_and_replays() -> None:
    drawn = masks(KOfN(3), 10, 2000)
    np.testing.assert_allclose(drawn.mean(axis=0), 0.3, atol=0.05)
    assert np.array_equal(drawn[:50], masks(KOfN(3), 10, 50))
    assert np.array_equal(masks(KOfN(3), 10, 50, runs=4)[:, 0], drawn[:50])


def test_bernoulli_has_its_own_p() -> None:
    p = [0.1, 0.5, 0.9, 1.0]
    np.testing.assert_allclose(masks(Bernoulli(p), 4, 4000).mean(axis=0), p, atol=0.03)


@given(st.integers(1, 6), st.integers(1, 5), st.data())
def test_covering_covers_every_block(k: int, within: int, data: st.DataObject) -> None:
    n = data.draw(st.integers(k, k * within))
    drawn = masks(Covering(k, within), n, 4 * within, seed=data.draw(st.integers(0, 9)), runs=2)
    assert (drawn.sum(axis=-1) == k).all()
    assert drawn.reshape(4, within, 2, n).any(axis=1).all()


def test_covering_is_not_a_fixed_cycle() -> None:
    blocks = masks(Covering(4, 4), 8, 400).reshape(100, 4, 8)
    assert len({block.tobytes() for block in blocks}) > 90
    assert (blocks.sum(axis=1) > 1).any(), "with room to spare, a client may come twice in a block"


def test_schedule() -> None:
    drawn = masks(Schedule(((0, 2), (), (1,))), 3, 3)
    assert drawn.tolist() == [[True, False, True], [False] * 3, [False, True, False]]
    assert Schedule(((0, 2), (0, 0), (1,))).most(3) == 2
    assert Everyone().most(7) == 7


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KOfN(0), "KOfN: k must be a whole number >= 1, got 0"),
        (lambda: masks(KOfN(5), 3, 1), "k must be at most the number of clients \\(3\\), got 5"),
        (lambda: Bernoulli(0.0), "Bernoulli: p must lie in \\(0, 1\\], got 0.0"),
        (lambda: masks(Bernoulli([0.5, 0.5]), 3, 1), "one number or one per client \\(3\\), got 2"),
        (lambda: masks(Covering(2, 2), 5, 1), "needs k <= 5 <= k \\* within"),
        (lambda: masks(Schedule(((7,),)), 3, 1), "round 1 must name clients 0..2"),
    ],
)
def test_bad_input(make, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()


def test_registry() -> None:
    assert set(PARTICIPATION) == {"everyone", "k-of-n", "bernoulli", "covering", "schedule"}
