"""Owners of split columns on machines of their own: the simulator's numbers, and what is refused on the way to them."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from sottovoce.algorithms import MaskedMoments
from sottovoce.auditing.verify import verify
from sottovoce.core.check import InvalidInput, SottovoceError
from sottovoce.deploy import announcing, multiplied_remote, product_terms, wire
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.keys import make_signing_key
from sottovoce.deploy.node import Node
from sottovoce.deploy.product_terms import FROM_DEALER, TAG, pack_place
from sottovoce.deploy.remote import TooFewAnswers
from sottovoce.deploy.server import serve
from sottovoce.deploy.wire import Ask, Reply
from sottovoce.experiment.tables import describe_task
from sottovoce.experiment.task import Task
from sottovoce.privacy.masked_products import PairKey, Refused, fresh_secret
from sottovoce.privacy.modes import NoPrivacy
from tests.cases import goal
from tests.deployments import NAME, LocalPost, charged, column_deployment
from tests.multiplied import NAMES, SAMPLES, SEEDED, SPLIT, Attempted, asked, deployment_of, simulated, write_owners


@pytest.mark.parametrize(("n", "privacy"), [(2, SEEDED), (3, SEEDED), (3, NoPrivacy())], ids=["2", "3", "3, none"])
def test_the_simulators_numbers_bit_for_bit(tmp_path: Path, n: int, privacy: Any) -> None:
    files, made = write_owners(tmp_path, n), deployment_of(n, privacy)
    post = LocalPost(files)
    got: Any = serve(made, NAME, post, tmp_path / "run")
    same: Any = simulated(made, files)
    assert np.array_equal(got.model, same.model)
    assert np.array_equal(got.sums, same.sums)
    dealers = [client for client, _, _ in asked(post, wire.DEAL)]
    assert dealers == ([] if n == 2 else [2, 1, 0]), "with two owners the coordinator deals, else another owner"
    if privacy is SEEDED:
        assert [charged(file) for file in files] == [1] * n
        assert got.guarantee.observer == same.guarantee.observer
        assert verify(tmp_path / "run").holds


def test_tables_travel_in_bounded_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Owners of unequal width need unequal numbers of chunks."""
    monkeypatch.setattr(product_terms, "CHUNK_BYTES", 500)
    files, made = write_owners(tmp_path, 2), deployment_of(2)
    post = LocalPost(files)
    got = serve(made, NAME, post, tmp_path / "run")
    assert np.array_equal(got.model, simulated(made, files).model)
    boxes = {m: [wire.bytes_of(reply.up) for client, _, reply in asked(post, wire.SEND) if client == m] for m in (0, 1)}
    assert [len(boxes[m]) for m in (0, 1)] == [2 + 1, 4 + 1], (
        "500 // 16 and 500 // 32 rows at a time, the slopes being a column; and a signed digest"
    )
    assert max(len(box) for m in boxes for box in boxes[m]) <= 500 + TAG


def test_secure_noise_is_another_one_every_time(tmp_path: Path) -> None:
    files, secure = write_owners(tmp_path, 2), replace(SEEDED, noise="secure")
    one: Any = serve(deployment_of(2, secure), NAME, LocalPost(files), tmp_path / "one")
    two: Any = serve(deployment_of(2, secure), NAME[::-1], LocalPost(files), tmp_path / "two")
    exact: Any = simulated(deployment_of(2, NoPrivacy()), files)
    assert not np.array_equal(one.sums, two.sums)
    sigma = deployment_of(2, secure).task.algorithm.noise * 2.0**36  # type: ignore[attr-defined]
    for each in (one, two):
        assert np.abs(each.sums - exact.sums).max() < 12 * sigma, "two noises of up to √2 σ on twenty sums"
    assert [charged(file) for file in files] == [2, 2]


# ------------------------------------------------------------------------------------------------- hostile messages


def test_a_second_masked_table_is_refused(tmp_path: Path) -> None:
    """Under the same noise A'(F − F*) would show. The second one is sealed by its owner, as it must be."""
    made = Attempted(tmp_path, 2)
    steps, _ = made.at(1)
    key = steps._key(0, 0)
    other = key.sealed("second", 0, bytes(8 * SAMPLES * (SPLIT[1] + 1)))
    refused = made.asks(0, wire.TAKE, pack_place(0, 0) + other)
    assert (refused.code, "another masked table" in refused.why) == (wire.ANSWERED, True)
    answer = made.answer(0, made.round_ask(0))
    assert not answer.code
    assert made.answer(0, made.round_ask(0)) == answer, "the same bytes whenever it is asked again"
    assert not made.asks(0, wire.TAKE, pack_place(0, 0) + other).code, "nothing is taken any more"
    assert made.answer(0, made.round_ask(0)) == answer
    assert charged(made.files[0]) == 1


def test_changed_rows_are_not_masked_again(tmp_path: Path) -> None:
    """Under the same U the difference of two tables would show."""
    made = Attempted(tmp_path, 2)
    send = made.last(wire.SEND, 0)
    before = made.answer(0, send)
    assert made.answer(0, send) == before
    rows = dict(np.load(made.files[0].parent / "rows.npz"))
    np.savez(made.files[0].parent / "rows.npz", X=rows["X"] / 2, who=rows["who"])
    assert made.answer(0, send).code == wire.STATE
    assert made.answer(0, made.round_ask(0)).code in (wire.STATE, wire.LEDGER)
    np.savez(made.files[0].parent / "rows.npz", X=rows["X"], who=rows["who"])
    assert made.answer(0, send) == before
    made.files[0].write_text(made.files[0].read_text().replace("pepper", "salt"))
    assert made.answer(0, send).code == wire.SET_UP, "another order is another agreement"
    assert charged(made.files[0]) == 0


def test_a_key_that_was_slipped_in_reads_and_seals_nothing(tmp_path: Path) -> None:
    """The server, who deals to two owners and knows U, must not get E; nor can it pass for an owner."""
    made = Attempted(tmp_path, 2)
    steps, _ = made.at(0)
    key = steps._key(0, 1)
    false = PairKey(announcing.shared(fresh_secret(), announced_by(made, 0).public), key.attempt)
    box = wire.bytes_of(made.answer(0, made.last(wire.SEND, 0)).up)
    with pytest.raises(Refused, match="not sealed by the owner whose key is pinned"):
        false.unsealed("first", 0, box)
    plain = bytes(8 * SAMPLES * (SPLIT[1] + 1))
    refused = made.asks(0, wire.TAKE, pack_place(0, 0) + false.sealed("second", 0, plain))
    assert (refused.code, "key is pinned" in refused.why) == (wire.BAD_ASK, True)


def announced_by(made: Attempted, m: int) -> announcing.Announced:
    everyone = wire.bytes_of(made.last(wire.AGREE, 0).down)
    return announcing.parsed(everyone, [1, 1])[m]


@pytest.mark.parametrize(
    "whose", ["the server's", "an owner's, not pinned", "the same owner's, of another run", "none"]
)
def test_a_relay_cannot_announce_in_an_owners_place(tmp_path: Path, whose: str) -> None:
    """A coordinator that is dealer and relay, and could slip in its own key, would read A = E + U."""
    files = write_owners(tmp_path, 2)
    earlier = Until(files, wire.AGREE)
    with pytest.raises(TooFewAnswers):  # a run of which only what the shop announced is wanted
        serve(deployment_of(2), NAME[::-1], earlier, tmp_path / "earlier")
    own = {
        "the server's": lambda true: true[:32] + public_of(fresh_secret()) + true[64:],
        "an owner's, not pinned": lambda true: true[:64] + signed_by_nobody(true[:64]),
        "the same owner's, of another run": lambda true: wire.bytes_of(asked(earlier, wire.BEGIN)[1][2].up),
        "none": lambda true: true[:32] + bytes(96),
    }[whose]

    def meddle(m: int, ask: Ask, reply: Reply) -> Reply:
        slipped = ask.what == wire.BEGIN and m == 1
        return Reply(up=wire.of_bytes(own(wire.bytes_of(reply.up)))) if slipped else reply

    post = LocalPost(files, meddle)
    with pytest.raises(TooFewAnswers, match="signed by the key that is pinned for its owner"):
        serve(deployment_of(2), NAME, post, tmp_path / "run")
    assert not asked(post, wire.SEND), "no masked table has left"


class Until(LocalPost):
    """Carries questions up to the first of a kind, which nobody gets."""

    def __init__(self, files: list[Path], what: str) -> None:
        super().__init__(files)
        self._what = what

    def ask(self, asks: Any, deadline: float) -> Any:
        return {} if any(ask.what == self._what for ask in asks.values()) else super().ask(asks, deadline)


def public_of(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def signed_by_nobody(body: bytes) -> bytes:
    return Ed25519PrivateKey.generate().sign(body)


def test_no_key_is_agreed_on_with_a_point_of_small_order(tmp_path: Path) -> None:
    """An owner that announces one, signed as it must be, would have what others seal for it read by anybody."""
    files = write_owners(tmp_path, 2)
    honest = announcing.announced

    def small(signing: Any, of: bytes, place: int, nonces: bytes, private: bytes) -> bytes:
        if place == 0:
            return honest(signing, of, place, nonces, private)
        body = nonces + bytes(32)
        return body + signing.sign(announcing._signed(of, place, body))

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(announcing, "announced", small)
        with pytest.raises(TooFewAnswers, match="no key can be agreed on"):
            serve(deployment_of(2), NAME, LocalPost(files), tmp_path / "run")
    assert [charged(file) for file in files] == [0, 0]


def test_owners_who_pin_other_keys_do_not_agree(tmp_path: Path) -> None:
    files, text = write_owners(tmp_path, 2), ""
    other = make_signing_key(tmp_path / "other.key")
    text = files[1].read_text()
    start = text.rindex('bank = "') + len('bank = "')
    files[1].write_text(text[:start] + other + text[start + 64 :])
    with pytest.raises(TooFewAnswers, match="signed by the key that is pinned for its owner"):
        serve(deployment_of(2), NAME, LocalPost(files), tmp_path / "run")
    assert [charged(file) for file in files] == [0, 0]
    files[1].write_text(text.replace(text[text.rindex('shop = "') + 8 :][:64], other))
    with pytest.raises(TooFewAnswers, match=r"its key is not the one that \[products.owners\] names"):
        serve(deployment_of(2), NAME, LocalPost(files), tmp_path / "run")


def test_owners_with_samples_in_another_order_do_not_agree(tmp_path: Path) -> None:
    """The server sees it first. One that looks away is told by what the owners agreed on, which is in every key."""
    files = write_owners(tmp_path, 2)
    files[1].write_text(files[1].read_text().replace("pepper", "salt"))
    with pytest.raises(InvalidInput, match="by the same ids and salt"):
        serve(deployment_of(2), NAME, LocalPost(files), tmp_path / "run")
    blind = LocalPost(files)
    blind.statuses = lambda wait: {
        m: replace(status, order="") for m, status in LocalPost.statuses(blind, wait).items()
    }
    with pytest.raises(InvalidInput, match="the owners do not agree"):
        serve(deployment_of(2), NAME, blind, tmp_path / "run")


@pytest.mark.parametrize("lie", [1 << 20, 1 << 60])
def test_a_lying_dealer_spoils_the_model_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: int
) -> None:
    """The opened sums are wrong by the constant it chose. What cannot be is stopped; the charge stays."""
    honest = multiplied_remote.dealt
    monkeypatch.setattr(multiplied_remote, "dealt", lambda *given: honest(*given) + np.uint64(lie))
    files, made = write_owners(tmp_path, 2), deployment_of(2)
    if lie > 1 << 50:
        with pytest.raises(SottovoceError, match="larger than any that owners who follow the protocol can have"):
            serve(made, NAME, LocalPost(files), tmp_path / "run")
    else:
        got: Any = serve(made, NAME, LocalPost(files), tmp_path / "run")
        true: Any = simulated(made, files)
        wrong = np.zeros(len(true.sums), dtype=np.int64)
        wrong[made.task.split.of_pair(0, 1)] = lie  # type: ignore[union-attr]
        assert np.array_equal(got.sums, true.sums + wrong), "a constant that the dealer knows, and no more"
    assert [charged(file) for file in files] == [1, 1]


def test_a_dealer_deals_to_a_pair_once(tmp_path: Path) -> None:
    """W_2 for a second V, sealed by the second owner, would show U'(V − V*)."""
    made = Attempted(tmp_path, 3)
    deal = made.last(wire.DEAL, 2)
    content = wire.bytes_of(deal.down)
    assert made.answer(2, deal).code == ""
    steps, _ = made.at(1)
    other = steps._key(0, 2).sealed("second", 0, fresh_secret())
    refused = made.answer(2, replace(deal, down=wire.of_bytes(content[: -len(other)] + other)))
    assert (refused.code, "for other seeds" in refused.why) == (wire.ANSWERED, True)
    assert made.answer(0, replace(deal, client=0)).code == wire.BAD_ASK, "nobody else deals to this pair"


def test_every_pair_and_attempt_has_seeds_of_its_own(tmp_path: Path) -> None:
    """One U for two pairs gives A to the third owner."""
    made = Attempted(tmp_path, 3)
    states = [made.at(m)[1] for m in range(3)]
    for m in range(3):
        begin = made.last(wire.BEGIN, m)
        attempt = json.loads(wire.bytes_of(begin.down))
        other = json.dumps(["0" * 64, *attempt[1:]]).encode()
        assert not made.answer(m, replace(begin, down=wire.of_bytes(other))).code
        states.append(made.at(m)[1])
    seeds = [secret for state in states for secret in state["seeds"].values()]
    nonces = [state["announced"][64 * pair : 64 * (pair + 1)] for state in states for pair in range(2)]
    keys = [state["private"] for state in states]
    secrets = seeds + nonces + keys
    assert len(secrets) == len(set(secrets)) == 2 * 3 * (2 + 2 + 1)  # attempts, owners; pairs of an owner, its key


MALFORMED: dict[str, tuple[str, Callable[[], bytes]]] = {
    "nothing": (wire.TAKE, lambda: b""),
    "no such pair": (wire.TAKE, lambda: pack_place(1, 0)),
    "no such chunk": (wire.TAKE, lambda: pack_place(0, 1) + bytes(8)),
    "too short": (wire.TAKE, lambda: pack_place(0, 0) + bytes(100)),
    "too long": (wire.TAKE, lambda: pack_place(0, 0) + bytes(8 * SAMPLES * (SPLIT[1] + 1) + TAG + 1)),
    "not sealed": (wire.TAKE, lambda: pack_place(0, 0) + bytes(8 * SAMPLES * (SPLIT[1] + 1) + TAG)),
    "W_2 to the first owner": (wire.TAKE, lambda: pack_place(0, FROM_DEALER) + bytes(8 * 2 * 4)),
    "a chunk beyond the table": (wire.SEND, lambda: pack_place(0, 7)),
    "more than a place": (wire.SEND, lambda: pack_place(0, 0) + b"x"),
    "terms that are none": (wire.BEGIN, lambda: b"[[[["),
    "terms of other owners": (wire.BEGIN, lambda: b'["%s", ["shop", "bank"], [-1]]' % (b"0" * 64)),
    "an owner of the pair deals": (wire.BEGIN, lambda: b'["%s", ["bank", "shop"], [0]]' % (b"0" * 64)),
    "nonces of a wrong length": (wire.AGREE, lambda: bytes(63)),
    "it deals to nobody": (wire.DEAL, lambda: pack_place(0, 0) + bytes(96)),
}


@pytest.fixture(scope="module")
def attempted(tmp_path_factory: pytest.TempPathFactory) -> Attempted:
    return Attempted(tmp_path_factory.mktemp("attempted"), 2)


@pytest.mark.parametrize("how", MALFORMED)
def test_malformed_messages_are_refused_before_any_charge(attempted: Attempted, how: str) -> None:
    what, content = MALFORMED[how]
    assert attempted.asks(0, what, content()).code == wire.BAD_ASK
    assert charged(attempted.files[0]) == 0


def test_a_vast_message_is_not_read(attempted: Attempted) -> None:
    text = attempted.files[0].read_text()
    attempted.files[0].write_text(text.replace("[limits]", "[limits]\nmessage_bytes = 1000"))
    refused = attempted.asks(0, wire.TAKE, pack_place(0, 0) + bytes(1000))
    attempted.files[0].write_text(text)
    assert (refused.code, "is above 1000" in refused.why) == (wire.LIMITS, True)


@pytest.mark.parametrize("what", [wire.BEGIN, wire.AGREE, wire.SEND])
def test_an_owner_that_sends_anything_stops_the_run_uncharged(tmp_path: Path, what: str) -> None:
    files = write_owners(tmp_path, 2)
    post = LocalPost(files, lambda m, ask, reply: Reply(up=wire.of_bytes(b"x" * 33)) if ask.what == what else reply)
    with pytest.raises((TooFewAnswers, InvalidInput), match=r"a wrong length|do not agree"):
        serve(deployment_of(2), NAME, post, tmp_path / "run")
    assert [charged(file) for file in files] == [0, 0]


def test_labels_are_not_asked_about_in_any_other_way(attempted: Attempted) -> None:
    """The holder's labels leave as products with noise; no other question of such an experiment is answered."""
    for what in (wire.PROX, wire.SLOPE, wire.MODEL, wire.HISTOGRAM, wire.UPLOAD):
        assert attempted.answer(1, replace(attempted.round_ask(1), what=what)).code == wire.BAD_ASK


def test_a_round_before_all_is_there_is_refused_and_free(tmp_path: Path) -> None:
    made = Attempted(tmp_path, 2)
    ask = made.round_ask(1)
    assert made.answer(1, replace(ask, run="")).code == wire.SET_UP
    assert made.answer(1, replace(ask, run="0" * 64)).code == wire.SET_UP
    boxes = list((made.files[1].parent / "node" / "products").rglob("box-0-0"))
    boxes[0].unlink()
    assert made.answer(1, ask).code == wire.SET_UP
    assert charged(made.files[1]) == 0


# ------------------------------------------------------------------------------------------------- what owners allow


def without_products(text: str) -> str:
    return text[: text.index("[products]")]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_products, r"its file has no table \[products\]"),
        (lambda text: text.replace("shop =", "shopping ="), "products with .'shop'., whose keys it does not know"),
        (lambda text: text.replace('id = "who"\nsalt = "pepper"', "same_order = true"), "order of their salted ids"),
    ],
)
def test_limits_are_the_owners(tmp_path: Path, change: Callable[[str], str], words: str) -> None:
    files = write_owners(tmp_path, 2)
    ask = Attempted(tmp_path / "good", 2).last(wire.BEGIN, 0)
    files[0].write_text(change(files[0].read_text()))
    refused = Node(files[0]).answer(ask)
    assert refused.code == wire.LIMITS
    assert re.search(words, refused.why), refused.why


def test_a_ledger_counts_products_or_fits_and_not_both(tmp_path: Path) -> None:
    files = write_owners(tmp_path, 2, open_labels=True)
    serve(deployment_of(2), NAME, LocalPost(files), tmp_path / "run")
    clients = {"names": list(NAMES[:2]), "split": list(SPLIT[:2]), "samples": SAMPLES, "holder": "shop", "least": 2}
    fits = column_deployment("admm-sharing", **clients)
    with pytest.raises(TooFewAnswers, match="its ledger counts products of all owners' columns or fits of its own"):
        serve(fits, NAME[::-1], LocalPost(files), tmp_path / "other")
    assert [charged(file) for file in files] == [1, 1]


FOUR = {"names": [*NAMES, "post"], "split": [2, 3, 2, 1], "samples": 60, "holder": "shop"}


def test_the_run_file_chooses_who_deals() -> None:
    chosen = ["post", "post", "map", "post", "map", "bank"]
    made = deployment_of(3, **FOUR, dealers=chosen)
    assert made.clients.dealers == tuple(chosen)
    assert deployment_of(3, **FOUR).clients.dealers == ("map", "post", "shop", "post", "bank", "bank")
    for wrong, words in (
        (["bank", *chosen[1:]], "the dealer of a pair must be another owner"),
        (chosen[:2], "every pair of owners needs a dealer"),
        (["nobody", *chosen[1:]], "nobody"),
    ):
        with pytest.raises(InvalidInput, match=words):
            deployment_of(3, **FOUR, dealers=wrong)
    with pytest.raises(InvalidInput, match="dealers go with masked-moments"):
        column_deployment(dealers=["north"])


def test_a_schema_says_whose_columns_count_how_much() -> None:
    """A category is one column, whatever its levels; the constant one is the holder's: as in the simulator."""
    schema = {
        "parties": {"bank": ["age", "income"], "shop": ["sex"]},
        "label": {"column": "buys", "classes": ["no", "yes"]},
        "columns": {
            "age": {"range": [0, 100]},
            "income": {"range": [0, 1000], "knots": 4},
            "sex": {"levels": ["f", "m"]},
        },
    }
    tables: Any = describe_task(Task(MaskedMoments(), goal(), SEEDED))
    tables |= {"schema": schema, "run": {"rounds": 1, "seed": 11}, "clients": {"samples": 60}}
    algorithm: Any = Deployment.build(tables, "run.toml").task.algorithm
    assert (tuple(algorithm.shares), algorithm.bias, algorithm.holder) == ((3, 1), True, 0)
    assert algorithm.row_bounds == (1.0, 1.0)
