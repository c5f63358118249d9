"""A neural model: gradients example by example, against plain loops; and the same algorithms, in every mode."""

import itertools
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms import ADMM, DPADMM, DPSGD, FedAvg, FedPLT, FedSPDDP
from sottovoce.auditing.tape import Tape
from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.privacy.modes import NoPrivacy, Privacy, Proven, Published
from sottovoce.privacy.noise_key import SharedNoise, stable_text
from sottovoce.problems.losses import Huber, Logistic, Softmax, Squared
from sottovoce.problems.module import Module, ModuleRows
from sottovoce.problems.penalties import L2
from sottovoce.problems.rows import Rows
from tests.replay import replays

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test TORCH=1")
nn = torch.nn
OFFSETS = np.array([0, 3, 4, 10])


def mlp(outputs: int = 3, features: int = 5) -> Any:
    return nn.Sequential(nn.Linear(features, 6), nn.Tanh(), nn.Linear(6, outputs))


def linear() -> Any:
    """A linear model without an intercept, all zero: as a `Rows` model starts."""
    net = nn.Linear(4, 1, bias=False)
    nn.init.zeros_(net.weight)
    return net


def rows_of(loss: Module, seed: int = 0, scale: str = "mean") -> ModuleRows:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, loss.outputs, 10) if loss.outputs > 1 else rng.choice([-1.0, 1.0], 10)
    return ModuleRows(rng.normal(size=(10, 5)), y, OFFSETS, loss, scale)


def loop(rows: ModuleRows, w: np.ndarray, client: int, clip: float | None, norm: int, keep: np.ndarray) -> np.ndarray:
    """Plain PyTorch: one backward pass an example, its own loss functions, clipped by hand."""
    loss = rows.loss
    total = np.zeros(rows.dim)
    for j in range(rows.offsets[client], rows.offsets[client + 1]):
        if not keep[j]:
            continue
        net = loss.trained(w)
        out = net(torch.tensor(rows.X[j : j + 1]))
        if loss.outputs > 1:
            cost = nn.functional.cross_entropy(out, torch.tensor([int(rows.y[j])]))
        else:
            cost = nn.functional.softplus(-rows.y[j] * out[0, 0])
        cost.backward()
        g = np.concatenate([p.grad.numpy().ravel() for p in net.parameters()])
        size = np.linalg.norm(g, norm)
        total += g if clip is None or size <= clip else g * clip / size
    return total * rows.weights[client, 0]


@pytest.mark.parametrize("loss", [Softmax(3), Logistic()], ids=lambda loss: loss.name)
@pytest.mark.parametrize(("clip", "norm"), [(None, 2), (0.5, 2), (0.5, 1)])
@pytest.mark.parametrize("scale", ["mean", "sum"])
def test_gradients_are_those_of_a_plain_loop(loss: Any, clip: float | None, norm: int, scale: str) -> None:
    rows = rows_of(Module(lambda: mlp(loss.outputs), loss), scale=scale)
    rng = np.random.default_rng(1)
    w = 0.5 * rng.normal(size=(2, 2, rows.dim))  # two runs, two of the clients, out of order
    keep = rng.random((2, 9)) < 0.6
    found = rows.gradient(w, [2, 0], clip, norm, keep)
    for run, (i, client) in itertools.product(range(2), enumerate([2, 0])):
        mask = np.zeros(10, dtype=bool)
        mask[OFFSETS[client] : OFFSETS[client + 1]] = keep[run, :6] if client == 2 else keep[run, 6:]
        expected = loop(rows, w[run, i], client, clip, norm, mask)
        np.testing.assert_allclose(found[run, i], expected, rtol=1e-10, atol=1e-13)


def test_clipping_bites_and_bounds_every_example() -> None:
    rows = rows_of(Module(mlp, Softmax(3)))
    w = np.random.default_rng(2).normal(size=rows.dim)
    free, bound = rows.clipped_examples(w, 2, 1e9), rows.clipped_examples(w, 2, 0.4)
    sizes = np.linalg.norm(free, axis=1)
    assert (sizes > 0.4).any()
    np.testing.assert_allclose(np.linalg.norm(bound, axis=1), np.minimum(sizes, 0.4), rtol=1e-12)
    np.testing.assert_allclose(rows.gradient(w[None], [2], 0.4)[0], bound.mean(axis=0), rtol=1e-12)
    assert np.abs(rows.clipped_examples(w, 2, 0.4, norm=1)).sum(axis=1).max() <= 0.4 * (1 + 1e-12)


def test_an_example_whose_gradient_overflows_counts_as_nothing() -> None:
    rows = rows_of(Module(mlp, Softmax(3)))
    assert np.isfinite(rows.gradient(np.full((1, rows.dim), 1e200), clip=1.0)).all()


def test_a_client_gets_the_same_whoever_else_is_asked() -> None:
    rows = rows_of(Module(mlp, Softmax(3)))
    w = np.random.default_rng(3).normal(size=(1, rows.dim))
    together = rows.gradient(w, clip=0.3)
    for client in range(3):
        assert np.array_equal(rows.gradient(w, [client], 0.3)[0], together[client])
        alone = rows.value(w, [client])
        np.testing.assert_allclose(alone[0], rows.value(np.repeat(w, 3, axis=0))[client], rtol=1e-14)


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Huber(0.5)], ids=lambda loss: loss.name)
def test_a_network_of_one_linear_layer_is_the_linear_model(loss: Any) -> None:
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(10, 4)), rng.choice([-1.0, 1.0], 10)
    neural, plain = ModuleRows(X, y, OFFSETS, Module(linear, loss)), Rows(X, y, OFFSETS, loss, engine="numpy")
    w = rng.normal(size=(3, 4))
    np.testing.assert_allclose(neural.value(w), plain.value(w), rtol=1e-12)
    for clip, norm in ((None, 2), (0.3, 2), (0.3, 1)):
        np.testing.assert_allclose(
            neural.gradient(w, None, clip, norm), plain.gradient(w, None, clip, norm), rtol=1e-11
        )


def test_zero_is_the_seeded_start_and_the_global_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    one, same, other = (Module(mlp, Softmax(3), seed=seed) for seed in (7, 7, 8))
    assert torch.equal(before, torch.random.get_rng_state())
    assert stable_text(one) == stable_text(same) != stable_text(other)
    torch.manual_seed(7)
    by_hand = mlp().double()
    start = one.trained(np.zeros(one.dim))
    for mine, theirs in zip(start.parameters(), by_hand.parameters(), strict=True):
        np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), atol=1e-7)
    torch.random.set_rng_state(before)
    w = np.random.default_rng(5).normal(size=one.dim)
    X = np.random.default_rng(6).normal(size=(4, 5))
    with torch.no_grad():
        np.testing.assert_allclose(one.scores(X, w), one.trained(w)(torch.tensor(X)).numpy(), rtol=1e-12)
    assert one.scores(X, np.stack([w, 0 * w])).shape == (2, 4, 3)


def digits(clients: int = 5) -> tuple[sv.Federation, tuple[np.ndarray, np.ndarray]]:
    from sklearn.datasets import load_digits

    both: Any = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(both[0]))
    X, y = both[0][order] / 16.0, both[1][order].astype(float)
    return sv.Federation.from_arrays(X[:1000], y[:1000], np.arange(1000) % clients), (X[1000:], y[1000:])


def small_net() -> Any:
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


GOAL = L2(1e-4)
LOOSE = Proven(epsilon=30.0, delta=1e-5, clip=1.0)
TRAINED: dict[str, tuple[Any, Privacy, int]] = {
    "dp-sgd, none": (DPSGD(step=1.0), NoPrivacy(), 40),
    "fedavg, none": (FedAvg(step=1.0, local_steps=4), NoPrivacy(), 10),
    "fed-plt, none": (FedPLT(rho=10.0, step=0.5, local_steps=4, strong=0.0, smooth=1.0), NoPrivacy(), 15),
    "dp-sgd, published": (DPSGD(step=1.0), Published(epsilon=10.0, delta=1e-4, clip=1.0), 30),
    "dp-admm, published": (DPADMM(rho=0.1, c_w=10.0), Published(epsilon=10.0, delta=1e-4, clip=1.0), 30),
    "dp-sgd, proven": (DPSGD(step=1.0), LOOSE, 30),
    "fedavg, proven": (FedAvg(step=1.0, local_steps=2), LOOSE, 15),
    "dp-admm, proven": (DPADMM(rho=0.1, c_w=10.0), LOOSE, 30),
}


@pytest.mark.parametrize("case", TRAINED)
def test_the_same_algorithms_train_a_network_on_digits(case: str) -> None:
    algorithm, privacy, rounds = TRAINED[case]
    federation, test = digits()
    goal = sv.Objective(Module(small_net, Softmax(10)), GOAL)
    result = sv.train(
        algorithm,
        federation,
        goal,
        rounds=rounds,
        privacy=privacy,
        seed=0,
        test=test,
        record_every=rounds,
        measure_training=False,
    )
    accuracy = result.history["test_accuracy"][-1]
    assert accuracy == (result.predict(test[0]) == test[1]).mean()
    untrained = (goal.loss.predict(goal.loss.scores(test[0], 0 * result.model)) == test[1]).mean()
    assert untrained < 0.25
    assert accuracy > 0.7
    assert result.config["objective"]["loss"] == "module"
    if isinstance(privacy, Proven):
        assert result.guarantee.epsilon is not None
        assert 0.9 * privacy.epsilon < result.guarantee.epsilon <= privacy.epsilon


def test_without_noise_it_is_stochastic_gradient_descent_of_pytorch() -> None:
    federation, _ = digits()
    loss = Module(small_net, Softmax(10))
    result = sv.train(
        DPSGD(step=0.5), federation, sv.Objective(loss), rounds=4, privacy=NoPrivacy(), seed=0, measure_training=False
    )
    net = loss.trained(np.zeros(loss.dim))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(4):
        optimiser.zero_grad()
        outputs = net(torch.tensor(federation.X))  # clients are equally large: the mean of means is the mean
        nn.functional.cross_entropy(outputs, torch.tensor(federation.y.astype(int))).backward()
        optimiser.step()
    for mine, theirs in zip(loss.trained(result.model).parameters(), net.parameters(), strict=True):
        np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_runs_repeat_bit_for_bit_and_each_run_is_its_own() -> None:
    federation, test = digits()
    goal = sv.Objective(Module(small_net, Softmax(10)), GOAL)

    def model(**more: Any) -> np.ndarray:
        privacy = Proven(epsilon=5.0, delta=1e-5, clip=1.0)
        return sv.train(
            DPSGD(step=0.5, batch=50), federation, goal, rounds=3, privacy=privacy, seed=1, test=test, **more
        ).model

    both = model(runs=2)
    assert np.array_equal(both, model(runs=2))
    assert not np.array_equal(both[0], both[1])


def test_messages_in_proven_mode_are_made_of_noisy_answers_alone() -> None:
    """Replay, as `algorithms/test_replay.py` does it for linear models, through a network."""
    from sottovoce.core import codec
    from sottovoce.core import round as loop_of
    from sottovoce.core.random.streams import Streams
    from tests.local import assemble

    federation, _ = digits()
    other = sv.Federation(federation.X[::-1].copy(), federation.y[::-1].copy(), federation.offsets, federation.names)
    goal = sv.Objective(Module(small_net, Softmax(10)), GOAL)
    privacy, streams = Proven(epsilon=5.0, delta=1e-5, clip=1.0), Streams(0, None)

    def run(data: sv.Federation, tape: Tape) -> list[np.ndarray]:
        method = FedAvg(step=0.5, local_steps=2)
        simulator = assemble(method, data, goal, privacy, sv.Everyone(), 3, streams, None, "numpy")
        simulator.measure_training = False
        simulator.door.intercept = tape
        sent: list[np.ndarray] = []
        exchange = simulator.exchange

        def recording(*args: Any) -> Any:
            answer = exchange(*args)
            assert answer is not None
            sent.extend(codec.to_arrays(answer.up).values())
            return answer

        simulator.exchange = recording  # type: ignore[method-assign]
        loop_of.train(method, simulator, rounds=3, penalty=goal.penalty, participation=sv.Everyone(), streams=streams)
        return sent

    assert replays(run, federation, other)


@pytest.mark.parametrize("outputs", [1, 3])
def test_what_needs_a_convex_loss_is_refused(outputs: int) -> None:
    """One output too: a network of one output is no linear model of one margin."""
    rng = np.random.default_rng(0)
    y = rng.choice([-1.0, 1.0], 12) if outputs == 1 else np.arange(12) % 3
    federation = sv.Federation.from_arrays(rng.normal(size=(12, 5)) / 10, y, np.arange(12) % 2, row_bound=1.0)
    loss = Module(lambda: mlp(outputs), Logistic() if outputs == 1 else Softmax(3))
    goal, proven = sv.Objective(loss, L2(0.1)), Proven(epsilon=1.0, delta=1e-3, clip=1.0)

    def train(algorithm: Any, privacy: Privacy) -> sv.Result:
        return sv.train(algorithm, federation, goal, rounds=2, privacy=privacy, seed=0)

    with pytest.raises(NoGuarantee, match="convex"):
        train(ADMM(rho=0.3), proven) if "proven" in ADMM.modes else _argmin_door(goal, federation, proven)
    with pytest.raises(NoGuarantee, match="convex loss of one margin"):
        train(FedPLT(rho=1.0, step=0.1, variant="B", strong=0.0, smooth=0.25), proven)
    with pytest.raises(InvalidInput, match="arg-min of a neural model is not offered"):
        train(ADMM(rho=0.3), NoPrivacy())
    with pytest.raises(InvalidInput, match=r"clip=\.\.\."):
        train(DPSGD(), Published(epsilon=1.0, delta=1e-3))
    with pytest.raises(InvalidInput, match="strongly convex"):
        train(FedPLT(rho=1.0, step=0.1), Published(epsilon=1.0, delta=1e-3, clip=1.0))
    with pytest.raises(InvalidInput, match="bounded gradients"):
        train(DPADMM(), NoPrivacy())
    # Noise on the end of a round is offered, by the bound that needs no convexity: it must be the larger one.
    noisy = train(FedSPDDP(rho=1.0, gamma=50.0, local_steps=3, variant="P"), proven)
    assert noisy.guarantee.epsilon is not None


def _argmin_door(goal: sv.Objective, federation: sv.Federation, privacy: Proven) -> None:
    from sottovoce.core.contract import Asks
    from sottovoce.core.random.streams import Streams
    from sottovoce.ledger.budget import Budget
    from sottovoce.ledger.memory import MemoryLedger
    from sottovoce.privacy.doors import open_door

    asks = Asks.every_round(kind="argmin")
    rows = goal.oracle(federation.X, federation.y, federation.offsets)
    events, ledger = privacy.plan(asks, 2, federation.sizes), MemoryLedger(Budget(1.0, 1e-3), (federation.n,))
    open_door(privacy, events, ledger, rows, asks, key=SharedNoise(Streams(0, None)), clients=np.arange(federation.n))


def test_hidden_steps_of_a_network_count_as_if_nothing_absorbed_differences() -> None:
    """The noise of variant "P" for a network of one linear layer exceeds that of the same linear model."""
    from sottovoce.core.contract import Asks, ProxSteps
    from sottovoce.core.random.streams import Streams
    from sottovoce.ledger.budget import Budget
    from sottovoce.ledger.memory import MemoryLedger
    from sottovoce.privacy.doors import open_door
    from sottovoce.privacy.doors.record import RecordDoor
    from sottovoce.privacy.doors.releases import Question
    from sottovoce.problems.penalties import NoPenalty

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(10, 4)), rng.choice([-1.0, 1.0], 10)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    privacy, asks, everyone = (
        Proven(epsilon=1.0, delta=1e-3, clip=1.0),
        Asks.every_round(kind="prox-steps"),
        np.arange(3),
    )
    spec = ProxSteps([5.0] * 3, [6.0] * 3, 0.0, 0.0, NoPenalty())

    def sensitivity(goal: sv.Objective) -> np.ndarray:
        events = privacy.plan(asks, 1, np.diff(OFFSETS))
        ledger = MemoryLedger(Budget(1.0, 1e-3), (3,))
        rest: dict[str, Any] = {"key": SharedNoise(Streams(0, None)), "clients": everyone, "row_bound": 1.0}
        door = open_door(privacy, events, ledger, goal.oracle(X, y, OFFSETS), asks, **rest)
        assert isinstance(door, RecordDoor)
        return door._prox_steps_sensitivity(spec, Question(everyone, np.ones(3, dtype=bool), 1, 0, asks.only))

    plain, neural = sensitivity(sv.Objective(Logistic())), sensitivity(sv.Objective(Module(linear, Logistic())))
    assert (neural[[0, 2]] > 1.5 * plain[[0, 2]]).all()
    assert (neural >= plain).all()


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x) if x.sum() > 0 else -self.layer(x)


REFUSED = {
    "batch norm": (lambda: nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)), "mixes examples.*GroupNorm"),
    "no module": (lambda: 3, "must return a torch.nn.Module"),
    "an instance": (mlp(), "must be a function.*lambda"),
    "no parameters": (lambda: nn.Sequential(nn.Tanh()), "must have parameters"),
    "wrong outputs": (lambda: mlp(4), "needs 3 outputs a row.*last layer"),
    "wrong features": (lambda: mlp(features=7), "row by row"),
    "a branch": (Branching, "row by row"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_networks_that_cannot_be_honest_are_refused(case: str) -> None:
    build, words = REFUSED[case]
    with pytest.raises(InvalidInput, match=words):
        rows_of(Module(build, Softmax(3)))


def test_dropout_is_off_and_frozen_parameters_stay() -> None:
    def build() -> Any:
        net = nn.Sequential(nn.Linear(5, 6), nn.Dropout(0.5), nn.Linear(6, 3))
        for parameter in net[0].parameters():
            parameter.requires_grad = False
        return net

    rows = rows_of(Module(build, Softmax(3)))
    assert rows.dim == 6 * 3 + 3
    w = np.ones((1, rows.dim))
    assert np.array_equal(rows.gradient(w), rows.gradient(w))
    before, after = rows.loss.trained(np.zeros(rows.dim)), rows.loss.trained(w[0])
    assert torch.equal(before[0].weight, after[0].weight)
    assert not torch.equal(before[2].weight, after[2].weight)


def test_single_precision_agrees_to_its_digits() -> None:
    double, single = (rows_of(Module(mlp, Softmax(3), precision=kind)) for kind in ("float64", "float32"))
    w = np.random.default_rng(8).normal(size=(1, double.dim))
    np.testing.assert_allclose(single.gradient(w, clip=0.4), double.gradient(w, clip=0.4), rtol=1e-4, atol=1e-6)


def test_a_row_that_the_network_cannot_take_does_not_show() -> None:
    """A category beyond an embedding makes PyTorch fail. With a guarantee that row counts as a gradient of 0: an error,
    or its text, would tell something of a private row. The other rows' gradients stay."""
    torch = pytest.importorskip("torch")

    class Categories(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(5, 1)

        def forward(self, row: Any) -> Any:
            return self.table(row[:, 0].long())

    module = Module(Categories, Logistic())
    X, y = np.arange(5.0)[:, None].repeat(1, axis=1), np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    bad = X.copy()
    bad[4] = 271828.0
    oracles = [sv.Objective(module).oracle(rows, y, np.array([0, 5])) for rows in (X, bad)]
    good, other = (oracle.clipped_examples(np.zeros(module.dim), 0, 1.0) for oracle in oracles)
    np.testing.assert_allclose(other[:4], good[:4], atol=1e-12)
    assert not other[4].any()
    result = sv.train(
        DPSGD(), sv.Federation.from_clients([(bad, y)]), sv.Objective(module),
        rounds=2, privacy=sv.Proven(1.0, 1e-3, 1.0), seed=0, test=(X, y),
    )  # fmt: skip
    assert np.isfinite(result.model).all()
    with pytest.raises(InvalidInput) as refused:
        sv.train(
            DPSGD(), sv.Federation.from_clients([(bad, y)]), sv.Objective(module), rounds=1, privacy=sv.NoPrivacy()
        )
    assert "271828" not in f"{refused.value} {refused.value.__cause__} {refused.value.__context__}"
