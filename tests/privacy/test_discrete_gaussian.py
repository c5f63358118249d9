"""Discrete Gaussian integers against the exact distribution, against OpenDP, and with their rare paths forced."""

import dataclasses
import decimal
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import stats

from sottovoce.core.check import InvalidInput
from sottovoce.core.random.bits import SeededBits, SystemBits
from sottovoce.privacy import discrete_gaussian as sampler
from sottovoce.privacy import discrete_noise
from sottovoce.privacy.discrete_gaussian import draw, draw_rows, exp_minus

SCALES = [8.0, 100.5, 2.0**12, 1290948.4843675597, 2.0**40]
ALL_SCALES = [2.0**-4, 0.5, 1.0, *SCALES, 2.0**45, 2.0**47]
LEAST_CHANCE = 1e-6  # p-values below it fail; seeds are fixed, so a test of chance fails always or never


class Scripted:
    """Bits as a test wants them."""

    seeded: ClassVar[bool] = True

    def __init__(self, words: list[int], further: dict[int, int]) -> None:
        self._words, self._further, self.position, self.asked = words, further, 0, []

    def words(self, count: int) -> np.ndarray:
        self.position += count
        return np.array(self._words[self.position - count : self.position], dtype=np.uint64)

    def further(self, place: int) -> int:
        self.asked.append(place)
        return self._further[place]


def _high_precision_exp(x: Fraction) -> Fraction:
    """exp(−x) to 170 digits. Python's decimal numbers have an exponential that is rounded correctly."""
    with decimal.localcontext(prec=170):
        return Fraction((-Decimal(x.numerator) / Decimal(x.denominator)).exp())


def _probabilities(sigma: float, largest: int) -> np.ndarray:
    """P(−largest), ..., P(largest)."""
    weights = np.exp(-(np.arange(-largest, largest + 1) ** 2) / (2 * sigma**2))
    return weights / weights.sum()


def _edges(sigma: float, count: int) -> np.ndarray:
    """Borders between whole numbers that cut the distribution into about `count` parts of equal probability."""
    return np.unique(np.rint(sigma * stats.norm.ppf(np.arange(1, count) / count))) - 0.5


def _parts(sigma: float, edges: np.ndarray) -> np.ndarray:
    """The exact probability of each part."""
    if sigma < 1000:
        largest = int(12 * sigma)
        below = np.concatenate([[0.0], np.cumsum(_probabilities(sigma, largest))])
        return np.diff(below[(edges + largest + 0.5).astype(int)], prepend=0.0, append=1.0)
    return np.diff(stats.norm.cdf(edges / sigma), prepend=0.0, append=1.0)  # off by less than 1/(24 σ²)


# The proof, step by step


def test_the_exact_exponential() -> None:
    rng = np.random.default_rng(0)
    points = [Fraction(0), Fraction(1024), Fraction(1, 2**600), Fraction(2, 3), Fraction(355)]
    points += [Fraction(float(x)) for largest in (3, 900) for x in rng.uniform(0, largest, 50)]
    for x in points:
        off = Fraction(exp_minus(x.numerator, x.denominator), 2**512) - _high_precision_exp(x)
        assert abs(off) < Fraction(1, 2**487)
    assert exp_minus(0, 1) == 2**512
    for outside in (-1, 1025):
        with pytest.raises(InvalidInput, match="between 0 and 1024"):
            exp_minus(outside, 1)


def test_floating_point_is_within_its_enclosure() -> None:
    """20 000 thresholds exp(−γ) as candidates compute them, next to exact ones: off by less than 2^-50."""
    rng, worst = np.random.default_rng(1), 0.0
    for sigma in SCALES[1:]:
        table = sampler._table(sigma)
        starts = rng.integers(0, len(table.thresholds) // 4, 5_000) * table.width
        offsets = rng.integers(0, table.width, 5_000)
        by_float = np.exp((2.0 * starts + offsets) * offsets * table.rate)
        numerator, denominator = table.ratio
        for start, offset, threshold in zip(starts.tolist(), offsets.tolist(), by_float.tolist(), strict=True):
            exact = exp_minus(offset * (2 * start + offset) * numerator, denominator)
            worst = max(worst, abs(int(threshold * 2**80) - (exact >> 432)) / 2**80)
    assert worst < 2.0**-50
    assert worst * 1000 < sampler.SLACK


@pytest.mark.parametrize("sigma", [2.0**-4, 0.3, 1.0, 8.0, 33.3])
def test_the_exact_distribution_of_what_is_drawn(sigma: float) -> None:
    """From the thresholds that are used, all of them: in total variation within 2^-300 of the distribution."""
    table = sampler._table(sigma)
    borders = [0, *table.thresholds, 1 << 320]
    half = Fraction(1, 2 * table.width << 640)
    drawn: dict[int, Fraction] = {}
    for a in range(len(borders) - 1):
        for b in range(table.width):
            limit = exp_minus(b * (2 * a * table.width + b) * table.ratio[0], table.ratio[1]) >> 192
            chance = (borders[a + 1] - borders[a]) * limit * half
            size = a * table.width + b
            drawn[size] = chance
            if size:
                drawn[-size] = chance
    total = sum(drawn.values())
    exact = {z: _high_precision_exp(Fraction(z) ** 2 / (2 * Fraction(sigma) ** 2)) for z in range(max(drawn) + 1)}
    norm = 2 * sum(exact.values()) - exact[0]
    assert sum(abs(drawn[z] / total - exact[abs(z)] / norm) for z in drawn) / 2 < Fraction(1, 2**300)
    assert max(drawn) > 24 * sigma - 1
    assert total > Fraction(1, 2) if sigma < 32 else total > Fraction(95, 100)


@pytest.mark.parametrize("sigma", ALL_SCALES)
def test_the_guide_agrees_with_the_table(sigma: float) -> None:
    table = sampler._table(sigma)
    cells = np.flatnonzero(table.guide >= 0).astype(np.uint64)
    for word in (cells << np.uint64(52), (cells << np.uint64(52)) | np.uint64(2**52 - 1)):
        low, high = sampler._enclosed(table.prefixes, word)
        np.testing.assert_array_equal(low, high)
        np.testing.assert_array_equal(low * float(table.width), table.guide[cells.astype(int)])
    assert (table.guide < 0).mean() < 0.03, "few numbers have to be searched for"
    assert table.width == 1 if sigma < 32 else 16 <= sigma / table.width < 32
    assert len(table.thresholds) < 769
    assert (np.diff(table.thresholds) >= 0).all()


# The rare paths


def _reference(sigma: float, count: int, bits: Any) -> list[int]:
    """The rule as the module's first page has it, for one number after the other, with all 320 bits at once."""
    ratio, width = 1 / (2 * Fraction(sigma) ** 2), 1
    while 32 * width <= sigma:
        width *= 2
    weights = [_high_precision_exp((a * width) ** 2 * ratio) for a in range(int(24 * sigma / width) + 1)]
    total, drawn = sum(weights), []
    while len(drawn) < count:
        place = bits.position
        u, v, r = (int(word) for word in bits.words(3))
        choice = Fraction(u << 256 | bits.further(place), 1 << 320) * total
        a = 0
        while choice >= weights[a]:
            choice -= weights[a]
            a += 1
        b = r % width
        keep = Fraction(v << 256 | bits.further(place + 1), 1 << 320) < _high_precision_exp(
            b * (2 * a * width + b) * ratio
        )
        if keep and not (r >> 63 and a == b == 0):
            drawn.append(-(a * width + b) if r >> 63 else a * width + b)
    return drawn


@pytest.mark.parametrize("sigma", ALL_SCALES)
def test_agrees_with_the_rule_written_out(sigma: float) -> None:
    drawn = draw(sigma, 120, SeededBits(3, f"rule {sigma}"))
    assert drawn.tolist() == _reference(sigma, 120, SeededBits(3, f"rule {sigma}"))


def _undecided(monkeypatch: pytest.MonkeyPatch, sigma: float) -> None:
    """Make every comparison one that the first 64 bits do not decide."""
    table = sampler._table(sigma)
    never = dataclasses.replace(table, guide=np.full_like(table.guide, -1.0))
    monkeypatch.setattr(sampler, "_table", lambda _: never)
    monkeypatch.setattr(sampler, "SLACK", 2.0)

    def widest(prefixes: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(len(words), dtype=np.int64), np.full(len(words), len(prefixes))

    monkeypatch.setattr(sampler, "_enclosed", widest)


@pytest.mark.parametrize("sigma", ALL_SCALES)
def test_the_exact_path_gives_the_same_integers(sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = draw(sigma, 1000, SeededBits(4, "paths"))
    _undecided(monkeypatch, sigma)
    bits = SeededBits(4, "paths")
    asked = []
    monkeypatch.setattr(
        SeededBits, "further", lambda self, place, real=SeededBits.further: asked.append(place) or real(self, place)
    )
    np.testing.assert_array_equal(draw(sigma, 1000, bits), usual)
    assert sorted(asked) == [place for place in range(bits.position) if place % 3 < 2]


def test_blocks_that_64_bits_do_not_decide() -> None:
    """U begins like a threshold: the further bits say on which side of it U is."""
    sigma, zero = 100.5, 1 << 62  # V far below any threshold near b = 0; R = 0: plus, b = 0
    table = sampler._table(sigma)
    for a in (1, 2, 40, 130):
        prefix, rest = divmod(table.thresholds[a - 1], 1 << 256)
        for further, block in ((rest - 1, a - 1), (rest, a), (0, a - 1), (2**256 - 1, a)):
            bits = Scripted([prefix, zero, 0], {0: further})
            assert draw(sigma, 1, bits).tolist() == [block * table.width]
            assert bits.asked == [0]
        assert draw(sigma, 1, Scripted([prefix - 1, zero, 0], {})).tolist() == [(a - 1) * table.width]
        assert draw(sigma, 1, Scripted([prefix + 1, zero, 0], {})).tolist() == [a * table.width]


@pytest.mark.parametrize("sigma", SCALES[1:])
def test_keeping_that_64_bits_do_not_decide(sigma: float) -> None:
    """V begins like exp(−γ): the further bits say whether the candidate is kept."""
    table = sampler._table(sigma)
    a, b = 20, table.width - 1
    block = (table.thresholds[a - 1] + table.thresholds[a]) // 2 >> 256
    limit = exp_minus(b * (2 * a * table.width + b) * table.ratio[0], table.ratio[1]) >> 192
    prefix, rest = divmod(limit, 1 << 256)
    other = [1 << 62, 0, 0]  # the next candidate, kept
    second = draw(sigma, 1, Scripted(other, {})).tolist()
    kept = [-(a * table.width + b)]
    near = 2**20  # 2^-44: within the slack
    for word, further, expected in (
        (prefix, rest - 1, kept),
        (prefix, rest, second),
        (prefix, 0, kept),
        (prefix, 2**256 - 1, second),
        (prefix - near, 2**256 - 1, kept),
        (prefix + near, 0, second),
    ):
        bits = Scripted([block, word, 1 << 63 | b, *other], {1: further})
        assert draw(sigma, 1, bits).tolist() == expected
        assert bits.asked == [1]
    far = 2**26
    for word, expected in ((prefix - far, kept), (prefix + far, second)):
        assert draw(sigma, 1, Scripted([block, word, 1 << 63 | b, *other], {})).tolist() == expected


def test_certain_candidates_are_kept_whatever_v_is() -> None:
    """b = 0: the threshold is 1, and the largest V is still below it."""
    bits = Scripted([0, 2**64 - 1, 0], {1: 2**256 - 1})
    assert draw(100.5, 1, bits).tolist() == [0]


def test_minus_zero_is_drawn_again() -> None:
    for sigma in (0.5, 100.5, 2.0**40):
        minus, plus, one = [0, 0, 1 << 63], [0, 0, 0], [2**64 - 2**60, 0, 1 << 63]
        assert draw(sigma, 1, Scripted([*minus, *minus, *plus], {})).tolist() == [0]
        assert draw(sigma, 2, Scripted([*minus, *one, *minus, *plus], {}))[0] < 0


@pytest.mark.parametrize("sigma", ALL_SCALES)
def test_the_furthest_number(sigma: float) -> None:
    last = sampler._table(sigma)
    b = last.width - 1
    bits = Scripted([2**64 - 1, 0, 1 << 63 | b], {0: 2**256 - 1})
    furthest = -int(draw(sigma, 1, bits)[0])
    assert 20 * sigma - 1 < furthest < (sampler.REACH + 1) * sigma + 1
    assert furthest == len(last.thresholds) * last.width + b


@pytest.mark.parametrize("sigma", SCALES)
def test_the_last_bits_of_exp_do_not_matter(sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = draw(sigma, 50_000, SeededBits(5, "exp"))
    rng = np.random.default_rng(2)
    for off in (2.0**-53, 64 * 2.0**-53, 2.0**-42):
        monkeypatch.setattr(sampler, "_float_exp", lambda x, off=off: np.exp(x) + off * rng.integers(-1, 2, x.shape))
        np.testing.assert_array_equal(draw(sigma, 50_000, SeededBits(5, "exp")), usual)


# How it is called


def test_the_same_bits_give_the_same_integers_everywhere() -> None:
    """Recorded numbers: they must never change, on no machine."""
    assert draw(SCALES[3], 5, SeededBits(0, "recorded")).tolist() == [1789020, 2765172, 573397, -946492, -858445]
    assert draw(8.0, 12, SeededBits(0, "recorded")).tolist() == [11, 17, 3, -6, -5, -11, 3, 5, 3, 10, 9, 3]
    many = draw(2.0**40, 100_000, SeededBits(0, "recorded"))
    assert int(np.bitwise_xor.reduce(many)) == 3953068574103


def test_numbers_do_not_depend_on_how_many_are_drawn_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = draw(100.5, 5000, SeededBits(6, "calls"))
    bits = SeededBits(6, "calls")
    parts = [draw(100.5, size, bits) for size in (1, 0, 999, 3000, 1000)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    monkeypatch.setattr(sampler, "_CHUNK", 7)
    np.testing.assert_array_equal(draw(100.5, (50, 100), SeededBits(6, "calls")).reshape(-1), whole)


@pytest.mark.parametrize("sigma", [0.5, 100.5, 2.0**40])
@pytest.mark.parametrize("forced", [False, True])
def test_rows_are_what_each_stream_gives_alone(sigma: float, forced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if forced:
        _undecided(monkeypatch, sigma)
    monkeypatch.setattr(sampler, "_CHUNK", 64)
    for count in (30, 7, 0):  # streams are used up by one call: it takes more candidates than are needed
        streams, alone = ([SeededBits(7, f"client {i}") for i in range(5)] for _ in range(2))
        np.testing.assert_array_equal(streams[2].words(10), alone[2].words(10))
        rows = draw_rows(sigma, count, streams)
        np.testing.assert_array_equal(rows, np.stack([draw(sigma, count, bits) for bits in alone]))
    assert draw_rows(sigma, 3, []).shape == (0, 3)


def test_a_stream_that_serves_two_rows_gives_each_its_own_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    _undecided(monkeypatch, 100.5)
    asked = []
    monkeypatch.setattr(
        SeededBits, "further", lambda self, place, real=SeededBits.further: asked.append(place) or real(self, place)
    )
    bits = SeededBits(7, "shared")
    draw_rows(100.5, 10, [bits, bits, bits])
    assert sorted(asked) == [place for place in range(bits.position) if place % 3 < 2]


def test_shapes_and_types() -> None:
    bits = SystemBits()
    for shape, expected in ((3, (3,)), ((2, 3), (2, 3)), ((), ()), (0, (0,)), ((4, 0), (4, 0))):
        drawn = draw(8, shape, bits)
        assert drawn.shape == expected
        assert drawn.dtype == np.int64
    assert draw(np.float32(8), np.int64(2), bits).shape == (2,)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "sigma", [math.nan, math.inf, -math.inf, 0.0, -8.0, 2.0**-4.01, 2.0**47.01, True, "8", None, np.ones(1)]
)
def test_scales_outside_the_range_are_refused(sigma: Any) -> None:
    with pytest.raises(InvalidInput, match="discrete_gaussian: sigma must"):
        draw(sigma, 1, SystemBits())
    with pytest.raises(InvalidInput, match="discrete_gaussian: sigma must"):
        draw_rows(sigma, 1, [SystemBits()])


@pytest.mark.parametrize("shape", [-1, 2.5, (2, -1), None, "3"])
def test_shapes_must_be_whole_numbers(shape: Any) -> None:
    with pytest.raises(InvalidInput, match="shape must be a whole number"):
        draw(8.0, shape, SystemBits())


# The distribution of many numbers


@pytest.mark.parametrize("sigma", [0.5, 1.0, *SCALES])
def test_chi_square_against_the_exact_distribution(sigma: float) -> None:
    drawn = draw(sigma, 400_000, SeededBits(8, "chi-square"))
    edges = _edges(sigma, 200) if sigma > 1 else np.arange(-2, 3) - 0.5
    counts = np.bincount(edges.searchsorted(drawn), minlength=len(edges) + 1)
    assert stats.chisquare(counts, _parts(sigma, edges) * drawn.size).pvalue > LEAST_CHANCE
    assert stats.binomtest(int((drawn > 0).sum()), int((drawn != 0).sum())).pvalue > LEAST_CHANCE, "symmetric"


@pytest.mark.parametrize("sigma", [0.5, 1.0, 8.0, 100.5])
def test_zero_has_its_probability(sigma: float) -> None:
    drawn = draw(sigma, 400_000, SeededBits(9, "zero"))
    expected = float(_probabilities(sigma, int(12 * sigma) + 3).max())
    assert stats.binomtest(int((drawn == 0).sum()), drawn.size, expected).pvalue > LEAST_CHANCE


@pytest.mark.parametrize("sigma", SCALES)
def test_moments_tails_and_neighbours(sigma: float) -> None:
    drawn = draw(sigma, 1_000_000, SeededBits(10, "moments")) / sigma
    power = np.ones_like(drawn)
    for moment, variance in ((0, 1), (1, 2), (0, 15), (3, 96)):  # of the first four powers of a normal number
        power *= drawn
        assert abs(power.mean() - moment) < 5 * math.sqrt(variance / drawn.size)
    assert abs((drawn[1:] * drawn[:-1]).mean()) < 5 / math.sqrt(drawn.size)
    for far in (3, 4, 4.5):
        edge = math.floor(far * sigma) + 0.5
        expected = 2 * float(_parts(sigma, np.array([edge]))[1])
        assert stats.binomtest(int((np.abs(drawn) > far).sum()), drawn.size, expected).pvalue > LEAST_CHANCE


@pytest.mark.parametrize("sigma", SCALES[2:])
def test_low_bits_are_uniform(sigma: float) -> None:
    drawn = draw(sigma, 400_000, SeededBits(11, "bits"))
    for shift in (0, 4, max(0, int(math.log2(sigma)) - 11)):  # the last below the block's width
        counts = np.bincount((drawn >> shift) & 255, minlength=256)
        assert stats.chisquare(counts).pvalue > LEAST_CHANCE


@pytest.mark.parametrize("sigma", SCALES)
def test_chi_square_against_opendp(sigma: float) -> None:
    """An independent implementation, on numbers that differ in each run: it fails once in a billion runs."""
    theirs = discrete_noise.noised_by_opendp("gaussian", sigma, np.zeros(10_000, np.int64))
    ours = draw(sigma, 200_000, SystemBits())
    edges = _edges(sigma, 40)
    for parts, part_of in ((len(edges) + 1, edges.searchsorted), (4, lambda drawn: drawn & 3)):
        counts = [np.bincount(part_of(drawn), minlength=parts) for drawn in (theirs, ours)]
        outcome: Any = stats.chi2_contingency(counts)
        assert outcome.pvalue > 1e-9
