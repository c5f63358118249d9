"""What ledgers were charged: told whole or not at all, and computed twice."""

import base64
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.auditing.second_accountant import agree, compose_losses, second_epsilon, tolerance
from sottovoce.core.check import InvalidInput
from sottovoce.deploy import server as remote
from sottovoce.deploy import wire
from sottovoce.deploy.node import Node
from sottovoce.deploy.reported_charges import charged, shown_by
from sottovoce.deploy.wire import Ask, Reply, Status
from sottovoce.experiment.saved import load_result
from sottovoce.ledger.budget import Budget
from sottovoce.ledger.file import FileLedger
from sottovoce.ledger.histories import MOST_CHARACTERS, Counted, Kept, Stated, pack_rows, unpack_rows
from sottovoce.privacy import accounting
from sottovoce.privacy.events import Event, GridEvent
from sottovoce.privacy.guarantee import Guarantee, Statement, state_guarantee, words
from tests.auditing.test_verify import gaussian_epsilon, gaussian_mu
from tests.deployments import NAME, SECURE, LocalPost, deployment, write_nodes
from tests.run_folders import edit, trained

GRID = GridEvent("discrete-gaussian", 30.0, sensitivity=2**25, coordinates=104)
POISSON = {"sampling": "poisson", "relation": "add-remove"}


def test_a_list_of_charges_that_was_edited_does_not_match_its_hashes() -> None:
    one, other = Event("gaussian", 40.0), Event("gaussian", 7.0)
    honest = Counted.of({one: 3, other: 2})
    assert honest.fault() == ""
    edits = [((one, 2), (other, 2)), ((one, 3), (other, 1)), ((one, 3),), ((other, 2), (one, 3)), ()]
    edits.append(((Event("gaussian", 41.0), 3), (other, 2)))
    for entries in edits:
        assert Counted(entries, honest.hashes).fault() == "a charge does not match its hash"


def test_the_rows_of_a_ledger_travel_whole_and_say_neither_owner_nor_data(tmp_path: Path) -> None:
    with FileLedger.create(tmp_path / "one.ledger", "hospital", "ab" * 32, Budget(2.0, 1e-5)) as ledger:
        for question, event in enumerate((Event("gaussian", 20.0, row_bound=3.0), GRID, GRID)):
            ledger.charge(event, run="2f" * 16, round=1, question=question, purpose="training")
        kept, text = Kept.of(ledger.rows()), pack_rows(ledger.rows())
    assert unpack_rows(text) == kept
    assert kept.fault() == ""
    assert kept.spent()[GRID] == 2
    assert "hospital" not in json.dumps(kept.to_dict())
    hidden = [row._replace(details="") if row.sequence == 2 else row for row in kept.rows]
    assert "row 2 withholds what it says, which only the first may" in Kept(tuple(hidden)).fault()


# ------------------------------------------------------------------------------------------------------ two accountants


SPENT: list[tuple[dict[Event, int], float]] = [
    ({Event("gaussian", 40.0): 100}, 1e-5),
    ({Event("gaussian", 0.2): 9}, 1e-6),
    ({Event("gaussian", 300.0): 1}, 1e-2),
    ({Event("gaussian", 40.0): 100, Event("gaussian", 7.0, row_bound=2.0): 3}, 1e-5),
    ({Event("discrete-gaussian", 30.0): 30, Event("laplace", 20.0): 3}, 1e-5),
    ({Event("gaussian-chain", 30.0): 30, Event("gaussian", 20.0): 3}, 1e-5),
    ({Event("laplace", 20.0): 300}, 1e-5),
    ({Event("laplace", 20.0): 30}, 0.0),
    ({Event("randomized-response", 0.5): 2}, 0.0),
    ({Event("gaussian", 2.35, rate=10 / 326, **POISSON): 500}, 1e-4),  # type: ignore[arg-type]
    ({Event("gaussian", 0.5, rate=0.05, **POISSON): 20}, 1e-5),  # type: ignore[arg-type]
    ({Event("gaussian", 30.0, rate=0.9, **POISSON): 300}, 1e-5),  # type: ignore[arg-type]
    ({Event("gaussian", 0.3, rate=0.25, **POISSON): 3}, 1e-3),  # type: ignore[arg-type]
    ({Event("gaussian", 0.15, rate=0.03, **POISSON): 5}, 1e-6),  # type: ignore[arg-type]
    ({Event("gaussian", 0.1, rate=0.01, **POISSON): 3}, 1e-5),  # type: ignore[arg-type]
    (
        {
            Event("gaussian", 3.0, rate=0.1, **POISSON): 30,  # type: ignore[arg-type]
            Event("gaussian", 3.0, rate=0.2, **POISSON): 20,  # type: ignore[arg-type]
            Event("gaussian", 20.0, relation="add-remove"): 3,
            Event("laplace", 50.0, relation="add-remove"): 1,
        },
        1e-5,
    ),
    ({Event("gaussian", 1.146, "fixed-size", batch=10, size=326): 500}, 1e-5),
    ({Event("gaussian", 3.0, "fixed-size", batch=10, size=100): 30, Event("gaussian", 20.0): 3}, 1e-5),
]


@pytest.mark.parametrize("number", range(len(SPENT)))
def test_two_accountants_agree(number: int) -> None:
    spent, delta = SPENT[number]
    first, second = accounting.epsilon(spent, delta), second_epsilon(spent, delta)
    assert second == pytest.approx(first, rel=tolerance(spent), abs=1e-9)


@pytest.mark.parametrize(("noise", "times"), [(2.0, 1), (5.0, 40)])
def test_composed_losses_of_full_batches_are_the_gaussian_trade_off(noise: float, times: int) -> None:
    """With a rate of one there is no chance in the batch, and the answer is known in closed form."""
    exact = gaussian_epsilon(np.sqrt(times) / noise, 1e-5)
    assert exact * (1 - 1e-9) <= compose_losses([(1.0, noise, times)], 1e-5) <= exact * (1 + 1e-3)


def test_one_poisson_answer_by_integration() -> None:
    """delta(epsilon) of one answer, both ways, by a plain sum over a fine grid of outcomes."""
    rate, noise, delta = 0.3, 1.5, 1e-3
    epsilon = compose_losses([(rate, noise, 1)], delta)
    x = np.linspace(-20, 21, 2_000_001)
    blank = np.exp(-(x**2) / (2 * noise**2)) / (noise * np.sqrt(2 * np.pi))
    there = (1 - rate) * blank + rate * np.exp(-((x - 1) ** 2) / (2 * noise**2)) / (noise * np.sqrt(2 * np.pi))
    both = [np.maximum(p - np.exp(epsilon) * q, 0).sum() * (x[1] - x[0]) for p, q in ((there, blank), (blank, there))]
    assert max(both) == pytest.approx(delta, rel=1e-3)


# --------------------------------------------------------------------------------------------------- what is stated


def test_of_several_models_only_one_may_be_released() -> None:
    """50 models at epsilon 1 each: together they cost what one answer with 50 times the precision costs."""
    one, many = trained().guarantee, trained(runs=50).guarantee
    assert (one.models, one.epsilon_of_all) == (1, None)
    assert "models" not in one.text
    assert many.epsilon == one.epsilon
    mu = gaussian_mu(1.0, 1e-3)
    assert many.epsilon_of_all == pytest.approx(gaussian_epsilon(np.sqrt(50) * mu, 1e-3), rel=1e-9)
    assert "This is for ONE of the 50 models that the result holds, and only one may be released" in many.text
    assert f"({many.epsilon_of_all:.6g}, 0.001)-differential privacy" in many.text
    assert f"for one of 50 models (all of them: {many.epsilon_of_all:.4g})" in many.short


def test_a_guarantee_survives_a_file_and_its_text_follows_from_its_fields() -> None:
    said = trained(runs=2).guarantee.leaving_out("the weather")
    again = Guarantee.from_dict(json.loads(json.dumps(said.to_dict())))
    assert again == said
    assert words(again) == said.text
    assert said.text.endswith("; the weather.")
    with pytest.raises(TypeError, match="unknown field 'extra'"):
        Guarantee.from_dict({**said.to_dict(), "extra": 1})


def test_a_seed_that_is_known_and_one_that_nobody_kept() -> None:
    epsilons, accountant, charges = np.array([1.0, 0.5]), "exact", trained().charges
    assert charges is not None
    seeded, forgotten = (
        state_guarantee(sv.Proven(1.0, 1e-5, 1.0), "x", 3, Statement(epsilons, accountant, charges, forgotten=each))
        for each in (False, True)
    )
    assert seeded.noise.startswith("simulation")
    assert "simulated noise" in seeded.short
    assert "simulat" not in forgotten.noise + forgotten.short
    assert "seed that the operating system drew and that is kept nowhere" in forgotten.noise
    assert not any("seed" in one.what for one in forgotten.assumptions)


# ---------------------------------------------------------------------------------------------------- other formats


def test_another_format_of_a_folder_is_refused(tmp_path: Path) -> None:
    path = trained().save(tmp_path / "run")
    for number in (1, 3):
        edit(path, "manifest.json", lambda said, number=number: said.update(format=number))
        with pytest.raises(InvalidInput, match=rf"must be a run folder of format 2, got {number}. Use the version"):
            load_result(path)
    (path / "manifest.json").unlink()
    with pytest.raises(InvalidInput, match=r"must be a run folder of format 2, and has no manifest.json"):
        load_result(path)


# ---------------------------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize("number", [1, 2, wire.FORMAT + 1])
def test_messages_of_another_format_are_refused_in_one_sentence(number: int) -> None:
    ask = Ask(NAME, 0, 1, "")
    status = Status("north", 10, 2, 0.0, 1.0, 1e-5)
    for message in (ask, Reply(), status):
        name, same = type(message).__name__, f"must be a message of format {wire.FORMAT}"
        with pytest.raises(InvalidInput, match=f"{name}: {same}, got {number}. Install the same version"):
            replace(message, format=number)
        values, data = wire.taken_apart(message)
        assert wire.put_together(values, data, type(message)) == message
        with pytest.raises(InvalidInput, match=f"{name}: {same}, got {number}"):
            wire.put_together({**values, "format": number}, data, type(message))
        del values["format"]  # as in the first format
        with pytest.raises(InvalidInput, match=f"{name}: {same}, got 1"):
            wire.put_together(values, data, type(message))


def packed(content: Any) -> str:
    return base64.b64encode(zlib.compress(json.dumps(content).encode())).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "!",
        "AAAA",
        packed([]),
        packed({"rows": [], "end": ""}),
        packed({"rows": [[0, "opened", 1.0, None, None, None, None, "aa", None]], "end": "bb"}),
        packed({"rows": [[0, "opened", "soon", None, None, None, None, "aa", None]], "end": "aa"}),
        packed({"rows": [["0", "opened", 1.0, None, None, None, None, "aa", None]], "end": "aa"}),
        packed({"rows": [[0, "opened", 1.0, None, None, None, None, "aa", None]] * 2, "end": "aa"}),
        packed({"rows": [[0, "opened", 1.0]], "end": ""}),
        packed("[" * 10_000),
        base64.b64encode(zlib.compress(bytes(2**26))).decode(),  # small on the wire, large in memory
    ],
)
def test_nonsense_from_a_client_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="charges: "):
        unpack_rows(text)


def test_a_status_with_too_many_characters_is_refused() -> None:
    with pytest.raises(InvalidInput, match="charges must be at most"):
        Status("north", 10, 2, 0.0, 1.0, 1e-5, charges="A" * (MOST_CHARACTERS + 1))


def test_a_server_takes_a_client_at_its_word_where_it_shows_nothing_that_fits(tmp_path: Path) -> None:
    """Its own epsilon counts then, and the statement says that some owner showed no ledger."""
    files = write_nodes(tmp_path)
    made = deployment("dp-admm", SECURE, 3)
    remote.serve(made, NAME, LocalPost(files), tmp_path / "run")
    status = Node(files[0]).status()
    assert isinstance(status, Status)
    planned = made.plan(np.array([2, 2, 2]))

    def seen(**changes: Any) -> Any:
        told = replace(status, **changes)
        return charged(SECURE, planned, 3, NAME, [("north", told, 100.0)])

    assert isinstance(seen().of(0), Kept)
    assert isinstance(seen(charges="").of(0), Counted)  # too many rows for a message: its own count
    for changes in ({"charges": "nonsense"}, {"epsilon": status.epsilon / 2}, {"charges": "", "spent": "[[1, 2]]"}):
        history = seen(**changes).of(0)
        assert isinstance(history, Stated)
        assert history.epsilon == changes.get("epsilon", status.epsilon)
    said = state_guarantee(SECURE, "dp-admm", 3, shown_by(seen(charges="nonsense"), 1e-3, ("gradient",)))
    assert "1 owners showed no ledger" in said.text


def test_several_kinds_of_batches_agree_by_both_accountants() -> None:
    """A ledger over runs with other batches: the second accountant must not call a true epsilon false."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        spent = {}
        for _ in range(int(rng.integers(1, 4))):
            size = int(rng.integers(2, 2000))
            noise = float(np.exp(rng.uniform(np.log(0.8), np.log(60))))
            event = Event("gaussian", noise, "fixed-size", batch=int(rng.integers(1, size)), size=size)
            spent[event] = int(np.exp(rng.uniform(0, 4)))
        first = accounting.epsilon(spent, 1e-5)
        if first < 20:
            assert agree(first, second_epsilon(spent, 1e-5), spent), spent
