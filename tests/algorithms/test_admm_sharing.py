"""ADMM sharing and FDML: the optimum of the pooled features, safe parallel updates, residuals, the paper's slips."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from sottovoce.algorithms import FDML, ADMMSharing
from sottovoce.algorithms.admm_sharing import Server, meets_assumption
from sottovoce.core import codec
from sottovoce.core.check import InvalidInput
from sottovoce.core.participation import KOfN
from sottovoce.core.round import Checkpoint
from sottovoce.experiment.parties import LocalParties
from sottovoce.experiment.train import train
from sottovoce.privacy.modes import NoPrivacy
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Huber, Logistic, SmoothedHinge, Squared, newton_prox
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L1, L2, ElasticNet, NoPenalty
from sottovoce.problems.vertical import VerticalFederation
from tests.local import assemble
from tests.reference import optimum

SPLITS = {1: [12], 2: [9, 3], 3: [1, 7, 4], 5: [2, 1, 5, 3, 1]}
PLAIN: dict[str, Any] = {"privacy": NoPrivacy(), "seed": 0}


def problem(loss: str = "logistic", deficient: bool = False, samples: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(samples, 12))
    if deficient:
        X[:, 4] = X[:, 2] + X[:, 3]  # within one party of every split but that of five
        X[:, 8] = 0.0
    score = X @ rng.normal(size=12) + rng.normal(size=samples)
    return X, np.where(score > 0, 1.0, -1.0) if loss == "logistic" else score


def objective(loss: str, penalty: Any, scale: Any = "mean") -> Objective:
    return Objective(Logistic() if loss == "logistic" else Squared(), penalty, scale)


def solved(X: Any, y: np.ndarray, split: list[int], goal: Objective, rounds: int = 6000, **fields: Any) -> Any:
    given: dict[str, Any] = {"tol": 1e-9} | fields
    algorithm = ADMMSharing(**given)
    return train(
        algorithm, VerticalFederation.from_columns(X, y, split), goal, rounds=rounds, record_every=rounds, **PLAIN
    )


KINDS = [(1, "dense"), (2, "dense"), (3, "dense"), (5, "dense"), (3, "sparse"), (3, "rank-deficient")]
# The loss belongs to the server and the kind of columns to the parties: every kind with one loss will do.
PROBLEMS = [*(("logistic", *kind) for kind in KINDS), ("squared", 2, "dense"), ("squared", 3, "rank-deficient")]


@pytest.mark.parametrize(("loss", "parties", "kind"), PROBLEMS)
def test_l2_agrees_with_scikit_learn_on_the_pooled_features(loss: str, parties: int, kind: str) -> None:
    X, y = problem(loss, deficient=kind == "rank-deficient")
    goal = objective(loss, L2(0.05))
    result = solved(csr_array(X) if kind == "sparse" else X, y, SPLITS[parties], goal)
    want = optimum(Federation.from_clients([(X, y)]), goal)
    np.testing.assert_allclose(result.model, want, atol=1e-6, rtol=0)
    assert "residuals" in result.stopped


@pytest.mark.parametrize(("loss", "parties", "kind"), PROBLEMS)
def test_l1_reaches_the_objective_of_scikit_learn(loss: str, parties: int, kind: str) -> None:
    X, y = problem(loss, deficient=kind == "rank-deficient", samples=40)
    goal = objective(loss, L1(0.05))
    result = solved(csr_array(X) if kind == "sparse" else X, y, SPLITS[parties], goal, rounds=1500, tol=1e-7)
    reference = X if kind != "rank-deficient" else np.delete(X, [4, 8], axis=1)  # its minimiser is one of X's too
    best = optimum(Federation.from_clients([(reference, y)]), goal)
    if kind == "rank-deficient":
        best = _better(X, y, goal, np.insert(best, [4, 7], 0.0))
    assert result.history["objective"][-1] == pytest.approx(_value(X, y, goal, best), abs=1e-8)


def _value(X: np.ndarray, y: np.ndarray, goal: Objective, w: np.ndarray) -> float:
    return float(goal.loss.value(X @ w, y).mean() + goal.penalty.value(w))


def _better(X: np.ndarray, y: np.ndarray, goal: Objective, w: np.ndarray) -> np.ndarray:
    """Proximal gradients from a good start: with the column that is a sum of two others, a lower l1 norm may exist."""
    step = 1 / (goal.loss.curvature * float(np.linalg.eigvalsh(X.T @ X / len(X))[-1]))
    for _ in range(5_000):
        w = goal.penalty.prox(w - step * X.T @ goal.loss.slope(X @ w, y) / len(X), step)
    return w


@pytest.mark.parametrize(
    ("loss", "penalty"),
    [(Huber(0.5), NoPenalty()), (Huber(0.5), ElasticNet(0.02, 0.1)), (SmoothedHinge(0.5), L2(0.1))],
)
def test_other_losses_reach_a_stationary_point(loss: Any, penalty: Any) -> None:
    X, y = problem("logistic" if loss.classification else "squared")
    result = solved(X, y, SPLITS[3], Objective(loss, penalty))
    slope = X.T @ loss.slope(X @ result.model, y) / len(X)
    again = penalty.prox(result.model - slope, 1.0)
    np.testing.assert_allclose(again, result.model, atol=1e-6, rtol=0)


def test_mean_and_sum_differ_by_the_number_of_samples() -> None:
    X, y = problem()
    mean = solved(X, y, SPLITS[3], objective("logistic", L2(0.05)))
    total = solved(X, y, SPLITS[3], objective("logistic", L2(0.05 * len(y)), "sum"))
    np.testing.assert_allclose(mean.model, total.model, atol=1e-12, rtol=0)
    assert mean.rounds == total.rounds  # rho="auto" follows the scale: the iterates are the same


def test_renumbering_parties_renumbers_the_models() -> None:
    X, y = problem()
    federation, order = VerticalFederation.from_columns(X, y, SPLITS[5]), [3, 0, 4, 2, 1]
    other = VerticalFederation.from_arrays([federation.parts[m] for m in order], y)
    goal = objective("logistic", L2(0.05))
    results: list[Any] = [train(ADMMSharing(), fed, goal, rounds=30, **PLAIN) for fed in (federation, other)]
    one, two = results
    for place, m in enumerate(order):
        np.testing.assert_allclose(two.party_model(place), one.party_model(m), atol=1e-12, rtol=0)


# ------------------------------------------------------------------------------------------ parallel updates, and rho


def twins(parties: int) -> VerticalFederation:
    """The same column in every party: the hardest case for updates in parallel."""
    rng = np.random.default_rng(0)
    column = rng.normal(size=(30, 1))
    return VerticalFederation.from_arrays([column] * parties, column[:, 0] + 0.1 * rng.normal(size=30))


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_plain_updates_diverge_beyond_the_threshold_and_the_proximal_term_cures_it(parties: int) -> None:
    goal, threshold = Objective(Squared(), L2(1e-3), "sum"), (3 * parties - 4) / 2  # rho/L, from 2/(3M - 4)
    start, least = float((twins(parties).y ** 2).sum() / 2), 0.0

    def end(rho: float, proximal: Any) -> float:
        algorithm = ADMMSharing(rho=rho, proximal=proximal)
        with np.errstate(over="ignore", invalid="ignore"):
            result = train(algorithm, twins(parties), goal, rounds=200, record_every=200, **PLAIN)
        return float(result.history["objective"][-1])

    assert end(1.3 * threshold, 0.0) < 0.05 * start
    assert end(0.7 * threshold, 0.0) > 1e3 * start
    least = end(0.7 * threshold, "auto")
    assert least < 0.05 * start
    assert end(0.7 * threshold, float(parties - 1)) == pytest.approx(least, rel=1e-3)


def test_the_proximal_term_is_off_where_it_is_not_needed() -> None:
    X, y = problem()
    goal = objective("logistic", L2(0.05))
    for parties, wanted in ((1, 1.0), (2, 1.0), (3, 1.5), (5, 2.5)):
        federation = VerticalFederation.from_columns(X, y, SPLITS[parties])
        assert _down(ADMMSharing(), federation, goal).weight.item() == wanted
        smoothness = 0.25 / len(y)
        assert _down(ADMMSharing(), federation, goal).rho.item() == 2 * smoothness
        assert _down(ADMMSharing(rho=0.5 * smoothness), federation, goal).weight.item() == parties


def _down(algorithm: ADMMSharing, federation: VerticalFederation, goal: Objective) -> Any:
    from tests.algorithms.test_contract import hub

    place = assemble(algorithm, federation, goal, NoPrivacy(), KOfN(1), 5, _streams(), None, "numpy")
    return algorithm.broadcast(algorithm.init_server(hub(place)), hub(place))


def _streams() -> Any:
    from sottovoce.core.random.streams import Streams

    return Streams(0)


def test_lemma_3_has_its_sign_the_wrong_way_round() -> None:
    """(21) claims that the parallel step exceeds the sum of single ones by at most Σ|δ|²: twins exceed it."""
    s, z, moves = np.zeros(3), np.zeros(3), np.ones((4, 3))
    together = np.sum((s + moves.sum(axis=0) - z) ** 2) - np.sum((s - z) ** 2)
    single = sum(np.sum((s + move - z) ** 2) - np.sum((s - z) ** 2) for move in moves)
    squares = np.sum(moves**2)
    assert together - single == np.sum(moves.sum(axis=0) ** 2) - squares
    assert together - single == (len(moves) - 1) * squares > squares


def test_the_lagrangian_falls_when_c_is_at_least_half_the_parties() -> None:
    """What the corrected Lemma 4 gives: rho from the rule, c = M/2, any data."""
    X, y = problem()
    federation, goal = VerticalFederation.from_columns(X, y, SPLITS[5]), objective("logistic", L2(0.05))
    kept: list[Checkpoint] = []
    train(ADMMSharing(), federation, goal, rounds=40, after_round=kept.append, **PLAIN)
    values = []
    for checkpoint in kept:
        server, x = checkpoint.server, _models(checkpoint, federation, goal)
        excess = server.r.sum(axis=0) - server.z[0]
        loss = goal.loss.value(server.z[0], y).mean() + goal.penalty.value(x).sum()
        values.append(loss + server.y[0] @ excess + server.rho.item() / 2 * excess @ excess)
    assert (np.diff(values) <= 1e-14).all()


def lyapunov(server: Server, x: np.ndarray, columns: Any, labels: Any, penalty: Any) -> np.ndarray:
    """V^t of (13), which is 0 at a stationary point; `x` are all parties' models, `columns` what they are models of."""
    everyone, excess = np.arange(x.shape[-2]), server.r.sum(axis=-2, keepdims=True) - server.z
    slope = columns.adjoint(server.y + server.rho * excess, everyone)  # of the Lagrangian less λ R
    is_used = np.arange(columns.widest) < columns.widths[:, None]
    by_party = np.where(is_used, x - penalty.prox(x - slope, 1.0), 0.0)
    by_z = labels.slope(server.z) - server.y - server.rho * excess
    return sum(np.square(part).sum(axis=(-2, -1)) for part in (by_party, by_z, excess))  # type: ignore[return-value]


def test_lyapunov_falls_to_zero_at_the_optimum() -> None:
    X, y = problem()
    federation, goal = VerticalFederation.from_columns(X, y, SPLITS[3]), objective("logistic", L2(0.05))
    kept: list[Checkpoint] = []
    train(ADMMSharing(), federation, goal, rounds=200, record_every=200, after_round=kept.append, **PLAIN)
    place = assemble(ADMMSharing(), federation, goal, NoPrivacy(), KOfN(1), 5, _streams(), None, "numpy")
    labels = LocalParties.labels_of(federation, goal)
    first, last = (
        float(lyapunov(c.server, _models(c, federation, goal), place.exact, labels, goal.penalty))
        for c in (kept[1], kept[-1])
    )
    assert first > 1e-3
    assert last < 1e-20


def _models(checkpoint: Checkpoint, federation: VerticalFederation, goal: Objective) -> np.ndarray:
    place: Any = assemble(ADMMSharing(), federation, goal, NoPrivacy(), KOfN(1), 5, _streams(), None, "numpy")
    target, rho = (checkpoint.clients[f"client.{name}"] for name in ("target", "rho"))
    return place.exact.fit(target, rho, np.arange(federation.n))


def test_balancing_moves_rho_towards_equal_residuals() -> None:
    X, y = problem()
    goal, rounds = objective("logistic", L2(0.05)), 60
    far = 1e3 * 0.25 / len(y)  # ten halvings in 50 rounds are just enough to come back from there
    plain, balanced = (solved(X, y, SPLITS[2], goal, rounds, rho=far, balance=b, tol=0.0) for b in (0, 50))
    best = optimum(Federation.from_clients([(X, y)]), goal)
    errors = [np.linalg.norm(result.model - best) for result in (plain, balanced)]
    assert errors[1] < 0.1 * errors[0]


def test_parties_that_miss_rounds_only_slow_it_down() -> None:
    X, y = problem()
    goal = objective("logistic", L2(0.05))
    federation = VerticalFederation.from_columns(X, y, SPLITS[5])
    result = train(ADMMSharing(), federation, goal, rounds=600, record_every=600, participation=KOfN(3), **PLAIN)
    want = optimum(Federation.from_clients([(X, y)]), goal)
    np.testing.assert_allclose(result.model, want, atol=1e-6, rtol=0)


def test_one_value_per_sample_goes_up() -> None:
    X, y = problem()
    goal = objective("logistic", L2(0.05))
    result = train(ADMMSharing(), VerticalFederation.from_columns(X, y, SPLITS[3]), goal, rounds=7, **PLAIN)
    assert result.history["bytes_up"][-1] == 7 * 3 * 8 * len(y)
    assert result.history["bytes_down"][-1] == 7 * 3 * 8 * (2 * len(y) + 3)


# ------------------------------------------------------------------------------------------------------ non-convex loss


@dataclass(frozen=True)
class Sigmoid(Logistic):
    """1 / (1 + exp(t)): bounded, not convex."""

    name = "sigmoid"
    curvature = 0.0963  # sqrt(3)/18, rounded up
    strong = -0.0963

    def value(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(y * margin))

    def slope(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        value = self.value(margin, y)
        return -y * value * (1 - value)

    def second(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        value = self.value(margin, y)
        return value * (1 - value) * (1 - 2 * value)

    def prox(self, v: np.ndarray, y: np.ndarray, rho: Any) -> np.ndarray:
        return newton_prox(self, v, y, rho)


def test_a_loss_that_is_not_convex_reaches_a_stationary_point() -> None:
    X, y = problem()
    goal = Objective(Sigmoid(), L2(0.01))
    result = train(ADMMSharing(rho=0.3 / len(y)), VerticalFederation.from_columns(X, y, SPLITS[3]), goal,
                   rounds=600, record_every=600, **PLAIN)  # fmt: skip
    slope = X.T @ goal.loss.slope(X @ result.model, y) / len(y) + 0.01 * result.model
    np.testing.assert_allclose(slope, 0.0, atol=1e-12)
    assert np.linalg.norm(result.model) > 0.1


def test_the_rule_for_rho_holds_for_losses_that_are_not_convex_too() -> None:
    """1.2(c) with gamma(rho) = rho - 0.0963/N. Without it there is no proof for any proximal term."""
    X, y = problem()
    goal = Objective(Sigmoid(), L2(0.01))
    federation = VerticalFederation.from_columns(X, y, SPLITS[5])
    down = _down(ADMMSharing(), federation, goal)
    assert meets_assumption(down.rho, LocalParties.labels_of(federation, goal)).all()
    assert down.weight.item() == 2.5


def test_a_rho_that_leaves_the_z_step_not_convex_is_refused() -> None:
    X, y = problem()
    with pytest.raises(InvalidInput, match=r"\(7\) must be strongly convex"):
        train(ADMMSharing(rho=0.09 / len(y)), VerticalFederation.from_columns(X, y, SPLITS[3]),
              Objective(Sigmoid(), L2(0.01)), rounds=1, **PLAIN)  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------- FDML


def test_fdml_with_whole_batches_is_gradient_descent() -> None:
    X, y = problem()
    goal = objective("logistic", L2(0.05))
    federation = VerticalFederation.from_columns(X, y, SPLITS[3])
    result = train(FDML(step=0.5, batch=len(y)), federation, goal, rounds=11, **PLAIN)
    w = np.zeros(12)
    for _ in range(10):  # the slopes of the eleventh exchange are still out
        w = goal.penalty.prox(w - 0.5 * X.T @ goal.loss.slope(X @ w, y) / len(y), 0.5)
    np.testing.assert_allclose(result.model, w, atol=1e-12, rtol=0)


def test_fdml_nears_the_optimum_and_visits_every_sample_once_an_epoch() -> None:
    X, y = problem()
    goal = objective("logistic", L2(0.05))
    federation, rows = VerticalFederation.from_columns(X, y, SPLITS[3]), []
    fdml = FDML(step=0.5, batch=10, decay=0.3)
    result = train(fdml, federation, goal, rounds=1800, record_every=1800,
                   after_round=lambda c: rows.append(c.server.before.ravel()), **PLAIN)  # fmt: skip
    assert fdml.rounds_per_epoch(len(y)) == 6
    for epoch in (rows[:6], rows[6:12]):
        assert sorted(np.concatenate(epoch)) == list(range(60))
    assert not np.array_equal(rows[0], rows[6])
    best = optimum(Federation.from_clients([(X, y)]), goal)
    assert result.history["objective"][-1] < _value(X, y, goal, best) + 1e-3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ADMMSharing(rho=-1.0), "rho must be > 0"),
        (lambda: ADMMSharing(proximal=-1.0), "proximal must be >= 0"),
        (lambda: FDML(batch=0), "batch must be a whole number >= 1"),
    ],
)
def test_wrong_settings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()


def test_state_is_arrays() -> None:
    one = np.zeros((1, 1))
    assert len(codec.to_arrays(Server(one, one, one, one, one, one, one))) == 7
