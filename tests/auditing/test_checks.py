"""Checks of noise, clipping, batches and charges: honest methods pass on every path, planted bugs do not."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import (
    ADMM,
    ALGORITHMS,
    DPADMM,
    DPSGD,
    ADMMSharing,
    FedEPM,
    FedPLT,
    FedSPDDP,
    Moments,
    MomentsThenGradients,
)
from sottovoce.auditing import promise as audit_promise
from sottovoce.auditing.audit import audit
from sottovoce.auditing.checks import crowd_of, noise_and_charges
from sottovoce.auditing.finding import Check
from sottovoce.auditing.game import Game, columns_promise, worst_case
from sottovoce.auditing.paths import PATHS, USUAL, examine, paths_of
from sottovoce.auditing.second_accountant import second_epsilon
from sottovoce.core.random.binding import Factors
from sottovoce.ledger import memory
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.ledger.owner_ledgers import OwnerLedgers
from sottovoce.privacy import accounting, calibration
from sottovoce.privacy import discrete_noise as mechanisms
from sottovoce.privacy import local_steps as local_runs
from sottovoce.privacy.doors import client
from sottovoce.privacy.doors.base import Door
from sottovoce.privacy.doors.proven import ProvenDoor
from sottovoce.privacy.doors.record import RecordDoor
from sottovoce.privacy.modes import Proven, ProvenColumns, Published
from sottovoce.privacy.noise_key import NoiseKey
from sottovoce.problems.rows import Rows

PROMISE = Proven(1.0, 1e-5, 1.0)
SGD, LOCAL, SIZE = DPSGD(), FedSPDDP(local_steps=2), "size of the noise"
EACH = f"{SIZE}, per client and coordinate"
# Products of split columns have an audit of their own: test_products.py.
METHODS = [name for name, kind in ALGORITHMS.items() if "proven" in kind.modes and name != "masked-moments"]


def game_of(method: Any, rounds: int = 4, privacy: Any = None) -> Game:
    usual = columns_promise(1.0, 1e-5, "record") if method.layout == "columns" else PROMISE
    return worst_case(method, privacy or usual, rounds)


def failed(checks: list[Check]) -> list[Check]:
    return [one for one in checks if one.verdict != "not refuted"]


# What is honest.


@pytest.mark.parametrize("name", METHODS)
def test_honest_methods_pass(name: str) -> None:
    checks = examine(game_of(ALGORITHMS[name](), rounds=3), ["plain"], seed=0)
    assert not failed(checks)
    assert len(checks) >= 18


@pytest.mark.parametrize(
    "method", [DPSGD(), ADMM(), LOCAL, FedEPM(), FedPLT(local_steps=2), ADMMSharing()], ids=lambda m: m.name
)
def test_honest_methods_pass_on_every_path(method: Any) -> None:
    game = game_of(method, rounds=2)
    paths = paths_of(game)
    checks = examine(game, paths, seed=2)
    assert not failed(checks)
    looked_at = {one.path.split(",")[0].split(" ")[0] for one in checks}
    assert looked_at == {"variant" if path == "variants" else path for path in paths}


def test_every_path_is_somebodys() -> None:
    assert set(USUAL) <= set(PATHS)
    methods = (DPSGD(), FedEPM(), ADMMSharing())
    assert set().union(*(paths_of(game_of(method)) for method in methods)) == set(PATHS)


@pytest.mark.parametrize("name", ["dp-admm", "pvp", "fedepm", "fedspd-dp", "fed-plt"])
def test_published_noise_is_what_the_paper_states(name: str) -> None:
    privacy = Published(0.5, 0.0 if name == "fedepm" else 1e-5, clip=1.0 if name == "fed-plt" else None)
    checks = examine(game_of(ALGORITHMS[name](), privacy=privacy), ["plain"])
    assert not failed(checks)


def test_a_whole_game_is_not_suspicious_whatever_the_clip_norm() -> None:
    for clip in (0.01, 1.0, 50.0):
        found = audit(game_of(DPADMM(), privacy=replace(PROMISE, clip=clip)))
        assert found.verdict == "not refuted"
        assert found.worst.lower == pytest.approx(1.0, rel=1e-4)


# What is planted. Each row: where the bug is, the bug, on which method it shows, on which path, and in which check.


def noisy(change: Callable[[np.ndarray, np.ndarray, Any], np.ndarray]) -> Any:
    """A door whose standard noise is changed: change(noise, exact, door) -> noise."""
    plain = Door.noisy

    def broken(
        self: Any, exact: np.ndarray, scale: Any, purpose: Any, question: Any, kind: str = "gaussian", *_: Any
    ) -> Any:
        intercept, kept = self.intercept, {}
        self.intercept = lambda answer, *made_of: kept.update(answer=answer, made_of=made_of) or answer
        try:
            plain(self, exact, scale, purpose, question, kind)
        finally:
            self.intercept = intercept
        noise = change((kept["answer"] - exact) / scale, exact, question)
        return self.intercept(exact + scale * noise, *kept["made_of"])

    return broken


def first_coordinate(noise: np.ndarray, exact: np.ndarray, question: Any) -> np.ndarray:
    return noise * (np.arange(noise.shape[-1]) == 0)


def along_the_answer(noise: np.ndarray, exact: np.ndarray, question: Any) -> np.ndarray:
    return np.copysign(noise, np.where(exact == 0, noise, exact))


class Kept:
    """Noise of the first time, used again; `of` says for which questions."""

    def __init__(self, of: Callable[[Any], Any], sign: float = 1.0) -> None:
        self.of, self.sign, self.noise = of, sign, {}

    def __call__(self, noise: np.ndarray, exact: np.ndarray, question: Any) -> np.ndarray:
        name = (*np.shape(noise), self.of(question))
        known = name in self.noise
        return self.sign**known * self.noise.setdefault(name, noise)


def same_for_clients(noise: np.ndarray, exact: np.ndarray, question: Any) -> np.ndarray:
    return np.broadcast_to(noise[..., :1, :], noise.shape)


def same_in_all_runs(noise: np.ndarray, exact: np.ndarray, question: Any) -> np.ndarray:
    return np.broadcast_to(noise[:1], noise.shape)


def unclipped(where: Callable[[Any], bool]) -> Any:
    plain = Rows.gradient

    def broken(
        self: Any, w: Any, clients: Any = None, clip: Any = None, norm: int = 2, keep: Any = None, *rest: Any
    ) -> Any:
        return plain(self, w, clients, None if where(self) else clip, norm, keep)

    return broken


def batch_of(change: Callable[[Any, np.ndarray], np.ndarray]) -> Any:
    """Rows whose batches are changed on the way: change(rows, keep) -> keep."""
    plain = Rows.gradient

    def broken(
        self: Any, w: Any, clients: Any = None, clip: Any = None, norm: int = 2, keep: Any = None, *rest: Any
    ) -> Any:
        return plain(self, w, clients, clip, norm, None if keep is None else change(self, keep))

    return broken


def not_redrawn(rows: Any, keep: np.ndarray) -> np.ndarray:
    known = rows.__dict__.setdefault("first_batch", keep)
    return known if known.shape == keep.shape else keep


def doubled(rows: Any, keep: np.ndarray) -> np.ndarray:
    return keep | np.roll(keep, 1, axis=-1)


def one_round_less() -> Any:
    plain = Proven.counts
    return lambda privacy, asks, rounds, most: plain(privacy, asks, rounds - 1, most)


def one_more() -> Any:
    plain = MemoryLedger._left
    return lambda self, row, who: plain(self, row, who) + 1


def every_other_answer() -> Any:
    plain = MemoryLedger.charge

    def broken(self: Any, event: Any, clients: Any, active: Any, round: int, question: int, *rest: Any) -> None:
        if question % 2 == 0:
            plain(self, event, clients, active, round, question, *rest)

    return broken


def unbound(part: str) -> Any:
    """A key that leaves out the answer (its factors are 0), or the rows."""
    plain = NoiseKey.bound

    def broken(self: Any, local: np.ndarray, count: int, asked: Any) -> Any:
        bound: Any = plain(self, local, count, asked)
        nothing = {"rows": 0 * bound.rows, "factors": Factors.of(0 * bound.factors.table)}
        return bound._replace(**{part: nothing[part]})

    return broken


def forgetful() -> Any:
    plain = MemoryLedger.restore

    def broken(self: Any, state: Any) -> None:
        plain(self, state | {"counts": 0 * state["counts"]})

    return broken


def without_factor_two() -> Any:
    return property(lambda self: 1)


def half_of(plain: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: plain(*given) / 2


def less_secure() -> Any:
    plain = mechanisms.noised
    return lambda kind, scale, numbers, *streams: plain(kind, scale / 2, numbers, *streams)


def even_steps() -> Any:
    plain = mechanisms.noised
    return lambda *given: plain(*given) // 2 * 2


def as_removed() -> Any:
    plain = calibration.moments_steps
    return lambda part, shape, replaced, width: plain(part, shape, False, width)


def off_the_grid() -> Any:
    plain = ProvenDoor.on_grid
    return lambda *given: plain(*given) + 1e-9


BUGS: dict[str, tuple[Any, str, Any, Any, str, str]] = {
    "half sigma": (Door, "noisy", noisy(lambda z, *_: z / 2), SGD, "plain", SIZE),
    "half sigma on uploads": (Door, "noisy", noisy(lambda z, *_: z / 2), SGD, "client", SIZE),
    "ten percent less noise": (Door, "noisy", noisy(lambda z, *_: 0.9 * z), SGD, "plain", SIZE),
    "missing factor 2": (RecordDoor, "_reach", without_factor_two(), SGD, "plain", "noise that the code states"),
    "first coordinate only": (Door, "noisy", noisy(first_coordinate), SGD, "plain", EACH),
    "one number for all coordinates": (
        Door, "noisy", noisy(lambda z, *_: np.broadcast_to(z[..., :1], z.shape)), SGD, "plain",
        "noise of different coordinates",
    ),
    "uniform noise": (
        Door, "noisy", noisy(lambda z, *_: math.sqrt(3) * np.tanh(z / 0.9)), SGD, "plain", "distribution of the noise",
    ),
    "reused over rounds": (
        Door, "noisy", noisy(Kept(lambda q: q.number)), SGD, "plain", "noise of different rounds and questions",
    ),
    "taken back in the next round": (
        Door, "noisy", noisy(Kept(lambda q: (q.number, q.k // 2), -1.0)), SGD, "plain",
        "noise of different rounds and questions",
    ),
    "reused over questions": (
        Door, "noisy", noisy(Kept(lambda q: q.k)), LOCAL, "plain", "noise used more than once",
    ),
    "the same for two clients": (Door, "noisy", noisy(same_for_clients), SGD, "plain", "noise of different clients"),
    "the same in all runs": (Door, "noisy", noisy(same_in_all_runs), SGD, "plain", "noise used more than once"),
    "along the answer": (Door, "noisy", noisy(along_the_answer), SGD, "plain", "noise and exact answer"),
    "float32 not clipped": (
        Rows, "gradient", unclipped(lambda rows: rows.X.dtype == np.float32), SGD, "float32",
        "what one record (or unit) changes",
    ),
    "kernel not clipped": (
        Rows, "gradient", unclipped(lambda rows: rows.engine == "kernel"), SGD, "kernel",
        "what one record (or unit) changes",
    ),
    "batches not redrawn": (
        Rows, "gradient", batch_of(not_redrawn), SGD, "fixed-size", "batches of different rounds and questions",
    ),
    "Poisson rate doubled": (Rows, "gradient", batch_of(doubled), SGD, "poisson", "share of records drawn"),
    "Poisson batches of fixed size": (
        Rows, "gradient", batch_of(lambda rows, keep: np.broadcast_to(np.arange(keep.shape[-1]) % 5 == 0, keep.shape)),
        SGD, "poisson", "size of batches",
    ),
    "charge skipped": (MemoryLedger, "charge", lambda *_: None, SGD, "plain", "answers charged"),
    "every other answer charged": (MemoryLedger, "charge", every_other_answer(), LOCAL, "plain", "answers charged"),
    "refused one answer too late": (MemoryLedger, "_left", one_more(), SGD, "plain", "epsilon by a second accountant"),
    "off by one round": (Proven, "counts", one_round_less(), SGD, "plain", "noise that the code states"),
    "epsilon printed too small": (
        memory, "_epsilon", half_of(memory._epsilon), SGD, "plain", "epsilon that is printed",
    ),
    "arg-min sensitivity halved": (
        RecordDoor, "_sensitivity", half_of(RecordDoor._sensitivity), ADMM(), "plain", "noise that the code states",
    ),
    "prox-step sensitivity halved": (
        local_runs, "prox_steps_sensitivity", half_of(local_runs.prox_steps_sensitivity), LOCAL, "variants",
        "epsilon by a second accountant",
    ),
    "gain of a chain left out": (
        local_runs, "chain_gain", lambda c, count: np.ones_like(c), FedPLT(local_steps=3), "variants", SIZE,
    ),
    "half the secure noise": (mechanisms, "noised", less_secure(), SGD, "secure", SIZE),
    "answers off the grid": (
        ProvenDoor, "on_grid", off_the_grid(), SGD, "secure", "low bits",
    ),
    "answers on every second step of the grid": (
        mechanisms, "noised", even_steps(), SGD, "secure", "last 8 bits of answers",
    ),
    "half the noise on moments": (mechanisms, "noised", less_secure(), Moments(), "secure", SIZE),
    "moments charged as removed": (
        calibration, "moments_steps", as_removed(), Moments(), "secure", "noise that the code states",
    ),
    "half the noise on the end of local steps": (
        mechanisms, "noised", less_secure(), FedEPM(variant="P"), "secure", SIZE,
    ),
    "half the grid for the end of local steps": (
        calibration, "difference_steps", half_of(mechanisms.difference_steps), FedEPM(variant="P"), "secure",
        "noise that the code states",
    ),
    "uploads not clipped": (
        client, "clip_rows", lambda vectors, bound: vectors, SGD, "client", "what one record (or unit) changes",
    ),
    "ledger files not written": (OwnerLedgers, "_charge_one", lambda *_: None, SGD, "ledgers", "answers charged"),
    "noise not bound to the answer": (
        NoiseKey, "bound", unbound("factors"), SGD, "seeds", "noise for another answer about the same rows",
    ),
    "noise not bound to the rows": (
        NoiseKey, "bound", unbound("rows"), SGD, "seeds", "noise for the same answer about other rows",
    ),
    "bound on rows left out of charges": (
        calibration, "bound_in_force", lambda *_: 0.0, LOCAL, "variants", "bound on rows that a charge names",
    ),
    "spent budget forgotten": (MemoryLedger, "restore", forgetful(), SGD, "resume", "answers charged over both halves"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("method", "places"),
    [(SGD, {"secure", "secure, fixed-size", "secure, poisson"}), (Moments(), {"secure"}),
     (MomentsThenGradients(), {"secure", "secure, moments", "secure, gradient"})],
    ids=["gradients", "moments", "both"],
)  # fmt: skip
def test_noise_of_the_operating_system_is_as_promised(method: Any, places: set[str]) -> None:
    checks = examine(game_of(method), ["secure"])
    assert not failed(checks)
    assert {one.path for one in checks} == places
    assert {"low bits", "last 8 bits of answers", "what one record (or unit) changes"} <= {one.name for one in checks}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_refuted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, broken, method, path, check = BUGS[name]
    monkeypatch.setattr(owner, attribute, broken)
    found = failed(examine(game_of(method), [path]))
    assert check in {one.name for one in found}
    assert all(one.verdict == "refuted" for one in found)


def test_more_noise_than_promised_is_suspicious(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = calibration.shared_out

    def generous(*given: Any) -> Any:
        return tuple(replace(event, noise_multiplier=1.01 * event.noise_multiplier) for event in plain(*given))

    monkeypatch.setattr(calibration, "shared_out", generous)
    stated = [one for one in examine(game_of(DPSGD()), ["plain"]) if one.name == "noise that the code states"]
    assert [one.verdict for one in stated] == ["suspicious"]


def test_an_exact_epsilon_far_below_the_claim_is_suspicious(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five times the noise: nothing is refuted, and something is wrong."""
    plain = Door.noisy

    def louder(self: Any, exact: Any, scale: Any, *rest: Any) -> Any:
        return plain(self, exact, 5 * scale, *rest)

    monkeypatch.setattr(Door, "noisy", louder)
    found = audit(game_of(DPADMM()))
    assert (found.statistic, found.verdict, found.refuted) == ("exact", "suspicious", False)
    assert "noise may be reused" in str(found)
    assert found.to_dict()["far_below"]


def test_tampering_reaches_the_checks() -> None:
    """A game that was tampered with is looked at as it is, on other data too."""

    def tamper(place: Any) -> None:
        place.door.privacy = replace(place.door.privacy, clip=2.0)

    game = crowd_of(replace(game_of(DPSGD()), tamper=tamper))
    assert "noise that the code states" in {one.name for one in failed(noise_and_charges(game, "plain", 0))}


# The audit's own numbers, against the library's.


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-5), (8.0, 1e-6)])
def test_promised_noise_is_calibrated_noise(epsilon: float, delta: float) -> None:
    for mechanism in ("gaussian", "discrete-gaussian"):
        mine = audit_promise.Promised(mechanism, "replace-one", "full", 30, epsilon, delta)
        kind: Any = mechanism
        assert mine.multiplier == pytest.approx(accounting.calibrate(epsilon, delta, 30, mechanism=kind), rel=2e-9)
        cost = second_epsilon({mine.event(mine.multiplier or 0.0): 30}, delta)
        assert cost == pytest.approx(epsilon, rel=5e-4)


@pytest.mark.parametrize(("sampling", "relation"), [("poisson", "add-remove"), ("fixed-size", "replace-one")])
def test_the_second_accountant_agrees_about_batches(sampling: Any, relation: Any) -> None:
    drawn: Any = {"rate": 0.2} if sampling == "poisson" else {"batch": 2, "size": 10}
    noise = accounting.calibrate(1.0, 1e-5, 20, sampling=sampling, relation=relation, **drawn)
    promise = audit_promise.Promised("gaussian", relation, sampling, 20, 1.0, 1e-5)
    event = promise.event(noise, 0.2, 10)
    assert second_epsilon({event: 20}, 1e-5) == pytest.approx(1.0, rel=5e-4)
    assert second_epsilon({event: 21}, 1e-5) > 1.02


def test_promised_counts_the_model_and_the_participations() -> None:
    columns = ProvenColumns(1.0, 1e-5, "party", bound=1.0)
    assert [one.answers for one in audit_promise.promised(columns, ADMMSharing().asks(), 4)] == [5]
    short = replace(PROMISE, participations=3)
    assert [one.answers for one in audit_promise.promised(short, FedSPDDP(local_steps=2).asks(), 10)] == [6]
