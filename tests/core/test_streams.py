import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from sottovoce.core.check import InvalidInput
from sottovoce.core.random.normal import normal
from sottovoce.core.random.philox import philox
from sottovoce.core.random.quantiles import to_unit
from sottovoce.core.random.streams import Draw, Purpose, Streams

CLIENTS = np.arange(7)


def test_philox_known_answers() -> None:
    """The reference vectors that come with Random123."""
    ones = 0xFFFFFFFF
    digits = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    vectors = [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((ones,) * 4, (ones,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (digits, (0xA4093822, 0x299F31D0), "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ]
    for counter, key, expected in vectors:
        assert " ".join(f"{int(word):08x}" for word in philox(counter, key)) == expected


def test_draws_do_not_depend_on_who_else_draws() -> None:
    together = Streams(5).normal(CLIENTS, 3, Purpose.NOISE, 9)
    for client in CLIENTS:
        assert np.array_equal(Streams(5).normal(np.array([client]), 3, Purpose.NOISE, 9)[0], together[client])
    assert np.array_equal(Streams(5, runs=4).normal(CLIENTS, 3, Purpose.NOISE, 9)[0], together)
    assert np.array_equal(Streams(5).normal(CLIENTS, 3, Purpose.NOISE, 4), together[:, :4])


def test_every_part_of_the_key_matters() -> None:
    base = Streams(5).bits(CLIENTS, 3, Purpose.NOISE, 8)
    others = [
        Streams(6).bits(CLIENTS, 3, Purpose.NOISE, 8),
        Streams(5).bits(CLIENTS + 7, 3, Purpose.NOISE, 8),
        Streams(5).bits(CLIENTS, 4, Purpose.NOISE, 8),
        Streams(5).bits(CLIENTS, 3, Purpose.BATCH, 8),
        Streams(5).bits(CLIENTS, 3, Purpose.NOISE, 8, question=1),
        Streams(5, runs=2).bits(CLIENTS, 3, Purpose.NOISE, 8)[1],
    ]
    everything = np.concatenate([base.ravel(), *(other.ravel() for other in others)])
    assert len(np.unique(everything)) == everything.size


def test_distributions() -> None:
    from scipy import stats

    streams, many = Streams(1), np.arange(200)
    for sample, law in [
        (streams.uniform(many, 1, Purpose.NOISE, 500), stats.uniform()),
        (streams.normal(many, 2, Purpose.NOISE, 500), stats.norm()),
        (streams.laplace(many, 3, Purpose.NOISE, 500), stats.laplace()),
        (streams.uniform_rows(many, np.full(200, 500), 4, Purpose.BATCH), stats.uniform()),
    ]:
        assert stats.kstest(sample.ravel(), law.cdf).pvalue > 1e-3


def test_uniform_never_touches_its_ends() -> None:
    ends = to_unit(np.array([0, 2**64 - 1], dtype=np.uint64))
    assert 0 < ends[0] < 1e-15
    assert 1 - 1e-15 < ends[1] < 1


def test_rows_of_unequal_clients() -> None:
    sizes = np.array([3, 1, 4])
    together = Streams(2).uniform_rows(np.array([0, 1, 2]), sizes, 1, Purpose.BATCH)
    assert together.shape == (8,)
    assert np.array_equal(Streams(2).uniform_rows(np.array([2]), sizes[2:], 1, Purpose.BATCH), together[4:])
    assert len(np.unique(together)) == 8


def test_an_algorithm_never_draws_the_same_twice() -> None:
    draw = Draw(Streams(0), CLIENTS, 1)
    assert not np.array_equal(draw.uniform(5), draw.uniform(5))


def test_seed_is_checked() -> None:
    with pytest.raises(InvalidInput, match="seed must be a whole number >= 0, got -1"):
        Streams(-1)
    assert Streams.unpredictable().seed != Streams.unpredictable().seed


@pytest.mark.parametrize("runs", [None, 3])
@pytest.mark.parametrize("count", [1, 7, 100, 700])
def test_numbers_of_several_rounds_at_once_are_those_of_each(runs: int | None, count: int) -> None:
    streams = Streams(5, runs)
    rounds = streams.uniform_of_rounds(9, Purpose.PARTICIPATION, count)
    for round_ in range(1, 40 if count < 700 else 4):
        alone = streams.uniform(np.array([9]), round_, Purpose.PARTICIPATION, count)[..., 0, :]
        drawn = next(rounds)
        assert drawn.shape == streams.shape(count)
        assert np.array_equal(drawn, alone)


@pytest.mark.parametrize(("runs", "count"), [(None, 105), (3, 104), (None, 1500)])
@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("kind", ["bits", "normal"])
@pytest.mark.parametrize("threads", [False, True])
def test_compiled_numbers_are_the_same(
    runs: int | None, count: int, bound: bool, kind: str, threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numba  # noqa: F401 (large draws are compiled once it is loaded)

    monkeypatch.setattr("sottovoce.core.compiling.THREADS_PAY_FROM", 0 if threads else 1 << 40)
    monkeypatch.setattr("sottovoce.core.compiling.THREADS.most", 3)
    clients, draw = np.arange(100, 150), getattr(Streams(9, runs), kind)
    words = np.random.default_rng(0).integers(0, 2**32, (*(() if runs is None else (runs,)), 50, 4)).astype(np.uint64)
    about = words if bound else None
    compiled = draw(clients, 7, Purpose.BATCH, count, 3, about)
    monkeypatch.setattr("sottovoce.core.random.streams.compiled_pays", lambda count: False)
    assert compiled.shape == ((50, count) if runs is None else (3, 50, count))
    assert np.array_equal(compiled, draw(clients, 7, Purpose.BATCH, count, 3, about))


def test_numbers_far_out_are_the_same_compiled() -> None:
    """One number in 4e10 is so far out that no seed of a test would show one: the loop is given the bits."""
    import numba  # noqa: F401

    from sottovoce.core.random import compiled

    far = np.uint64(1) << np.arange(8, 28, dtype=np.uint64)
    bits = np.concatenate([far, ~far, np.arange(1, 9, dtype=np.uint64) << np.uint64(60)])
    numbers, q, tails, roots = (np.empty(len(bits)) for _ in range(4))
    compiled._quantiles(bits, len(bits) // 2, 1, numbers, q, tails, roots, np.empty(len(bits), np.int64))
    assert np.abs(numbers).max() > 7
    assert np.array_equal(numbers, normal(bits))


def test_normal_quantile_against_scipy() -> None:
    from scipy.special import ndtri

    grid = np.arange(16_000, dtype=np.uint64) * np.uint64(2**50 + 12345)
    far = np.uint64(1) << np.arange(64, dtype=np.uint64)  # down to the smallest probability there is
    bits = np.concatenate([grid, far, ~far, np.array([0, 2**64 - 1, 2**63], dtype=np.uint64)])
    uniform = ((bits >> np.uint64(12)).astype(float) + 0.5) * 2.0**-52
    assert np.array_equal(to_unit(bits), uniform)
    numbers = normal(bits)
    np.testing.assert_allclose(numbers, ndtri(uniform), rtol=2e-15, atol=1e-16)
    assert np.abs(numbers).max() > 8


@pytest.mark.parametrize("runs", [None, 3])
@pytest.mark.parametrize("count", [3, 60])  # by NumPy, and compiled
def test_normal_numbers_that_are_scaled_and_added_are_the_same_numbers(runs: int | None, count: int) -> None:
    """In one pass over the answer, to the last bit as in three."""
    import_module("numba")
    streams, clients, rng = Streams(5, runs), np.arange(100), np.random.default_rng(0)
    exact, scale = rng.normal(size=(*(() if runs is None else (runs,)), 100, count)), rng.uniform(size=(100, 1))
    plain = streams.normal(clients, 3, Purpose.NOISE, count)
    for scales in (scale, np.full((1, 1), 0.3)):
        for in_place in (False, True):
            kept = exact.copy()
            added = streams.noisy(kept, scales, clients, 3, Purpose.NOISE, in_place=in_place)
            np.testing.assert_array_equal(added, plain * scales + exact)
            assert in_place or np.array_equal(kept, exact)


HELPER = """
from numba import njit, types
from numba.extending import intrinsic
@njit
def inner():
    return {0}
@njit
def called():
    return inner()
@intrinsic
def inserted(typing_context):
    return types.int64(), lambda context, builder, signature, given: context.get_constant(types.int64, {0})
"""
OWN = """
import numpy as np
from numba import types
from helper import called, inserted
from sottovoce.core import compiling
def filling(number):
    def fill(x):
        x[0] = number
    return fill
def with_called(x):
    x[0] = called()
def with_inserted(x):
    x[0] = inserted()
def tell(function, **options):
    kernel, x = compiling.compile_for(types.void(types.float64[::1]), function, **options), np.zeros(1)
    kernel(x)
    print(len(kernel.stats.cache_hits), int(x[0]), end="; ")
tell(filling(5))
tell(filling(6))
tell(filling(5), fastmath={"nsz", "arcp", "contract"})
tell(with_called)
tell(with_inserted)
"""


def test_what_was_compiled_is_found_again_if_and_only_if_it_is_the_same(tmp_path: Path) -> None:
    """By what it was made with, as constants or options, and by all files that it borrows from.

    With one place on disk for all, what was compiled first would be used for every other choice of constants. And Numba
    looks at the date of the function's own file alone: a mended clamp in another file would not be used.
    """
    (tmp_path / "own.py").write_text(OWN)
    command, env = [sys.executable, "own.py"], os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    said: list[str] = []
    for number in (1, 1, 22):
        (tmp_path / "helper.py").write_text(HELPER.format(number))
        said.append(subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True).stdout)
    assert said == [
        "0 5; 0 6; 0 5; 0 1; 0 1; ",
        "1 5; 1 6; 1 5; 1 1; 1 1; ",
        "1 5; 1 6; 1 5; 0 22; 0 22; ",
    ]
