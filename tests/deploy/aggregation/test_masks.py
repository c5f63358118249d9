"""Masks: against the test vector of ChaCha20, against HMAC written out, and by adding all of them up."""

import hashlib
import hmac

import numpy as np
import pytest

from sottovoce.deploy.aggregation import masks, shamir
from tests.deploy.aggregation.group import plan_for

RUN = b"r" * 32
ZERO_KEY = (  # RFC 8439, appendix A.1, test vector 1: key, nonce and counter are zero
    "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
)


def test_the_key_stream_is_that_of_the_standard() -> None:
    expected = np.frombuffer(bytes.fromhex(ZERO_KEY), dtype="<u8")
    assert np.array_equal(masks.key_stream(bytes(32), 8), expected)
    assert np.array_equal(masks.key_stream(bytes(32), 5), expected[:5])


def test_a_derived_key_is_hkdf_written_out() -> None:
    secret, label = b"x" * 32, masks.label("own mask", RUN, masks.number(7))
    extracted = hmac.new(bytes(32), secret, hashlib.sha256).digest()  # RFC 5869 without a salt
    expected = hmac.new(extracted, label + b"\x01", hashlib.sha256).digest()
    assert masks.derived(secret, "own mask", RUN, masks.number(7)) == expected


@pytest.mark.parametrize("n", [2, 3, 7])
def test_all_pair_masks_add_up_to_nothing_and_no_part_of_them_does(n: int) -> None:
    plan = plan_for(n, n, 0)
    pairs = [masks.pair_key(plan, 1, i, shamir.draw()) for i in range(n)]
    public = [pair.public_key().public_bytes_raw() for pair in pairs]
    each = [
        sum((masks.pair_mask(RUN, 1, i, j, pairs[i], public[j], 5) for j in range(n) if j != i), np.uint64(0))
        for i in range(n)
    ]
    assert not np.any(np.sum(each, axis=0, dtype=np.uint64))
    for chosen in range(1, 2**n - 1):
        assert np.any(np.sum([each[i] for i in range(n) if chosen >> i & 1], axis=0, dtype=np.uint64))


def test_a_mask_belongs_to_one_run_round_and_pair() -> None:
    plan = plan_for(4, 4, 0)
    one, other = (masks.pair_key(plan, 1, 0, shamir.draw()) for _ in range(2))
    key = other.public_key().public_bytes_raw()
    places = [(RUN, 1, 0, 1), (b"o" * 32, 1, 0, 1), (RUN, 2, 0, 1), (RUN, 1, 0, 2), (RUN, 1, 2, 3)]
    seen = {masks.pair_mask(run, k, i, j, one, key, 3).tobytes() for run, k, i, j in places}
    assert len(seen) == len(places)
    owns = {masks.own_mask(run, k, i, 5, 3).tobytes() for run, k, i, _ in places}
    assert len(owns) == len(places) - 1  # the other client of a pair plays no part
    boxes = {masks.box_key(RUN, i, j, one, key) for i, j in [(0, 1), (1, 0), (0, 2)]}
    assert len(boxes) == 3


def test_a_point_of_small_order_is_no_key() -> None:
    plan = plan_for(2, 2, 0)
    with pytest.raises(ValueError, match="rror computing shared key"):
        masks.pair_mask(RUN, 1, 0, 1, masks.pair_key(plan, 1, 0, 5), bytes(32), 3)
