"""Secret sharing against a system of equations that is solved by elimination, and against brute force in small."""

from fractions import Fraction
from itertools import combinations

import pytest

from sottovoce.deploy.aggregation import shamir
from tests.deploy.aggregation.lying_server import joined


def solved(shares: dict[int, int], degree: int, prime: int) -> int:
    """f(0) from Σ c_m x^m = f(x), by Gaussian elimination modulo a prime: no Lagrange, no Horner."""
    rows = [[pow(x, m, prime) for m in range(degree + 1)] + [value % prime] for x, value in shares.items()]
    for column in range(degree + 1):
        pivot = next(row for row in range(column, len(rows)) if rows[row][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        inverse = pow(rows[column][column], prime - 2, prime)
        rows[column] = [entry * inverse % prime for entry in rows[column]]
        for row in range(len(rows)):
            if row != column:
                factor = rows[row][column]
                rows[row] = [(a - factor * b) % prime for a, b in zip(rows[row], rows[column], strict=True)]
    return rows[0][-1]


@pytest.mark.parametrize(("threshold", "n"), [(1, 2), (2, 3), (4, 6), (7, 10), (67, 100)])
def test_shares_are_those_of_a_polynomial_found_by_elimination(threshold: int, n: int) -> None:
    secret = shamir.draw()
    shares = dict(enumerate(shamir.split(secret, threshold, n), 1))
    chosen = dict(list(shares.items())[-threshold:])
    assert solved(chosen, threshold - 1, shamir.PRIME) == secret
    assert joined(chosen) == secret


def test_every_set_of_the_threshold_joins_and_one_fewer_gives_something_else() -> None:
    secret = shamir.draw()
    shares = dict(enumerate(shamir.split(secret, 3, 6), 1))
    assert {joined({x: shares[x] for x in some}) for some in combinations(shares, 3)} == {secret}
    assert secret not in {joined({x: shares[x] for x in some}) for some in combinations(shares, 2)}


def test_weights_are_lagranges_as_fractions() -> None:
    points = [1, 2, 5, 9]
    for x, weight in zip(points, shamir.weights(points), strict=True):
        exact = Fraction(1)
        for other in points:
            exact *= Fraction(other, other - x) if other != x else 1
        assert weight * exact.denominator % shamir.PRIME == exact.numerator % shamir.PRIME


def test_fewer_shares_than_the_threshold_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a field of 7 elements, all polynomials counted: two shares of three have the same law for every secret."""
    monkeypatch.setattr(shamir, "PRIME", 7)
    laws = []
    for secret in range(7):
        counts: dict[tuple[int, ...], int] = {}
        for rest in range(49):
            drawn = iter((rest % 7, rest // 7))
            monkeypatch.setattr(shamir, "draw", lambda drawn=drawn: next(drawn))
            seen = tuple(shamir.split(secret, 3, 6)[:2])
            counts[seen] = counts.get(seen, 0) + 1
        laws.append(counts)
    assert all(law == laws[0] for law in laws)
    assert set(laws[0].values()) == {1}


def test_secrets_are_fresh_and_bytes_of_no_number_are_refused() -> None:
    assert shamir.split(5, 3, 4) != shamir.split(5, 3, 4)
    assert shamir.from_bytes(shamir.to_bytes(shamir.PRIME - 1)) == shamir.PRIME - 1
    assert shamir.from_bytes(shamir.to_bytes(shamir.PRIME)) is None
    assert shamir.from_bytes(b"\xff" * 32) is None
