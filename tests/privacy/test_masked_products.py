"""The product of two tables on masked tables: exact, and every attack that a rule closes works without the rule."""

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy.stats import chi2

from sottovoce.core.check import InvalidInput
from sottovoce.privacy import masked_products as mp
from sottovoce.privacy.masked_products import Attempt, PairKey, Refused, Side

ROWS, WIDTHS = 50, (3, 2)
A_KEY, B_KEY, RELAY_KEY = (X25519PrivateKey.generate() for _ in range(3))
SIGMA = 2**37  # of noise, in steps


def attempt(pair: tuple[int, int] = (0, 1), rows: int = ROWS) -> Attempt:
    return Attempt(b"plan", pair, (mp.fresh_secret(), mp.fresh_secret()), rows, WIDTHS)


def tables(seed: int = 0, rows: int = ROWS) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-(2**18), 2**18, size=(rows, width)) for width in WIDTHS]


def noise(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, SIGMA, size=WIDTHS).astype(np.int64)


def sides(at: Attempt, A: np.ndarray, B: np.ndarray, seeds: Any = None) -> tuple[Side, Side]:
    keys = PairKey(A_KEY.exchange(B_KEY.public_key()), at), PairKey(B_KEY.exchange(A_KEY.public_key()), at)
    drawn = seeds or (mp.fresh_secret(), mp.fresh_secret())
    return Side("first", keys[0], A, drawn[0]), Side("second", keys[1], B, drawn[1])


def exchanged(first: Side, second: Side, chunk: int = 17) -> None:
    for start in range(0, first.attempt.rows, chunk):
        rows = min(chunk, first.attempt.rows - start)
        second.receive(first.masked(start, rows))
        first.receive(second.masked(start, rows))


def replies(at: Attempt, A: np.ndarray, B: np.ndarray, N: Any, seeds: Any = None) -> tuple[np.ndarray, np.ndarray]:
    first, second = sides(at, A, B, seeds)
    exchanged(first, second)
    return first.reply(N[0]), second.reply(N[1], mp.dealt(first.seed, second.seed, at))


def opened_block(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The server's part: A'B + N_a + N_b, as signed numbers."""
    return (first + second).view(np.int64)


# ------------------------------------------------------------------------------------------------------ it is exact


@pytest.mark.parametrize("rows", [1, 50, 8193])
def test_what_is_opened_is_the_product_with_both_noises(rows: int) -> None:
    at, (A, B), N = attempt(rows=rows), tables(rows=rows), (noise(1), noise(2))
    opened = opened_block(*replies(at, A, B, N))
    np.testing.assert_array_equal(opened, A.T @ B + N[0] + N[1])


def test_products_of_64_bit_numbers_are_exact_modulo_2_64() -> None:
    rng = np.random.default_rng(3)
    A, B = (rng.integers(0, 2**64, size=(1300, width), dtype=np.uint64) for width in (3, 4))
    A[:600], B[:600] = 2**64 - 1, 2**64 - 1  # sums of limbs as large as they get
    np.testing.assert_array_equal(mp.product(A, B), A.T @ B)
    np.testing.assert_array_equal(
        mp.product(A, -np.ones((1300, 1), int)), (0 - A.sum(axis=0, dtype=np.uint64))[:, None]
    )


def test_masks_do_not_depend_on_how_rows_are_cut_into_chunks() -> None:
    at, seed = attempt(rows=9000), mp.fresh_secret()
    whole = mp.mask(seed, at, "U", 0, 9000)
    np.testing.assert_array_equal(mp.mask(seed, at, "U", 8000, 700), whole[8000:8700])
    assert len(np.unique(whole)) == whole.size  # no row of a later chunk repeats an earlier one's


# ------------------------------------------------------------------------------------------------- attacks, and rules


def test_a_dealer_that_drew_the_masks_could_read_a_table_and_here_it_draws_none() -> None:
    A, B = tables()
    assert np.array_equal(mp.as_words(A) - np.zeros(A.shape, np.uint64), mp.as_words(A))  # E = A under masks of zeros
    at = attempt()
    first, _ = sides(at, A, B)
    hidden = first.masked(0, ROWS) - mp.as_words(A)
    assert (np.bincount((hidden >> np.uint64(63)).ravel().astype(int), minlength=2) > 50).all()


def test_a_false_dealer_moves_the_sum_by_a_number_it_chose_and_learns_nothing() -> None:
    at, seeds, N, moved = attempt(), (mp.fresh_secret(), mp.fresh_secret()), (noise(1), noise(2)), np.uint64(10**12)
    for seed in (0, 9):  # whatever the tables are
        A, B = tables(seed)
        first, second = sides(at, A, B, seeds)
        exchanged(first, second)
        lie = mp.dealt(*seeds, at) + moved
        opened = opened_block(first.reply(N[0]), second.reply(N[1], lie))
        np.testing.assert_array_equal(opened, A.T @ B + N[0] + N[1] + 10**12)


def test_without_the_common_mask_a_server_that_deals_tells_neighbours_apart() -> None:
    at, seeds = attempt(), (mp.fresh_secret(), mp.fresh_secret())
    A, B = tables()
    other = B.copy()
    other[7] = -other[7]  # one record
    U, V = (mp.mask(seeds[place], at, name, 0, ROWS) for place, name in enumerate(("U", "V")))

    def seen(table: np.ndarray, with_mask: bool) -> np.ndarray:
        """S_a + N_a, with what the dealer knows taken off: U'B + N_a."""
        first, second = sides(at, A, table, seeds)
        exchanged(first, second)
        share = first.reply(noise())
        share = share if with_mask else share - first.key.common_mask()
        return (share - mp.uniform_product(seeds[0], at, "W_1") + mp.product(U, V)).view(np.int64)

    def gaps(with_mask: bool) -> np.ndarray:
        guess = (mp.product(U, B) + mp.as_words(noise())).view(np.int64)
        return np.abs((seen(B, with_mask) - guess).astype(np.float64))

    assert (gaps(with_mask=False) == 0).all()  # the dealer's guess of the first neighbour is right to the last bit
    far = np.abs((seen(B, False) - seen(other, False)).astype(np.float64))
    assert (far > 1e4 * SIGMA).all()  # and the second is as far away as any other table
    assert (gaps(with_mask=True) > 1e4 * SIGMA).all()  # with R neither guess is better than another


def test_a_mask_used_twice_shows_the_difference_of_two_tables() -> None:
    at, seed = attempt(), mp.fresh_secret()
    (A, B), (changed, _) = tables(), tables(5)

    def difference(second_attempt: Attempt) -> np.ndarray:
        one, _ = sides(at, A, B, (seed, seed[::-1]))
        two, _ = sides(second_attempt, changed, B, (seed, seed[::-1]))  # the same seed, as after a restored disk
        return (one.masked(0, ROWS) - two.masked(0, ROWS)).view(np.int64)

    np.testing.assert_array_equal(difference(at), A - changed)
    fresh = replace(at, nonces=(at.nonces[0], mp.fresh_secret()))  # the other owner's nonce alone is new
    assert not (difference(fresh) == A - changed).any()


def test_a_common_mask_used_twice_cancels() -> None:
    at = attempt()
    A, B = tables()

    def difference(second_attempt: Attempt) -> tuple[np.ndarray, np.ndarray]:
        seeds = [(mp.fresh_secret(), mp.fresh_secret()) for _ in range(2)]
        given = [
            replies(each, A, B, (noise(), noise()), own)[0] - mp.uniform_product(own[0], each, "W_1")
            for each, own in zip((at, second_attempt), seeds, strict=True)
        ]
        # U'(B − V) − U*'(B − V*), and the dealer knows U, U*, V, V*
        known = [[mp.mask(own[p], each, name, 0, ROWS) for p, name in enumerate(("U", "V"))]
                 for each, own in zip((at, second_attempt), seeds, strict=True)]  # fmt: skip
        masks = mp.product(*known[0]) - mp.product(*known[1])
        return given[0] - given[1] + masks, mp.product(known[0][0] - known[1][0], B)

    assert np.array_equal(*difference(at))  # (U − U*)'B, without any noise
    seen, exact = difference(attempt())
    assert not (seen == exact).any()


def test_a_relay_that_slips_in_its_key_reads_a_table_unless_keys_are_pinned() -> None:
    at = attempt()
    A, B = tables()
    first, _ = sides(at, A, B)
    box = first.key.sealed("first", 0, first.masked(0, ROWS).tobytes())
    tricked = PairKey(A_KEY.exchange(RELAY_KEY.public_key()), at)  # an owner that takes the key it is sent
    relay = PairKey(RELAY_KEY.exchange(A_KEY.public_key()), at)
    E = np.frombuffer(
        relay.unsealed("first", 0, tricked.sealed("first", 0, first.masked(0, ROWS).tobytes())), np.uint64
    )
    U = mp.mask(first.seed, at, "U", 0, ROWS)  # the relay is the dealer
    np.testing.assert_array_equal((E.reshape(A.shape) + U).view(np.int64), A)
    with pytest.raises(Refused, match="pinned"):
        relay.unsealed("first", 0, box)
    second = PairKey(B_KEY.exchange(A_KEY.public_key()), at)
    assert second.unsealed("first", 0, box) == first.masked(0, ROWS).tobytes()
    for sender, chunk, context in (("second", 0, at), ("first", 1, at), ("first", 0, attempt())):
        with pytest.raises(Refused):  # another direction, place or attempt
            replace(second, attempt=context).unsealed(sender, chunk, box)  # type: ignore[arg-type]
    with pytest.raises(Refused):
        second.unsealed("first", 0, box[:-1] + bytes([box[-1] ^ 1]))


def test_a_second_masked_table_would_show_a_row_and_is_refused() -> None:
    at = attempt()
    A, B = tables()
    first, second = sides(at, A, B)
    F = second.masked(0, ROWS)
    probe = F.copy()
    probe[7, 0] += np.uint64(1)
    U, E = mp.mask(first.seed, at, "U", 0, ROWS), first.masked(0, ROWS)
    # Two answers under the same noise: U'(F* − F), and with E'(F* − F) added row 7 of A
    shown = mp.product(U, probe) - mp.product(U, F) + mp.product(E, probe - F)
    np.testing.assert_array_equal(shown[:, 0].view(np.int64), A[7])
    exchanged(first, second)
    given = first.reply(noise())
    with pytest.raises(Refused, match="once"):
        first.receive(probe)
    np.testing.assert_array_equal(first.reply(noise(7)), given)  # asked again it gives the same bytes, not new noise


def test_one_mask_for_two_pairs_would_give_a_table_to_the_third_owner() -> None:
    A, B = tables()
    seed = mp.fresh_secret()
    with_b, with_c = attempt((0, 1)), attempt((0, 2))
    first, _ = sides(with_b, A, B, (seed, mp.fresh_secret()))
    to_b = first.masked(0, ROWS)
    # Owner c deals to (a, b), so it knows that pair's U; if E of (a, c) had the same U, it would have A.
    np.testing.assert_array_equal((to_b + mp.mask(seed, with_b, "U", 0, ROWS)).view(np.int64), A)
    for other in (with_c, replace(with_b, pair=(0, 2))):  # even with one seed, and even with the same nonces
        assert not (mp.mask(seed, other, "U", 0, ROWS) == mp.mask(seed, with_b, "U", 0, ROWS)).any()


def test_no_share_leaves_before_the_table_is_whole_nor_without_what_was_dealt() -> None:
    at = attempt()
    first, second = sides(at, *tables())
    with pytest.raises(Refused, match="complete"):
        first.reply(noise())
    exchanged(first, second)
    with pytest.raises(InvalidInput, match="W_2"):
        second.reply(noise())
    with pytest.raises(Refused):
        first.receive(np.zeros((1, WIDTHS[1]), np.uint64))  # a row too many
    with pytest.raises(InvalidInput, match="nonces"):
        replace(at, nonces=(at.nonces[0], at.nonces[0]))
    shares = {name for name in vars(Side) if not name.startswith("_") and callable(getattr(Side, name))}
    assert shares == {"masked", "receive", "reply"}  # there is no other way out


def test_a_masked_table_of_another_kind_is_refused_and_every_entry_gets_noise_of_its_own() -> None:
    at, (A, B) = attempt(), tables()
    first, second = sides(at, A, B)
    F = second.masked(0, ROWS)
    others: list[Any] = [F[:0], F.astype(np.float64), F.view(np.int64), F[:, :1], F[0], np.vstack([F, F])]
    for other in others:
        with pytest.raises(Refused, match="agreed size"):
            first.receive(other)
    exchanged(first, second)
    for one_for_all in (noise()[:1], noise()[:, :1], noise()[0, 0], noise().astype(np.float64)):
        with pytest.raises(InvalidInput, match="noise of its own"):
            first.reply(one_for_all)
    W_2 = mp.dealt(first.seed, second.seed, at)
    false: list[Any] = [W_2[:1], W_2.astype(np.float64)]
    for dealt in false:
        with pytest.raises(Refused, match="dealer"):
            second.reply(noise(2), dealt)
    np.testing.assert_array_equal(opened_block(first.reply(noise(1)), second.reply(noise(2), W_2)),
                                  A.T @ B + noise(1) + noise(2))  # fmt: skip


# ---------------------------------------------------------------------------------------------- what each party sees


def test_masked_tables_are_uniform_whatever_the_tables_are() -> None:
    """Chi-square on the low and the high bytes of E and F, for tables of zeros, of ones and of large entries."""
    rows, at = 8000, attempt(rows=8000)
    for entry in (0, 1, 2**18):
        for side in sides(at, np.full((rows, 3), entry), np.full((rows, 2), -entry)):
            words = side.masked(0, rows).ravel()
            for shift in (0, 28, 56):
                counts = np.bincount(((words >> np.uint64(shift)) & np.uint64(255)).astype(int), minlength=256)
                expected = len(words) / 256
                assert chi2.sf(np.square(counts - expected).sum() / expected, 255) > 1e-9


def test_masked_tables_are_independent_of_the_tables() -> None:
    """Chi-square of a bit of E against the sign of the entry that it hides, low bit and high bit."""
    rows, at = 20_000, attempt(rows=20_000)
    A = np.random.default_rng(0).integers(-(2**18), 2**18, size=(rows, 3))
    first, _ = sides(at, A, np.zeros((rows, 2), int))
    E = first.masked(0, rows)
    for bit in (0, 17, 63):
        table = np.zeros((2, 2))
        np.add.at(table, ((A < 0).astype(int).ravel(), ((E >> np.uint64(bit)) & np.uint64(1)).astype(int).ravel()), 1)
        expected = table.sum(1)[:, None] * table.sum(0) / table.sum()
        assert chi2.sf((np.square(table - expected) / expected).sum(), 1) > 1e-9


def test_the_dealers_transcript_has_no_data_in_it() -> None:
    """All it gets are two seeds and public numbers; what it returns is the same for any two pairs of tables."""
    at, seeds = attempt(), (mp.fresh_secret(), mp.fresh_secret())
    given = []
    for seed in (0, 1):
        A, B = tables(seed)
        first, second = sides(at, A, B, seeds)
        exchanged(first, second)
        given.append((first.seed, second.seed, mp.dealt(first.seed, second.seed, first.attempt).tobytes()))
    assert given[0] == given[1]


def test_scores_of_new_samples_are_summed_under_fresh_masks() -> None:
    keys, rng = [X25519PrivateKey.generate() for _ in range(3)], np.random.default_rng(0)
    scores = rng.normal(size=(3, 500)) * 10

    def parts(query: bytes, values: np.ndarray = scores) -> list[np.ndarray]:
        agreed = [{o: keys[m].exchange(keys[o].public_key()) for o in range(3) if o != m} for m in range(3)]
        return [mp.masked_scores(values[m], m, agreed[m], query) for m in range(3)]

    first, second = parts(b"query 1"), parts(b"query 2")
    np.testing.assert_allclose(mp.opened_scores(first), scores.sum(axis=0), atol=1e-9)
    np.testing.assert_allclose(mp.opened_scores(second), scores.sum(axis=0), atol=1e-9)
    for m in range(3):  # a part alone is uniform, and no two queries share masks
        assert 200 < (first[m] >> np.uint64(63)).sum() < 300
        assert not (first[m] == second[m]).any()
    other = parts(b"query 1", scores + 1.0)  # under one query twice, an owner's parts differ by what its scores do
    np.testing.assert_allclose((other[0] - first[0]).view(np.int64) / mp.SCORE_STEPS, 1.0, atol=1e-9)


def test_parts_of_scores_keep_their_bound_whatever_they_are() -> None:
    """So that the parts of as many owners as there may be fit in 64 bits."""
    most = mp.MOST_SCORED
    pairs = {frozenset((m, o)): mp.fresh_secret() for m in range(most) for o in range(m)}

    def opened(value: float) -> float:
        secrets = [{o: pairs[frozenset((m, o))] for o in range(most) if o != m} for m in range(most)]
        parts = [mp.masked_scores(np.array([value]), m, secrets[m], b"query") for m in range(most)]
        return mp.opened_scores(parts).item()

    for value, expected in ((np.inf, 1), (-1e300, -1), (2.0**26, 1), (np.nan, 0)):
        assert opened(value) == expected * most * mp.LARGEST_SCORE


# ------------------------------------------------------------------------------------- all coalitions, over Z modulo 3

HONEST_NOISE = ((0, 0), (0, 1), (1, 0), (1, 1))  # N_a, N_b: not uniform, so it hides something but not everything


def views(A: int, B: int, coalition: frozenset[str], rule: str) -> Counter[Any]:
    """How often each view occurs, over all masks and noise. `rule`: what is left out of the protocol, if anything."""
    seen: Counter[Any] = Counter()
    for U, V, W1, R in itertools.product(range(3), repeat=4):
        W1, R = (0 if rule == "no W_1" else W1), (0 if rule == "no R" else R)
        for N_a, N_b in HONEST_NOISE:
            W2, E, F = (U * V - W1) % 3, (A - U) % 3, (B - V) % 3
            to_server = (U * F + W1 + N_a + R) % 3, (E * B + W2 + N_b - R) % 3
            of = {
                "server": (*to_server, *((E, F) if rule == "server reads E and F" else ())),
                "dealer": (U, W1, V),
                "a": (A, U, W1, F, N_a, R),
                "b": (B, V, E, W2, N_b, R),
            }
            seen[tuple(of[who] for who in sorted(coalition))] += 1
    return seen


def sees_more(coalition: frozenset[str], rule: str = "") -> bool:
    """Whether the law of a view depends on more than the coalition's own tables and the product."""
    laws: dict[Any, list[Counter[Any]]] = {}
    for A, B in itertools.product(range(3), repeat=2):
        own = tuple(value for who, value in (("a", A), ("b", B)) if who in coalition)
        laws.setdefault((own, A * B % 3), []).append(views(A, B, coalition, rule))
    return any(law != group[0] for group in laws.values() for law in group)


EVERYONE = [frozenset(c) for size in (1, 2, 3) for c in itertools.combinations(("server", "dealer", "a", "b"), size)]
LEAKS = {"a", "b"}


@pytest.mark.parametrize(
    ("rule", "more"),
    [
        ("", []),
        ("no R", [{"server", "dealer"}]),
        ("no W_1", [{"b"}]),
        ("server reads E and F", [{"server", "dealer"}]),
    ],
)
def test_exactly_an_owner_with_its_dealer_sees_more(rule: str, more: list[set[str]]) -> None:
    worst = [{"dealer", "a"}, {"dealer", "b"}, *more]
    for coalition in EVERYONE:
        if {"a", "b"} <= coalition:
            continue  # nobody is honest
        assert sees_more(coalition, rule) == any(each <= coalition for each in worst), (rule, coalition)
