"""What owners sign of their masked tables, and an auditor who sees by it that one of them cheated."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sottovoce.core.check import InvalidInput, MissingData
from sottovoce.deploy import multiplying, product_records, wire
from sottovoce.deploy.assignment import Run
from sottovoce.deploy.node import Node
from sottovoce.deploy.product_records import OTHERS, OWN, audited
from sottovoce.deploy.remote import TooFewAnswers
from sottovoce.deploy.server import serve
from sottovoce.deploy.wire import Ask, Reply
from tests.command_line import invoke
from tests.deployments import NAME, LocalPost, charged
from tests.multiplied import SAMPLES, deployment_of, write_owners


def record(file: Path, name: str) -> Path:
    return file.parent / "node" / "records" / NAME / name


def trained(folder: Path, n: int) -> list[Path]:
    files = write_owners(folder, n)
    serve(deployment_of(n), NAME, LocalPost(files), folder / "run")
    return files


@pytest.mark.parametrize("n", [2, 3])
def test_honest_rows_hold(tmp_path: Path, n: int) -> None:
    files = trained(tmp_path, n)
    for owner in files:
        for other in files:
            if owner != other:
                found = audited(Node(owner), record(other, OTHERS))
                assert found[0].startswith(f"{SAMPLES} rows of {owner.parent.name} are those that it signed")
    said = invoke(["node", "rows", str(files[0]), str(record(files[1], OTHERS))])
    assert (said.exit_code, "within their bounds" in said.output) == (0, True), said.output


def test_what_is_handed_out_has_no_secret(tmp_path: Path) -> None:
    files = trained(tmp_path, 2)
    seeds = [each["seed"] for file in files for each in json.loads(record(file, OWN).read_text())["signed"]]
    assert len(set(seeds)) == 2
    for file in files:
        assert not any(seed in record(file, OTHERS).read_text() for seed in seeds)


def longer(table: np.ndarray) -> np.ndarray:
    """One row of four times its length, and zeros elsewhere: of the other owner's row, a quarter of the noise is left.

    It could be √n times as long before a sum of its own columns is larger than sums can be.
    """
    changed = np.zeros_like(table)
    changed[3] = table[3] * 4
    return changed


def test_an_owner_whose_rows_were_too_long_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, honest = write_owners(tmp_path, 2), Run.table
    cheated = lambda run: longer(honest.func(run)) if run.number == 0 else honest.func(run)  # noqa: E731
    monkeypatch.setattr(Run, "table", property(cheated))
    serve(deployment_of(2), NAME, LocalPost(files), tmp_path / "run")  # nobody could see it
    with pytest.raises(InvalidInput, match=r"rows of bank: are longer than they may be.*'1 rows'"):
        audited(Node(files[0]), record(files[1], OTHERS))  # it shows the rows that it used
    monkeypatch.setattr(Run, "table", honest)
    with pytest.raises(InvalidInput, match="not those of the masked table that it signed"):
        audited(Node(files[0]), record(files[1], OTHERS))  # it shows honest ones
    own = json.loads(record(files[0], OWN).read_text())
    own["signed"][0]["seed"] = "00" * 32
    record(files[0], OWN).write_text(json.dumps(own))
    with pytest.raises(InvalidInput, match="not those of the masked table that it signed"):
        audited(Node(files[0]), record(files[1], OTHERS))  # or another seed
    record(files[0], OWN).write_text(json.dumps({"signed": own["signed"]}))
    with pytest.raises(InvalidInput):
        audited(Node(files[0]), record(files[1], OTHERS))  # or half a record
    record(files[0], OWN).unlink()
    with pytest.raises(MissingData, match="there is no such file"):
        audited(Node(files[0]), record(files[1], OTHERS))


CHANGES: dict[str, Callable[[Any], object]] = {
    "longest": lambda said: said.update(longest=2**40),
    "slopes": lambda said: said.update(slopes=1),
    "digest": lambda said: said.update(digest="0" * 64),
    "owner": lambda said: said.update(experiment="0" * 32),
}


@pytest.mark.parametrize("field", CHANGES)
def test_what_was_signed_cannot_be_changed(tmp_path: Path, field: str) -> None:
    files = trained(tmp_path, 2)
    kept = json.loads(record(files[1], OTHERS).read_text())
    CHANGES[field](kept["signed"][0]["statement"])
    record(files[1], OTHERS).write_text(json.dumps(kept))
    with pytest.raises((InvalidInput, MissingData), match=r"signed by the pinned key|there is no such file"):
        audited(Node(files[0]), record(files[1], OTHERS))


def test_slopes_have_a_bound_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The label holder's column of slopes is at most 1/2 long."""
    files, honest = write_owners(tmp_path, 2), Run.table

    def steep(run: Run) -> np.ndarray:
        table = honest.func(run).copy()
        if run.number == 1:
            table[:, -1] *= 2
        return table

    monkeypatch.setattr(Run, "table", property(steep))
    serve(deployment_of(2), NAME, LocalPost(files), tmp_path / "run")
    with pytest.raises(InvalidInput, match="rows of shop: are longer"):
        audited(Node(files[1]), record(files[0], OTHERS))


def test_a_digest_of_another_table_is_refused_before_the_charge(tmp_path: Path) -> None:
    """An owner that signs another table than it sends would pass an audit with rows that it did not use."""
    files, honest = write_owners(tmp_path, 2), multiplying.masked_digest
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(
            multiplying, "masked_digest", lambda seed, attempt, role, table: honest(seed, attempt, role, 0 * table)
        )
        with pytest.raises(TooFewAnswers, match="signed another masked table than it sent"):
            serve(deployment_of(2), NAME, LocalPost(files), tmp_path / "run")
    assert [charged(file) for file in files] == [0, 0]


def test_a_digest_signed_by_another_key_is_refused(tmp_path: Path) -> None:
    """An owner could say later that it never signed it."""
    files, honest = write_owners(tmp_path, 2), multiplying.Multiplying._own_statement
    false = Ed25519PrivateKey.generate()

    def unsigned(steps: Any, *given: Any) -> Any:
        said, _ = honest(steps, *given)
        return said, false.sign(said.signed())

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(multiplying.Multiplying, "_own_statement", unsigned)
        with pytest.raises(TooFewAnswers, match="must be signed by its owner"):
            serve(deployment_of(2), NAME, LocalPost(files), tmp_path / "run")
    assert [charged(file) for file in files] == [0, 0]


def test_an_unsigned_table_is_not_answered(tmp_path: Path) -> None:
    files = write_owners(tmp_path, 2)

    def unsigned(m: int, ask: Ask, reply: Reply) -> Reply:
        wanted = ask.what == wire.SEND and wire.bytes_of(ask.down)[4:8] == b"\xff\xff\xff\xfe"
        return Reply(up=wire.of_bytes(bytes(32 + 64 + 16))) if wanted else reply

    with pytest.raises(TooFewAnswers, match="key is pinned"):
        serve(deployment_of(2), NAME, LocalPost(files, unsigned), tmp_path / "run")
    assert [charged(file) for file in files] == [0, 0]


def test_secrets_are_deleted_once_the_result_is_saved(tmp_path: Path) -> None:
    """All but that the share was made, so that there is no other attempt; and the records, with its own seeds."""
    files = trained(tmp_path, 2)
    for file in files:
        kept = [path.name for path in (file.parent / "node" / "products").rglob("*") if path.is_file()]
        assert kept == ["under-way"]
        begin = next(ask for _, ask, _ in asked_of(tmp_path, files) if ask.what == wire.BEGIN)
        assert Node(file).answer(begin).code in (wire.ANSWERED, wire.BAD_ASK)


def asked_of(folder: Path, files: list[Path]) -> list[Any]:
    post = LocalPost(files)
    with pytest.raises(TooFewAnswers):
        serve(deployment_of(2), NAME, post, folder / "again")
    return post.asked


def test_records_of_strangers_are_read_with_care(tmp_path: Path) -> None:
    for text in ("", "[]", "{}", '{"signed": [1]}', '{"signed": [{"statement": {}, "signature": "00"}]}', "[" * 10**5):
        (tmp_path / "others.json").write_text(text)
        with pytest.raises(InvalidInput):
            product_records.signed_by(product_records.read(tmp_path / "others.json"), "bank")
