"""The distinguishing game at small size: proven guarantees stand, broken mechanisms and the papers' claims fall."""

import json
import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import (
    DPADMM,
    DPSGD,
    DPFedAvg,
    FedEPM,
    FedPLT,
    FedSPDDP,
    MomentsThenGradients,
    NoisyGD,
)
from sottovoce.auditing import papers as audit_papers
from sottovoce.auditing import score as audit_score
from sottovoce.auditing.audit import Game, audit, shown, worst_case
from sottovoce.auditing.neighbours import Linear, Neighbours, canary, own_record
from sottovoce.auditing.papers import PROVEN, proven_game, proven_variants
from sottovoce.core.check import InvalidInput
from sottovoce.core.clipping import clip_rows
from sottovoce.core.random.streams import Purpose
from sottovoce.experiment.local import LocalClients
from sottovoce.privacy import paper_noise
from sottovoce.privacy.accounting import gaussian_epsilon
from sottovoce.privacy.doors.party import ProvenPartyDoor
from sottovoce.privacy.doors.record import RecordDoor
from sottovoce.privacy.modes import NoPrivacy, Proven, Published
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Squared
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2, NoPenalty
from tests.cases import CASES, goal, small
from tests.privacy.test_claims import exact_epsilon, fed_plt_transcript

# What is proven.

ALL_PROVEN = [name for name, case in CASES.items() if "proven" in case.algorithm.modes]
VARIANTS = [one for one in proven_variants() if one[0] not in ALL_PROVEN]


@pytest.mark.parametrize("name", ALL_PROVEN)
def test_proven_stays_below_its_epsilon(name: str) -> None:
    found = audit(proven_game(CASES[name].algorithm, PROVEN, rounds=3))
    assert found.verdict == "not refuted"
    assert found.statistic == "exact"
    assert 0.4 < found.worst.lower <= 1 + 1e-6  # it is looked at with teeth: most use their budget up


@pytest.mark.parametrize(("name", "method", "privacy"), VARIANTS, ids=[f"{v[0]} {i}" for i, v in enumerate(VARIANTS)])
def test_every_other_proven_variant_stays_below_its_epsilon(name: str, method: Any, privacy: Any) -> None:
    found = audit(proven_game(method, privacy, rounds=4), runs=256)
    assert found.verdict == "not refuted"
    assert found.worst.lower > (0.7 if "sharing" in name else 0.2)  # of 1: the attack has teeth


SUMS = Proven(epsilon=1.0, delta=1e-5, clip=1.0, observer="sums")
SUMMED: list[tuple[Any, Proven]] = [
    (NoisyGD(), SUMS),
    (NoisyGD(), replace(SUMS, colluders=0)),
    (NoisyGD(), replace(SUMS, colluders=9)),
    (NoisyGD(), replace(SUMS, relation="add-remove")),
    (MomentsThenGradients(), SUMS),
    (DPFedAvg(), replace(SUMS, unit="client")),
]


@pytest.mark.parametrize(("method", "privacy"), SUMMED, ids=[f"{m.name} {i}" for i, (m, _) in enumerate(SUMMED)])
def test_sums_give_away_what_is_claimed_and_no_more(method: Any, privacy: Proven) -> None:
    """The law of a sum with the colluders' noise removed: at least 0.9 of the claim, and never above it."""
    found = audit(worst_case(method, privacy, rounds=3), runs=64)
    assert (found.verdict, found.statistic) == ("not refuted", "exact")
    assert 0.9 < found.worst.lower <= 1


@pytest.mark.parametrize("unit", ["record", "client"])
def test_sums_with_too_little_noise_are_refuted(unit: Any) -> None:
    """Each client adds what would do if all ten were honest, and six are."""

    def all_honest(clients: LocalClients) -> None:
        plain = clients.door.grid_scale
        clients.door.grid_scale = lambda part, sensitivity: plain(part, sensitivity) * math.sqrt(0.6)

    game = worst_case(DPSGD(), replace(SUMS, unit=unit), rounds=3)
    found = audit(replace(game, tamper=all_honest), runs=64)
    assert found.verdict == "refuted"
    assert found.worst.lower == pytest.approx(1.33, abs=0.02)


def test_one_term_alone_gives_away_more_than_the_sum() -> None:
    """Why terms leave under masks: whoever sees each of them is in another game, with √h times less noise."""
    game = worst_case(DPSGD(), SUMS, rounds=3)
    (event,) = game.task("numpy").plan(np.full(10, 10), 5)
    seen = gaussian_epsilon(math.sqrt(3) * math.sqrt(6) / event.noise_multiplier, 1e-5)
    assert seen > 2.5


def test_the_score_finds_no_more_than_there_is() -> None:
    """From messages alone, trusting nothing: near the exact value where that is large enough to be seen."""
    privacy = replace(PROVEN, epsilon=3.0)
    game = Game(DPSGD(), canary(2, 5, 2), Objective(Linear(), L2(0.1)), privacy, 3, engine="numpy")
    found = audit(game, runs=8000, statistic="score")
    assert found.statistic == "score"
    assert 1.0 < found.worst.lower <= 3.0
    assert audit(game, runs=8000, statistic="score").comparisons == found.comparisons
    assert "95% confidence" in str(found)


@pytest.mark.parametrize("stopped_after", [math.inf, 3])
def test_runs_that_a_bound_is_taken_on_share_no_noise(stopped_after: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two equal data sets, runs of the same noise are the same to the last digit: so must the pilot's be, which
    learns from their difference, and none of the others, however many were played."""
    learnt_from: list[tuple[np.ndarray, np.ndarray]] = []
    monkeypatch.setattr(
        audit_score, "epsilon_from_seen", lambda one, other, *_: learnt_from.append((one, other)) or 0.0
    )
    monkeypatch.setattr("sottovoce.auditing.game.IN_CACHE", 4000)
    same = canary(1, 20, 2)
    turns: list[int] = []

    def impatient(what: str, done: int, of: int) -> None:
        turns.append(done)
        if len(turns) >= stopped_after:
            raise KeyboardInterrupt

    for runs in (64, 700, 1000):
        turns.clear()
        game = replace(LINEAR, neighbours=replace(same, second=same.first))
        found = audit(game, runs=runs, statistic="score", progress=impatient)
        one, other = learnt_from[-1]
        alike = (one == other).all(axis=1)
        half = len(one) // 2
        assert half > 0
        assert alike[:half].all()
        assert not alike[half:].any()
        assert found.runs >= 2 * len(one)


@pytest.mark.parametrize(("relation", "statistic"), [("replace-one", "exact"), ("add-remove", "ratio")])
def test_a_record_of_ones_own(relation: Any, statistic: str) -> None:
    """The logistic slopes of both labels differ by 1 wherever they are asked for; a blank's difference is not fixed."""
    federation, privacy = small(), replace(PROVEN, epsilon=2.0, relation=relation)
    neighbours = own_record(federation, goal().loss, relation)
    changed = np.abs(neighbours.first.X - neighbours.second.X).sum(axis=1)  # type: ignore[union-attr]
    changed += neighbours.first.y != neighbours.second.y
    assert (changed > 0).sum() == 1
    assert federation.offsets[neighbours.client] <= np.argmax(changed) < federation.offsets[neighbours.client + 1]
    found = audit(Game(DPADMM(), neighbours, goal(), privacy, 3, engine="numpy"), runs=400)
    assert found.statistic == statistic
    assert 0.3 < found.worst.lower <= 2.0


# What is broken on purpose.


class HalfTheNoise(RecordDoor):
    def noisy(
        self, exact: np.ndarray, scale: Any, purpose: Any, question: Any, kind: str = "gaussian", fresh: bool = False
    ) -> np.ndarray:
        return super().noisy(exact, scale / 2, purpose, question, kind)


class DeviationForVariance(RecordDoor):
    def noisy(
        self, exact: np.ndarray, scale: Any, purpose: Any, question: Any, kind: str = "gaussian", fresh: bool = False
    ) -> np.ndarray:
        return super().noisy(exact, scale**2, purpose, question, kind)


class ClipAfterSum(RecordDoor):
    def exact_gradient(self, w: Any, question: Any, clip: Any, norm: int = 2, quick: bool = False) -> np.ndarray:
        return clip_rows(super().exact_gradient(w, question, None), clip)


class NoiseTwice(RecordDoor):
    def occasion(self, purpose: Purpose, question: Any) -> Any:
        return super().occasion(purpose, replace(question, k=(question.k + 1) // 2))


class Smuggler(RecordDoor):
    """Uploads carry a little of the data besides the answers."""

    def release(self, u: np.ndarray, noise: Any, centre: Any, question: Any) -> np.ndarray:
        exact = self.exact.gradient(np.zeros((1, self.exact.dim)), question.local, None, 2, None, False)
        return u + 100 * exact


class HalfAPartysNoise(ProvenPartyDoor):
    def noisy(
        self, exact: np.ndarray, scale: Any, purpose: Any, question: Any, kind: str = "gaussian", fresh: bool = False
    ) -> np.ndarray:
        return super().noisy(exact, scale / 2, purpose, question, kind)


class LittleNoiseOnModels(ProvenPartyDoor):
    def noisy(
        self, exact: np.ndarray, scale: Any, purpose: Any, question: Any, kind: str = "gaussian", fresh: bool = False
    ) -> np.ndarray:
        return super().noisy(exact, scale / (10 if purpose is Purpose.RELEASE else 1), purpose, question, kind)


def noise_for_shorter_columns(place: Any) -> None:
    place.door.privacy = replace(place.door.privacy, column_bound=0.5)


def put(kind: Any) -> Any:
    def tamper(place: LocalClients) -> None:
        place.door = kind(**{field.name: getattr(place.door, field.name) for field in fields(place.door) if field.init})

    return tamper


PLAIN = Objective(Linear(), NoPenalty())
LINEAR = Game(DPSGD(), canary(1, 100, 2), PLAIN, PROVEN, 4, engine="numpy")
CURVED = Game(
    DPSGD(step=1.0),
    Neighbours(
        Federation.from_clients([([[1.0]], [0.5])], row_bound=1.0),
        Federation.from_clients([([[0.0]], [0.5])], row_bound=1.0),
        0,
        np.ones(1),
        "one record of squared loss, or a blank",
    ),
    Objective(Squared(), NoPenalty()),
    replace(PROVEN, relation="add-remove"),
    2,
    engine="numpy",
)
COLUMNS = {name: proven_game(method, privacy, 4) for name, method, privacy in VARIANTS if "sharing" in name}
BROKEN = {
    "half the noise": replace(LINEAR, tamper=put(HalfTheNoise)),
    "deviation for variance": replace(LINEAR, tamper=put(DeviationForVariance)),
    "clipped after the sum": replace(LINEAR, neighbours=canary(1, 100, 2, length=200.0), tamper=put(ClipAfterSum)),
    "noise used in two rounds": replace(CURVED, tamper=put(NoiseTwice)),
    "data beside the answers": replace(LINEAR, tamper=put(Smuggler)),
    "batches leaked": replace(
        LINEAR,
        algorithm=DPSGD(batch=1),
        neighbours=canary(1, 10, 2, "add-remove"),
        privacy=replace(PROVEN, relation="add-remove"),
        rounds=10,
        batches_known=True,
    ),
    "half the noise on a party's scores": replace(COLUMNS["admm-sharing, record"], tamper=put(HalfAPartysNoise)),
    "noise for shorter columns": replace(COLUMNS["admm-sharing, column"], tamper=noise_for_shorter_columns),
    "little noise on a party's model": replace(COLUMNS["admm-sharing, clipped"], tamper=put(LittleNoiseOnModels)),
}
STATISTIC = {"noise used in two rounds": "score", "batches leaked": "ratio"}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_mechanism_is_refuted(name: str) -> None:
    found = audit(BROKEN[name], runs=3000)
    assert found.refuted, found
    assert found.statistic == STATISTIC.get(name, "exact")
    assert found.worst.lower > 1.5
    assert "REFUTED" in str(found)


@pytest.mark.parametrize("name", BROKEN)
def test_the_same_without_the_fault_is_not(name: str) -> None:
    whole = replace(BROKEN[name], tamper=lambda place: None, batches_known=False)
    assert not audit(whole, runs=1000).refuted


# What the papers claim.


@pytest.mark.parametrize(
    ("claim", "claimed", "found"),
    [
        ("Lemma 2: one round", 1.0, 7.09),
        ("Theorem V.1: first upload", 0.1, 1.204),
        ("(39): first upload", 0.1, math.inf),
        ("Theorem 3: one message", 1.0, math.inf),
    ],
)
def test_papers_claims_fall(claim: str, claimed: float, found: float, monkeypatch: pytest.MonkeyPatch) -> None:
    (game,) = [(game, words) for game, words in audit_papers.paper_claims() if min(words.values()).startswith(claim)]
    monkeypatch.setattr(audit_papers, "paper_claims", lambda: [game])
    line = next(audit_papers.rows())
    assert line.refuted
    assert (line.how, line.claimed) == ("exact", claimed)
    assert line.found == pytest.approx(found, rel=1e-3)


def test_hidden_state_of_fedspd() -> None:
    """The paper's constants, twenty uploads: what `privacy/test_claims.py` computes from the recursion alone."""
    from tests.privacy.test_claims import fedspd_mus

    inside = 3 + 2 / 10 + 51840 * math.log(1.25e4) / 4**2
    mus = fedspd_mus(tuple(2 * math.sqrt(5 * inside * t) for t in range(1, 21)), 5, 10)
    game = Game(FedSPDDP(rho=20.0), canary(1, 10, 162), PLAIN, Published(1.0, 1e-4), 20, engine="numpy")
    whole, upload = audit(game).comparisons
    assert upload.what == f"upload {np.argmax(mus) + 1}, given those before"
    assert upload.lower == pytest.approx(exact_epsilon(mus.max(), 1e-4), rel=1e-5)
    assert whole.lower == pytest.approx(exact_epsilon(float(np.linalg.norm(mus)), 20e-4), rel=1e-5)
    assert upload.refuted


def test_theorem_one_of_fedspd_with_secret_batches() -> None:
    """A smaller client, where the leak is larger: from the code with chosen batches, against sampled runs of it."""
    method = FedSPDDP(rho=20.0, batch=1, local_steps=2)
    per_round = method.epsilon_of_round(1.0, 12, [6])
    game = Game(method, canary(1, 6, 2), PLAIN, Published(per_round, 1e-4), 12)
    computed, sampled = audit(game), audit(game, runs=6000, statistic="score")
    assert (computed.statistic, sampled.statistic) == ("computed", "score")
    assert computed.worst.claimed == pytest.approx(1.0)
    assert computed.refuted
    assert 0.3 * computed.worst.lower < sampled.worst.lower < computed.worst.lower


def test_transcript_of_fed_plt() -> None:
    method = FedPLT(rho=0.3, strong=0.5, smooth=0.75, horizon=30)
    game = Game(method, canary(1, 1, 1), Objective(Linear(), L2(0.5)), Published(1.0, 1e-5, clip=1.0), 30)
    found = audit(game)
    assert found.statistic == "exact"
    assert found.worst.lower == pytest.approx(fed_plt_transcript(30), rel=1e-6)


def test_dp_admm_stands_as_corrected_and_falls_as_printed() -> None:
    method, privacy = DPADMM(rho=0.1, c_w=89.0), Published(0.2, 1e-3)
    neighbours, objective = canary(1, 40, 8), Objective(Linear(bend=0.25), L2(1e-6))
    corrected = audit(Game(method, neighbours, objective, privacy, 10, engine="numpy"))
    true = exact_epsilon(paper_noise.dp_admm_exact_mu(10, 0.2, 1e-3), 1e-3)
    assert corrected.comparisons[0].lower == pytest.approx(true, rel=1e-6)
    assert not corrected.refuted
    printed = audit_papers.MatrixNormalDPADMM(rho=0.1, c_w=89.0)
    short = replace(Game(printed, canary(1, 400, 8), objective, privacy, 10, engine="numpy"), claim=(true, 1e-3))
    assert audit(short).refuted


def test_published_laplace_without_k0_steps_is_as_claimed() -> None:
    game = Game(FedEPM.as_in_paper(50, 0.5, noise=27, c=0.0, k0=1), canary(1, 1, 1), PLAIN, Published(0.1), 1)
    assert audit(game).comparisons[-1].lower == pytest.approx(0.1, rel=1e-3)


# How it is told.


def test_ctrl_c_gives_the_result_so_far() -> None:
    def impatient(what: str, done: int, of: int) -> None:
        if done >= 1000:
            raise KeyboardInterrupt

    game = replace(LINEAR, neighbours=canary(1, 400, 160))
    found = audit(game, runs=100_000, statistic="score", progress=impatient)
    assert found.interrupted
    assert 0 < found.runs < 5000
    assert "Interrupted after" in str(found)


def test_words_and_numbers() -> None:
    found = audit(LINEAR)
    told = found.to_dict()
    assert told["verdict"] == "not refuted"
    assert told["comparisons"][0]["lower"] == pytest.approx(gaussian_epsilon(*_mu(1.0)), rel=1e-6)
    assert "proves nothing" in str(found)
    assert shown(1.23456) == "1.234"
    assert shown(39.999) == "39.99"
    assert shown(math.inf) == "infinite"


@pytest.mark.parametrize("claimed", [0.5, 3.0])
def test_a_claim_may_be_a_number_of_numpy(claimed: float) -> None:
    """A refutation is printed and stored as for a plain number: NumPy's booleans neither multiply text nor fit JSON."""
    plain, found = (audit(replace(LINEAR, claim=(kind(claimed), 1e-5))) for kind in (float, np.float64))
    assert (": REFUTED" in str(found)) == found.refuted == (claimed < 1)
    assert json.dumps(found.to_dict() | {"seconds": 0}) == json.dumps(plain.to_dict() | {"seconds": 0})


def _mu(epsilon: float) -> tuple[float, float]:
    from sottovoce.privacy.accounting import gaussian_mu

    return gaussian_mu(epsilon, PROVEN.delta), PROVEN.delta


def test_wrong_input_is_refused() -> None:
    with pytest.raises(InvalidInput, match="published or proven"):
        replace(LINEAR, privacy=NoPrivacy())
    with pytest.raises(InvalidInput, match="seeded noise"):
        audit(replace(LINEAR, privacy=Proven(1.0, 1e-5, 1.0, noise="secure")))
    with pytest.raises(InvalidInput, match="runs must be a whole number >= 64"):
        audit(LINEAR, runs=3)
    with pytest.raises(InvalidInput, match=r"unknown statistic 'scores'\. Did you mean 'score'"):
        audit(LINEAR, statistic="scores")  # type: ignore[arg-type]
