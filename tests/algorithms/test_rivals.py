"""FedPD, FedLin, LED, TAMUNA and 5GCS: against the updates written out client by client, and in their limits."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import LED, TAMUNA, FedLin, FedPD, FiveGCS
from sottovoce.core.check import InvalidInput
from sottovoce.core.contract import Hub
from sottovoce.core.participation import Bernoulli, Everyone, KOfN, Participation
from sottovoce.core.random.streams import SERVER, Draw, Streams
from sottovoce.experiment.train import train
from sottovoce.privacy.modes import NoPrivacy, Proven
from sottovoce.problems.federation import Federation
from sottovoce.problems.penalties import L1
from sottovoce.reproduce import fed_plt as paper
from tests.algorithms import test_contract as contract
from tests.cases import CASES, Method, goal, small
from tests.local import assemble
from tests.reference import optimum

LAM = 0.05  # of goal(penalty="l2")
HALF = KOfN(3)
RIVALS = (FedPD, FedLin, LED, TAMUNA, FiveGCS)
SOLVED: dict[str, tuple[Any, int]] = {  # tuned for `small`: (algorithm, rounds that suffice with half of the clients)
    "fedpd": (FedPD(eta=3.0, local_steps=5), 200),
    "fedpd accelerated": (FedPD(eta=3.0, local_steps=5, solver="accelerated"), 200),
    "fedlin": (FedLin(step=1.0, local_steps=5), 120),
    "fedlin accelerated": (FedLin(step=0.7, local_steps=5, solver="accelerated"), 120),
    "led": (LED(step=1.0, local_steps=5), 100),
    "led accelerated": (LED(step=0.5, local_steps=5, solver="accelerated"), 150),
    "tamuna": (TAMUNA(step=1.0, local_steps=5), 150),
    "tamuna accelerated": (TAMUNA(step=0.7, local_steps=5, solver="accelerated"), 250),
    "5gcs": (FiveGCS(tau=0.3, local_steps=5), 120),
    "5gcs accelerated": (FiveGCS(tau=0.3, local_steps=5, solver="accelerated"), 120),
}


def clients_of(federation: Federation) -> list[tuple[np.ndarray, np.ndarray]]:
    bounds = zip(federation.offsets, federation.offsets[1:], strict=False)
    return [(federation.X[a:b], federation.y[a:b]) for a, b in bounds]


def slope(client: tuple[np.ndarray, np.ndarray], w: np.ndarray, lam: float = LAM) -> np.ndarray:
    """Gradient of the mean logistic loss and the ridge."""
    X, y = client
    return -(X * (y / (1 + np.exp(y * (X @ w))))[:, None]).mean(axis=0) + lam * w


def bend(client: tuple[np.ndarray, np.ndarray]) -> float:
    """Smoothness of the mean logistic loss."""
    return float(np.linalg.norm(client[0], 2) ** 2) / 4 / len(client[0])


def descend(
    client: tuple[np.ndarray, np.ndarray],
    w: np.ndarray,
    rule: tuple[int, float, float],  # steps, step, momentum
    linear: np.ndarray | float = 0.0,
    pull: float = 0.0,
    lam: float = LAM,
    share: float = 1.0,
) -> np.ndarray:
    """Gradient steps on share · f_i(w) + ⟨linear, w⟩ + (pull/2)|w|²."""
    steps, step, momentum = rule
    u = w
    for _ in range(steps):
        new = w - step * (share * slope(client, w, lam) + linear + pull * w)
        w, u = new + momentum * (new - u), new
    return w


def tuned(solver: str, strong: float, smooth: float, steps: int = 4) -> tuple[int, float, float]:
    """The rule for a problem of these moduli."""
    if solver == "accelerated":
        return steps, 1 / smooth, nesterov(strong, smooth)
    return steps, 2 / (strong + smooth), 0.0


def fixed(solver: str, step: float, steps: int = 4) -> tuple[int, float, float]:
    """The rule with one step for all clients."""
    return steps, step, nesterov(LAM, 1 / step) if solver == "accelerated" else 0.0


def nesterov(strong: float, smooth: float) -> float:
    return (np.sqrt(smooth) - np.sqrt(strong)) / (np.sqrt(smooth) + np.sqrt(strong))


def play(algorithm: Method, rounds: int, participation: Participation = HALF, **options: Any) -> list[Any]:
    """(server state after the round, broadcast, who answered, client states) of every round on `small`."""
    streams = Streams(7)
    rest = {"privacy": NoPrivacy(), "penalty": "l2"} | options
    objective = goal(penalty=rest["penalty"])
    parts = (algorithm, small(), objective, rest["privacy"], participation, rounds, streams, None, "numpy")
    place = assemble(*parts)
    place.start(algorithm)

    def hub(k: int, answered: np.ndarray) -> Hub:
        draw = Draw(streams, np.array([SERVER], dtype=np.uint64), k)
        return Hub(place.n, objective.penalty, draw, k, answered[:, None], np.zeros((1, place.dim)))

    server = algorithm.init_server(hub(0, np.zeros(place.n, dtype=bool)))
    seen = []
    for k, active in zip(range(1, rounds + 1), participation.masks(place.n, streams), strict=False):
        down = algorithm.broadcast(server, hub(k, active))
        exchange = place.exchange(algorithm, down, active, k)
        assert exchange is not None
        server = algorithm.server(server, exchange.up, hub(k, active))
        seen.append((server, down, np.flatnonzero(active), place.snapshot()))
    return seen


def same_models(algorithm: Method, seen: list[Any], models: list[np.ndarray]) -> None:
    assert len(seen) == len(models)
    for (server, *_), model in zip(seen, models, strict=True):
        np.testing.assert_allclose(algorithm.model(server)[0], model, atol=1e-13, rtol=0)
    assert np.linalg.norm(models[-1]) > 0.1


# The updates, one client after the other.


@pytest.mark.parametrize("solver", ["gradient", "accelerated"])
def test_fedpd_as_printed(solver: Any) -> None:
    algorithm, eta = FedPD(eta=2.0, local_steps=4, solver=solver), 2.0
    seen, who = play(algorithm, 6), clients_of(small())
    x, lam, last, c = np.zeros((6, 4)), np.zeros((6, 4)), np.zeros((6, 4)), np.zeros(4)
    models = []
    for _, _, active, _ in seen:
        for i in active:
            rule = tuned(solver, LAM + 1 / eta, bend(who[i]) + LAM + 1 / eta)
            x[i] = descend(who[i], x[i], rule, linear=lam[i] - c / eta, pull=1 / eta)
            lam[i] += (x[i] - c) / eta
            last[i] = x[i] + eta * lam[i]
        c = last.mean(axis=0)
        models.append(c)
    same_models(algorithm, seen, models)


@pytest.mark.parametrize("solver", ["gradient", "accelerated"])
def test_fedlin_as_printed(solver: Any) -> None:
    algorithm, rule = FedLin(step=0.8, local_steps=4, solver=solver), fixed(solver, 0.8)
    seen, who = play(algorithm, 6, Everyone()), clients_of(small())
    x, models = np.zeros(4), []
    for _ in range(3):
        models.append(x)  # the first exchange leaves the model where it is
        gradients = np.array([slope(client, x) for client in who])
        mean = gradients.mean(axis=0)
        x = np.mean([descend(who[i], x, rule, linear=mean - gradients[i]) for i in range(6)], axis=0)
        models.append(x)
    same_models(algorithm, seen, models)


@pytest.mark.parametrize("solver", ["gradient", "accelerated"])
def test_led_as_printed(solver: Any) -> None:
    algorithm, step, beta = LED(step=0.8, beta=0.15, local_steps=4, solver=solver), 0.8, 0.15
    seen, who = play(algorithm, 6, Everyone()), clients_of(small())
    x, y, models = np.zeros(4), np.zeros((6, 4)), []
    for _ in seen:
        phi = [descend(who[i], x, fixed(solver, step), linear=beta / step * y[i]) for i in range(6)]
        x = np.mean(phi, axis=0)
        y += phi - x
        models.append(x)
    same_models(algorithm, seen, models)


@pytest.mark.parametrize("solver", ["gradient", "accelerated"])
def test_tamuna_as_printed(solver: Any) -> None:
    algorithm, step = TAMUNA(step=0.8, local_steps=4, chi=0.9, solver=solver), 0.8
    seen, who = play(algorithm, 8), clients_of(small())
    x, h, models = np.zeros(4), np.zeros((6, 4)), []
    chi, reach = 0.9 * 6 * (3 - 1) / (3 * (6 - 1)), 1 if solver == "gradient" else (4 + 3) / 2
    for _, down, active, _ in seen:
        rule = fixed(solver, step, int(down.steps.item()))
        ends = {i: descend(who[i], x, rule, linear=-h[i]) for i in active}
        x = np.mean(list(ends.values()), axis=0)
        for i, w in ends.items():
            h[i] += chi / (4 * reach) / step * (x - w)
        models.append(x)
    same_models(algorithm, seen, models)
    assert len({down.steps.item() for _, down, *_ in seen}) > 2
    np.testing.assert_allclose(seen[-1][0].h, h, atol=1e-13)
    np.testing.assert_allclose(h.sum(axis=0), 0, atol=1e-13)


@pytest.mark.parametrize("solver", ["gradient", "accelerated"])
def test_5gcs_as_printed(solver: Any) -> None:
    """In the paper's own scaling: F_i = (f_i − (λ/2)|x|²)/N, and the ridge at the server."""
    n, mu, gamma = 6, LAM, 1.5
    tau = 0.4 / n
    algorithm = FiveGCS(tau=0.4, gamma=gamma, local_steps=4, solver=solver)
    seen, who = play(algorithm, 6), clients_of(small())
    x, u, models = np.zeros(4), np.zeros((n, 4)), []
    for _, _, active, _ in seen:
        v = u.sum(axis=0)
        x_hat = (x - gamma * v) / (1 + gamma * mu)
        models.append(x_hat)
        for i in active:
            rule = tuned(solver, tau, bend(who[i]) / n + tau)
            y = descend(who[i], x_hat, rule, linear=-tau * x_hat - u[i], pull=tau, lam=0.0, share=1 / n)
            u[i] = slope(who[i], y, 0) / n
        x = x_hat - gamma * n / len(active) * (u.sum(axis=0) - v)
    models.append((x - gamma * u.sum(axis=0)) / (1 + gamma * mu))
    same_models(algorithm, seen, models[1:])  # the model after a round is the x̂ of the next


# Limits.


@pytest.mark.parametrize("participation", [HALF, Everyone()], ids=["half", "everyone"])
@pytest.mark.parametrize("name", SOLVED)
def test_exact_whoever_takes_part(name: str, participation: Participation) -> None:
    algorithm, rounds = SOLVED[name]
    if participation != HALF and algorithm.solver == "gradient":
        return  # in algorithms/test_optimum.py
    federation, objective = small(), goal()
    options: dict[str, Any] = {"engine": "numpy", "record_every": rounds, "seed": 0, "participation": participation}
    result = train(algorithm, federation, objective, rounds=rounds, privacy=NoPrivacy(), **options)
    np.testing.assert_allclose(result.model, optimum(federation, objective), atol=1e-10, rtol=0)


@pytest.mark.parametrize(
    ("name", "participation", "rounds"),
    [("fedpd", HALF, 700), ("fedpd", KOfN(1), 2000), ("5gcs", HALF, 350), ("5gcs", KOfN(1), 350)],
)
def test_exact_with_l1_whoever_takes_part(name: str, participation: Participation, rounds: int) -> None:
    federation, objective = small(), goal(penalty="l1")
    options: dict[str, Any] = {"engine": "numpy", "record_every": rounds, "seed": 0, "participation": participation}
    result = train(SOLVED[name][0], federation, objective, rounds=rounds, privacy=NoPrivacy(), **options)
    np.testing.assert_allclose(result.model, optimum(federation, objective), atol=1e-10, rtol=0)


def test_led_dual_step_of_a_client_that_was_away() -> None:
    """The duals add up to zero, whoever answers; with everyone, no second vector is sent for it."""
    seen = play(LED(step=1.0, local_steps=5), 12)
    # what y_i is once the client hears again
    due = np.array([clients["client.y"] + clients["client.phi"] - server.met for server, _, _, clients in seen])
    np.testing.assert_allclose(due.sum(axis=1), 0, atol=1e-13)
    assert np.abs(due[-1]).max() > 0.1
    assert all(down.met.shape[-1] == 0 for _, down, *_ in play(LED(), 3, Everyone()))
    widths = [down.met.shape[-1] for _, down, *_ in seen]
    assert widths[0] == 0
    assert max(widths) == 4


def test_led_is_tamuna_with_a_fixed_number_of_steps() -> None:
    @dataclasses.dataclass(frozen=True)
    class Fixed(TAMUNA):
        def broadcast(self, server: Any, hub: Hub) -> Any:
            return dataclasses.replace(super().broadcast(server, hub), steps=np.full((1, 1), 4.0))

    one = [server.x for server, *_ in play(LED(step=0.8, local_steps=4), 8, Everyone())]
    other = [server.x for server, *_ in play(Fixed(step=0.8, local_steps=4), 8, Everyone())]
    np.testing.assert_allclose(one, other, atol=1e-13)


@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_local_problems_are_the_ones_claimed(penalty: str) -> None:
    """After very many local steps the optimality conditions of the local problem hold: 5GCS and FedPD."""
    algorithm = FiveGCS(tau=0.3, local_steps=400)
    seen = play(algorithm, 3, Everyone(), penalty=penalty)
    (before, *_), (after, down, *_) = seen[1:]
    for i, client in enumerate(clients_of(small())):
        y = down.x[0] + (before.u[i] - after.u[i]) / 0.3  # ∇ψ_i(y) = 0 with u_new = ∇f_i(y)
        np.testing.assert_allclose(slope(client, y, 0.0), after.u[i], atol=1e-12)
    ridge = LAM if penalty == "l2" else 0.0
    seen = play(FedPD(eta=2.0, local_steps=400), 1, Everyone(), penalty=penalty)
    for i, client in enumerate(clients_of(small())):
        x = seen[0][0].v[i] / 2  # λ_i = x/η after the first round, from x_0 = 0
        np.testing.assert_allclose(slope(client, x, ridge), -x / 2.0, atol=1e-12)


# TAMUNA's random numbers, FedLin's two phases, and what they cost.


def test_tamuna_steps_are_geometric_and_cut() -> None:
    algorithm, draws = TAMUNA(local_steps=5, most_steps=12), []
    server = Streams(3, runs=200)
    for k in range(1, 101):
        draw = Draw(server, np.array([SERVER], dtype=np.uint64), k)
        hub = Hub(4, goal().penalty, draw, k, np.ones((200, 4, 1), dtype=bool), np.zeros((200, 1, 3)))
        steps = algorithm.broadcast(algorithm.init_server(hub), hub).steps
        assert steps.shape == (200, 1, 1)
        draws.append(steps.ravel())
    steps = np.concatenate(draws)
    assert steps.min() == 1
    assert steps.max() == 12
    for length in range(1, 12):
        share = 0.8 ** (length - 1)  # P(L >= length)
        assert abs((steps >= length).mean() - share) < 4 * np.sqrt(share * (1 - share) / steps.size) + 1e-12


def test_tamuna_alone_in_a_round_learns_nothing() -> None:
    assert all((server.h == 0).all() for server, *_ in play(TAMUNA(), 3, KOfN(1)))


def test_answers_charged_are_the_steps_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    from sottovoce.ledger.memory import MemoryLedger

    charged = np.zeros(6)

    def count(self: Any, event: Any, clients: Any, *rest: Any) -> None:
        charged[clients] += 1

    monkeypatch.setattr(MemoryLedger, "charge", count)
    privacy = Proven(epsilon=20.0, delta=1e-3, clip=1.0)
    seen = play(TAMUNA(local_steps=4), 8, privacy=privacy)
    assert charged.sum() == 3 * sum(down.steps.item() for _, down, *_ in seen)
    charged[:] = 0
    play(FedLin(local_steps=4), 6, Everyone(), privacy=privacy)
    assert (charged == 3 * (4 + 1)).all()
    charged[:] = 0
    play(FiveGCS(local_steps=4), 2, Everyone(), privacy=privacy)
    assert (charged == 2 * (4 + 1)).all()


def test_fedlin_can_use_its_whole_budget() -> None:
    """Three rounds of the paper cost 3 (4 + 1) answers, and the plan is for 6 · 4: participations=4 plans 16."""
    spent = []
    for participations in (None, 4):
        privacy = Proven(epsilon=2.0, delta=1e-3, clip=1.0, participations=participations)
        result = train(FedLin(local_steps=4), small(), goal(), rounds=6, privacy=privacy, seed=1, engine="numpy")
        assert (result.rounds, result.stopped) == (6, "")
        spent.append(result.history["epsilon"][-1])
    assert spent[0] < 1.6 < 1.8 < spent[1] <= 2.0


def test_fedlin_names_the_phase() -> None:
    seen = play(FedLin(), 4, Everyone())
    assert [down.phase.item() for _, down, *_ in seen] == [0, 1, 0, 1]
    assert [down.g.shape[-1] for _, down, *_ in seen] == [0, 4, 0, 4]
    models = [server.x for server, *_ in seen]
    assert np.array_equal(models[1], models[2])
    assert not np.array_equal(models[2], models[3])


@pytest.mark.parametrize("mode", ["none", "proven"])
def test_fedlin_alone_in_its_second_phase(mode: str) -> None:
    """The contract check of the same name sees a method's first round only."""
    algorithm, together = CASES["fedlin"].algorithm, contract.simulator("fedlin", mode)
    alone = contract._alone(together, 3)
    alone.start(algorithm)
    for k in (1, 2):
        here = dataclasses.replace(contract.hub(together), k=k)
        down = algorithm.broadcast(algorithm.init_server(here), here)
        down = dataclasses.replace(down, x=down.x + 0.1, g=down.g + 0.2)
        whole = together.exchange(algorithm, down, np.ones(6, dtype=bool), k)
        single = alone.exchange(algorithm, down, np.ones(1, dtype=bool), k)
        assert whole is not None
        assert single is not None
        assert np.array_equal(whole.up.answer[3:4], single.up.answer)


@pytest.mark.parametrize("kind", RIVALS)
def test_a_run_in_which_nobody_answers_stands_still(kind: Any) -> None:
    algorithm, options = kind(), {"rounds": 8, "privacy": NoPrivacy(), "seed": 2, "engine": "numpy"}
    options["participation"] = Bernoulli(0.15)
    stacked = train(algorithm, small(), goal(), runs=6, **options)
    alone = train(algorithm, small(), goal(), **options)
    answered = stacked.history["answered"].reshape(8, 6)
    assert ((answered[:, 0] == 0) & (answered > 0).any(axis=1)).any()  # alone, the server would not have been called
    assert np.array_equal(stacked.model[0], alone.model)


# Refusals.


def test_refusals() -> None:
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (FedPD, {"eta": 0.0}, "eta"),
        (FedPD, {"solver": "newton"}, "solver"),
        (FedPD, {"step": -1.0}, "step"),
        (FedLin, {"step": 0.0}, "step"),
        (LED, {"beta": 0.0}, "beta"),
        (LED, {"local_steps": 0}, "steps"),
        (TAMUNA, {"chi": 1.5}, "chi"),
        (TAMUNA, {"most_steps": 0}, "most_steps"),
        (FiveGCS, {"tau": -1.0}, "tau"),
        (FiveGCS, {"gamma": 0.0}, "gamma"),
    ]
    for kind, options, field in wrong:
        with pytest.raises(InvalidInput, match=field):
            kind(**options)
    for kind in (FedLin, LED, TAMUNA):
        with pytest.raises(InvalidInput, match=rf"{kind.__name__}: needs a smooth penalty.*got L1"):
            kind().check(L1(0.1))


@pytest.mark.parametrize("kind", [FedPD, FiveGCS])
def test_no_public_smoothness_no_default_step(kind: Any) -> None:
    federation = Federation.from_clients(clients_of(small()))
    options: dict[str, Any] = {"rounds": 2, "privacy": Proven(epsilon=20.0, delta=1e-3, clip=1.0), "engine": "numpy"}
    with pytest.raises(InvalidInput, match="row_bound"):
        train(kind(), federation, goal(), **options)
    assert np.isfinite(train(kind(step=0.1), federation, goal(), **options).model).all()


# Rates of the Fed-PLT paper's section VII, on the data of `reproduce/fed_plt.py`.


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("Fed-PD", 0.33, 0.769),
        ("FedLin", 1.7, 0.514),
        ("LED", 0.8, 0.698),
        ("TAMUNA", 0.8, 0.717),
        ("5GCS", 3.0, 0.768),
    ],
)
def test_measured_rates(name: str, value: float, expected: float) -> None:
    """On all of 20 data sets: 0.762, 0.512, 0.703, 0.738, 0.756."""
    rates = paper.rates(5, 1, name, value, rounds=600)["rate"]
    assert abs(np.mean(rates) - expected) < 0.04, np.round(rates, 3)


@pytest.mark.parametrize("step", [0.1, 0.3])
def test_tamuna_with_momentum_converges_at_its_defaults(step: float) -> None:
    """The dual step must be shorter where momentum carries clients farther: with the plain one it diverges."""
    algorithm = TAMUNA(step=step, solver="accelerated")
    options: dict[str, Any] = {
        "rounds": 150,
        "privacy": NoPrivacy(),
        "engine": "numpy",
        "seed": 0,
        "record_every": 150,
    }
    result = train(algorithm, small(), goal(), **options)
    np.testing.assert_allclose(result.model, optimum(small(), goal()), atol=1e-10, rtol=0)
