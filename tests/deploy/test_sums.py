"""Nodes and a server that sees sums only, in one process: every message goes to a fresh node, as to a fresh process."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import MomentsThenGradients
from sottovoce.core.check import InvalidInput
from sottovoce.core.random.streams import Streams
from sottovoce.core.round import Checkpoint
from sottovoce.deploy import wire
from sottovoce.deploy.aggregation.state import State
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.keys import make_signing_key, read_signing_key
from sottovoce.deploy.limits import Refused
from sottovoce.deploy.node import Node
from sottovoce.deploy.remote import TooFewAnswers
from sottovoce.deploy.server import serve
from sottovoce.deploy.summing import Sums
from sottovoce.deploy.wire import Ask, Reply
from sottovoce.experiment import whole_files
from sottovoce.experiment.sums import end_to_end
from sottovoce.experiment.train import local_clients
from tests.deploy.aggregation.lying_server import joined
from tests.deployments import NAME, LocalPost, charged
from tests.summed import deployment_of, federation, simulated, sums, write_owners

ALL = range(3)
STEPS = {wire.UPLOAD: "R1", wire.STAND_FOR: "R2", wire.REVEAL: "R3", wire.ANNOUNCE: "S1", wire.SHARE: "S2"}


class FaultyPost(LocalPost):
    """`fault` says of (client, round, step): None, "away" (it does not get the question), "lost" (its answer is)."""

    def __init__(self, files: list[Path], fault: Callable[[int, int, str], str | None]) -> None:
        super().__init__(files)
        self.fault = fault

    def ask(self, asks: Mapping[int, Ask], deadline: float) -> dict[int, Reply]:
        fault = {i: self.fault(i, ask.k, STEPS.get(ask.what, ask.what)) for i, ask in asks.items()}
        replies = super().ask({i: ask for i, ask in asks.items() if fault[i] != "away"}, deadline)
        return {i: reply for i, reply in replies.items() if fault[i] is None}


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return write_owners(tmp_path, 3, least=2, colluders=0)


@pytest.fixture
def made(files: list[Path]) -> Deployment:
    return deployment_of(files, sums(least=2, colluders=0))


def questions(post: LocalPost, what: str, k: int | None = None) -> list[tuple[int, Ask, Reply]]:
    return [each for each in post.asked if each[1].what == what and k in (None, each[1].k)]


# ----------------------------------------------------------------------------------------- the simulator's very numbers


@pytest.mark.parametrize("method", [None, MomentsThenGradients(ridge=0.1)], ids=["noisy-gd", "moments-then-gradients"])
def test_a_deployment_trains_the_simulators_model_bit_for_bit(files: list[Path], tmp_path: Path, method: Any) -> None:
    made, post = deployment_of(files, sums(least=3, colluders=0), method=method), LocalPost(files)
    got = serve(made, NAME, post, tmp_path / "run")
    assert np.array_equal(got.model, simulated(made, [ALL] * 3))
    assert [charged(file) for file in files] == [3, 3, 3]
    assert {ask.what for _, ask, _ in post.asked} == {
        wire.ANNOUNCE,
        wire.SHARE,
        wire.RECEIVE,
        wire.UPLOAD,
        wire.STAND_FOR,
    }
    assert len(questions(post, wire.ANNOUNCE)) == 3  # one set-up for all rounds
    assert "sums" in got.guarantee.text


@pytest.mark.parametrize(
    ("fault", "answered"),
    [
        (lambda i, k, step: "away" if (i, k) == (2, 2) else None, [0, 1]),  # killed before the round
        (lambda i, k, step: "lost" if (i, k, step) == (2, 2, "R1") else None, [0, 1]),  # its upload is lost
        (lambda i, k, step: "away" if (i, k) == (2, 2) and step != "R1" else None, [0, 1, 2]),  # killed after it
        (lambda i, k, step: "lost" if (i, k, step) == (0, 2, "R2") else None, [0, 1, 2]),
        (lambda i, k, step: "lost" if i > 0 and (k, step) == (2, "R1") else None, []),  # fewer than least are left
        (lambda i, k, step: "lost" if i > 0 and (k, step) == (2, "R2") else None, []),  # fewer than a quorum
    ],
    ids=["away", "upload lost", "gone after it", "share lost", "too few", "no quorum"],
)
def test_with_drop_outs_it_is_the_simulators_model_for_the_same_answers(
    files: list[Path], made: Deployment, tmp_path: Path, fault: Any, answered: list[int]
) -> None:
    post = FaultyPost(files, fault)
    got = serve(made, NAME, post, tmp_path / "run")
    assert np.array_equal(got.model, simulated(made, [ALL, answered, ALL]))
    assert got.history["answered"].tolist() == [3, len(answered), 3]
    away = fault(2, 2, "R1") == "away"
    assert [charged(file) for file in files] == [3, 3, 3 - away]  # what was not opened stays charged
    assert len(questions(post, wire.ANNOUNCE)) == (3 if answered else 6)  # if nothing was opened it is set up again


def test_a_client_that_is_not_there_at_the_set_up_is_left_out_and_comes_back(files: list[Path], tmp_path: Path) -> None:
    made = deployment_of(files, sums(least=2, colluders=0), rounds=12)
    post = FaultyPost(files, lambda i, k, step: "away" if i == 1 and k <= 5 else None)
    got = serve(made, NAME, post, tmp_path / "run")
    assert np.array_equal(got.model, simulated(made, [[0, 2]] * 10 + [ALL] * 2))
    assert [charged(file) for file in files] == [12, 2, 12]


def test_without_enough_clients_nothing_is_asked_about_data(
    files: list[Path], made: Deployment, tmp_path: Path
) -> None:
    post = FaultyPost(files, lambda i, k, step: "away" if i > 0 else None)
    with pytest.raises(TooFewAnswers, match="round 1: 1 clients can take part in a sum and at least 2 must"):
        serve(made, NAME, post, tmp_path / "run")
    assert [charged(file) for file in files] == [0, 0, 0]


# --------------------------------------------------------------------------------------------------- what never leaves


def test_no_message_and_no_file_holds_a_term_without_its_masks(
    files: list[Path], made: Deployment, tmp_path: Path
) -> None:
    post = LocalPost(files)
    serve(made, NAME, post, tmp_path / "run")
    clients, task = local_clients(replace(made.task, engine="numpy"), federation(3), Streams(11)), made.task
    terms: list[np.ndarray] = []
    take_part = clients.take_part

    def watched(*given: Any) -> Any:
        sent = take_part(*given)
        assert sent is not None
        terms.extend(end_to_end(sent.up))
        return sent

    clients.take_part = watched  # type: ignore[method-assign]
    task.play(clients, Streams(11))
    assert len(terms) == 9
    sent = b"".join(data for _, _, reply in post.asked for _, data in reply.up.values())
    kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    for term in terms:
        for number in term:  # any single one
            assert number.astype("<u8").tobytes() not in sent + kept
    uploads = [np.frombuffer(wire.bytes_of(reply.up), "<u8") for _, _, reply in questions(post, wire.UPLOAD, 1)]
    assert np.array_equal(sum(terms[:3], np.uint64(0)) - sum(uploads, np.uint64(0)), -_own_masks(post, made, files))
    stored = whole_files.read_arrays(files[0].parent / "node" / "experiments" / NAME / "000003.npz")
    assert not [name for name in stored if name.startswith("up.")]


def _own_masks(post: LocalPost, made: Deployment, files: list[Path]) -> np.ndarray:
    """What is left in the sum of all uploads of round 1: the own masks, which the shares of R2 give."""
    from sottovoce.deploy.aggregation import masks, messages

    (_, ask, _), *_ = questions(post, wire.UPLOAD, 1)
    given = [messages.read_shares("", wire.bytes_of(reply.up), 3) for _, _, reply in questions(post, wire.STAND_FOR, 1)]
    secrets = [joined({i + 1: shares[j] for i, shares in enumerate(given)}) for j in range(3)]
    own = [masks.own_mask(bytes.fromhex(ask.run), 1, j, secret, 4) for j, secret in enumerate(secrets)]
    return np.asarray(sum(own, np.uint64(0)))


def test_an_answer_with_a_share_of_the_noise_leaves_in_no_other_way(
    files: list[Path], made: Deployment, tmp_path: Path
) -> None:
    post = LocalPost(files)
    serve(made, NAME, post, tmp_path / "run")
    _, ask, _ = questions(post, wire.UPLOAD, 1)[0]
    other = replace(ask, experiment="f" * 32)
    for what in (wire.ROUND, wire.MODEL, wire.HISTOGRAM):
        reply = Node(files[0]).answer(replace(other, what=what, run=""))
        assert (reply.code, reply.up) == (wire.BAD_ASK, {})
        assert "under masks" in reply.why
    reply = Node(files[0]).answer(other)  # of an experiment that was not set up
    assert (reply.code, reply.up) == (wire.SET_UP, {})
    assert charged(files[0]) == 3


def test_an_upload_is_sent_again_as_it_was_and_charged_once(
    files: list[Path], made: Deployment, tmp_path: Path
) -> None:
    again: list[tuple[int, Ask, Reply]] = []

    def twice(client: int, ask: Ask, reply: Reply) -> Reply:
        if ask.what == wire.UPLOAD:
            again.append((client, ask, Node(files[client]).answer(ask)))
        return reply

    post = LocalPost(files, twice)
    serve(made, NAME, post, tmp_path / "run")
    _, ask, _ = questions(post, wire.UPLOAD, 3)[0]
    assert [each for i, _, each in again if i == 0] == [each for i, _, each in questions(post, wire.UPLOAD) if i == 0]
    assert Node(files[0]).answer(ask).code == wire.LATE  # it gave its shares in the round
    _, before, _ = questions(post, wire.UPLOAD, 2)[0]
    assert Node(files[0]).answer(before).code == wire.LOST  # the stored bytes are of round 3; nothing is drawn again
    name, (shape, data) = next(iter(ask.down.items()))
    elsewhere = replace(ask, down=dict(ask.down) | {name: (shape, (np.frombuffer(data) + 1.0).tobytes())})
    assert Node(files[0]).answer(elsewhere).code == wire.ANSWERED
    assert charged(files[0]) == 3


def test_a_client_killed_between_charge_and_disk_stays_silent_in_that_round(
    files: list[Path], made: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, killed = State.write, []

    def dying(self: State, store: Any, plan: Any) -> None:
        if self.k == 2 and not self.given and "owner1" in str(store._path):
            killed.append(self.k)
            raise MemoryError  # as near to a kill as one process can come: nothing is written, nothing sent
        write(self, store, plan)

    monkeypatch.setattr(State, "write", dying)
    post = LocalPost(files)
    got = serve(made, NAME, post, tmp_path / "run")
    assert killed
    assert np.array_equal(got.model, simulated(made, [ALL, [0, 2], ALL]))
    assert [charged(file) for file in files] == [3, 3, 3]
    again = next(ask for i, ask, _ in questions(post, wire.UPLOAD, 2) if i == 1)
    assert Node(files[1]).answer(again).code == wire.LOST


def test_a_server_that_is_killed_in_mid_round_goes_on_with_the_next_one(
    files: list[Path], made: Deployment, tmp_path: Path
) -> None:
    """What clients uploaded in round 2 cannot be opened any more; they refuse to upload in it a second time."""

    class Killed(BaseException):
        pass

    class DyingPost(LocalPost):
        def ask(self, asks: Mapping[int, Ask], deadline: float) -> dict[int, Reply]:
            if next(iter(asks.values())).k == 2 and next(iter(asks.values())).what == wire.STAND_FOR:
                raise Killed
            return super().ask(asks, deadline)

    with pytest.raises(Killed):
        serve(made, NAME, DyingPost(files), tmp_path / "run")
    assert [charged(file) for file in files] == [2, 2, 2]
    post = LocalPost(files)
    got = serve(made, NAME, post, tmp_path / "run")
    assert {reply.code for _, _, reply in questions(post, wire.UPLOAD, 2)} <= {wire.LOST}
    assert np.array_equal(got.model, simulated(made, [ALL, [], ALL]))
    assert [charged(file) for file in files] == [3, 3, 3]


def test_who_has_spent_its_budget_stays_away(files: list[Path], tmp_path: Path) -> None:
    made = deployment_of(files, sums(least=2, colluders=0), rounds=3)
    file = files[1]
    file.write_text(file.read_text().replace("epsilon = 100.0", "epsilon = 20.0"))
    serve(made, NAME, LocalPost(files), tmp_path / "one")
    assert charged(file) == 3
    post = LocalPost(files)
    got = serve(made, "e" * 32, post, tmp_path / "two")
    assert charged(file) == 3
    assert [reply.code for i, _, reply in questions(post, wire.UPLOAD) if i == 1] == [wire.BUDGET]
    assert got.history["answered"].tolist() == [2, 2, 2]


# --------------------------------------------------------------------------------------------- what an owner insists on


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def refusals(made: Deployment, files: list[Path], folder: Path) -> str:
    post = LocalPost(files)
    with pytest.raises(TooFewAnswers):
        serve(made, NAME, post, folder)
    assert [charged(file) for file in files] == [0, 0, 0]
    return " ".join(reply.reason() for i, _, reply in post.asked if i == 0)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("least = 2", "least = 3", "limits: .*sums of 2 clients are asked for, and 3 must be in one"),
        ("colluders = 0", "colluders = 1", "limits: .*0 colluders are reckoned with, and 1 must be"),
        ("owner1 = ", "another = ", "limits: .*owner1.*whose keys it does not know"),
    ],
)
def test_an_owner_is_shown_no_more_than_it_accepts(
    made: Deployment, files: list[Path], tmp_path: Path, old: str, new: str, why: str
) -> None:
    made = deployment_of(files, sums(least=2, colluders=0))
    for file in files:
        change(file, old, new)
    said = refusals(made, files, tmp_path / "run")
    assert re.search(why, said), said


def test_an_owner_that_says_nothing_insists_on_all_owners_and_a_third_of_colluders() -> None:
    own = Sums("own.key", {f"owner{i}": f"{i:064x}" for i in range(7)})
    names = tuple(own.owners)
    own.check_plan(7, 3, names)
    for least, colluders in ((6, 3), (7, 2)):
        with pytest.raises(Refused, match="this client's limits"):
            own.check_plan(least, colluders, names)


def test_without_a_table_of_keys_nothing_is_summed(made: Deployment, files: list[Path], tmp_path: Path) -> None:
    for file in files:
        file.write_text(file.read_text().split("[sums]")[0])
    assert "has no table [sums]" in refusals(made, files, tmp_path / "run")


def test_a_server_is_told_nothing_of_an_owners_key_file(made: Deployment, files: list[Path], tmp_path: Path) -> None:
    for file in files:
        (file.parent / "sums.key").chmod(0o644)
    said = refusals(made, files, tmp_path / "run")
    assert "failed: it could not answer" in said
    assert "sums.key" not in said
    assert "nobody but its owner may read" in (files[0].parent / "node" / "node.log").read_text()


def test_keys_come_from_the_owners_own_file(made: Deployment, files: list[Path], tmp_path: Path) -> None:
    """The server names another key for owner2: the others find that out, before anything is shared."""
    other = make_signing_key(tmp_path / "other.key")
    keys = list(made.clients.signing_keys)
    swapped = replace(made, clients=replace(made.clients, signing_keys=(keys[0], keys[1], other)))
    post = LocalPost(files)
    with pytest.raises(TooFewAnswers):
        serve(swapped, NAME, post, tmp_path / "run")
    assert not [reply for _, ask, reply in post.asked if ask.what == wire.SHARE and not reply.code]


def test_a_key_of_another_kind_or_open_to_others_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sums.key"
    public = make_signing_key(path)
    assert read_signing_key(path).public_key().public_bytes_raw().hex() == public
    with pytest.raises(InvalidInput, match="exists"):
        make_signing_key(path)
    path.chmod(0o644)
    with pytest.raises(InvalidInput, match="nobody but its owner"):
        read_signing_key(path)
    path.chmod(0o600)
    path.write_text("no key")
    with pytest.raises(InvalidInput, match="Ed25519 key in PEM"):
        read_signing_key(path)


@pytest.mark.parametrize(
    ("table", "rule"),
    [
        ({"owners": {"a": "0" * 64, "b": "0" * 64}}, "same key"),
        ({"owners": {"a": "0" * 63, "b": "1" * 64}}, "64 hex digits"),
        ({"owners": {"a": "0" * 64}}, "least"),
        ({"owners": {"a": "0" * 64, "b": "1" * 64}, "least": 3}, "at most the number of owners"),
        ({"owners": {"a": "0" * 64, "b": "1" * 64}, "colluders": 2}, "above colluders"),
    ],
)
def test_a_table_that_says_nothing_sensible_is_refused(table: dict[str, Any], rule: str) -> None:
    from sottovoce.deploy.summing import Sums

    with pytest.raises(InvalidInput, match=rule):
        Sums("sums.key", **table)


def test_a_run_file_for_sums_names_a_key_for_each_client(files: list[Path]) -> None:
    with pytest.raises(InvalidInput, match="signing_keys, one for each of the 3"):
        deployment_of(files, sums(), signing_keys=[])
    with pytest.raises(InvalidInput, match="64 hex digits"):
        deployment_of(files, sums(), signing_keys=["x"] * 3)


@pytest.mark.parametrize("what", wire.SUMS)
def test_garbage_is_refused_and_nothing_happens(files: list[Path], made: Deployment, tmp_path: Path, what: str) -> None:
    """In the middle of a run; it then goes on as if nothing had been."""

    class Garbling(LocalPost):
        def ask(self, asks: Mapping[int, Ask], deadline: float) -> dict[int, Reply]:
            garbled = ((i, ask) for i, ask in asks.items() if ask.k == 2 and ask.what in (wire.UPLOAD, wire.STAND_FOR))
            for i, ask in garbled:
                for content in (b"", b"\xff" * 40, bytes(10_000)):
                    reply = Node(files[i]).answer(replace(ask, what=what, down=wire.of_bytes(content)))
                    assert (reply.code != "") == (what != wire.RECEIVE), reply  # shares were received: nothing is done
                    assert not any(data for _, data in reply.up.values())
            return super().ask(asks, deadline)

    got = serve(made, NAME, Garbling(files), tmp_path / "run")
    assert np.array_equal(got.model, simulated(made, [ALL] * 3))


@pytest.mark.parametrize("content", [b"", b"\xff" * 96, bytes(96)], ids=["nothing", "no numbers", "false numbers"])
@pytest.mark.parametrize("what", [wire.UPLOAD, wire.STAND_FOR, wire.SHARE, wire.ANNOUNCE])
def test_garbage_of_a_client_is_its_silence_and_false_shares_are_told_of(
    files: list[Path],
    made: Deployment,
    tmp_path: Path,
    what: str,
    content: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def garbled(client: int, ask: Ask, reply: Reply) -> Reply:
        return Reply(up=wire.of_bytes(content)) if (client, ask.what, ask.k) == (0, what, 1) else reply

    got = serve(made, NAME, LocalPost(files, garbled), tmp_path / "run")
    left_out = what in (wire.SHARE, wire.ANNOUNCE)
    first = ALL if what == wire.STAND_FOR else [1, 2]  # the other two are enough to open the sum
    false = what == wire.STAND_FOR and content == bytes(96)
    assert ("round 1: owner0 gave shares that do not fit" in caplog.text) == false
    assert np.array_equal(got.model, simulated(made, [first, *([[1, 2]] * 2 if left_out else [ALL] * 2)]))


def test_a_checkpoint_goes_on_with_a_new_set_up(files: list[Path], made: Deployment, tmp_path: Path) -> None:
    class Stopped(BaseException):
        pass

    def stop(checkpoint: Checkpoint) -> None:
        if checkpoint.k == 2:
            raise Stopped

    with pytest.raises(Stopped):
        serve(made, NAME, LocalPost(files), tmp_path / "run", stop)
    got = serve(made, NAME, LocalPost(files), tmp_path / "run")
    assert np.array_equal(got.model, simulated(made, [ALL] * 3))
