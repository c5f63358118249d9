"""The doors for an observer who sees only sums: what Theorem 1 of `privacy/doors/sums.py` needs is checked in code."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from sottovoce.algorithms import ALGORITHMS, DPSGD, DPFedAvg, FedAvg, Moments, MomentsThenGradients, NoisyGD
from sottovoce.auditing.tape import Tape
from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.core.contract import Algorithm, Array, Arrays, Asks, Hub, Method, ProxSteps, Site
from sottovoce.core.participation import Bernoulli, Schedule
from sottovoce.core.random.streams import Streams
from sottovoce.experiment import sums
from sottovoce.experiment.local import LocalClients
from sottovoce.experiment.task import Task
from sottovoce.experiment.train import local_clients, train
from sottovoce.ledger.budget import Budget
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.privacy.discrete_noise import GRID_BOUND, GRID_STEPS
from sottovoce.privacy.doors.sums import RecordSums, SumsDoor
from sottovoce.privacy.events import GridEvent
from sottovoce.privacy.modes import Proven
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Logistic
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2, NoPenalty

RNG = np.random.default_rng(5)
SIZES = (7, 12, 9, 30, 5)
ROWS = RNG.normal(size=(sum(SIZES), 4))
ROWS /= 1.01 * np.linalg.norm(ROWS, axis=1, keepdims=True)
LABELS = np.where(ROWS @ [1.0, -2.0, 0.5, 0.0] > 0, 1.0, -1.0)
OWNERS = np.repeat(np.arange(5), SIZES)
FED = Federation.from_arrays(ROWS, LABELS, groups=OWNERS, row_bound=1.0)
GOAL = Objective(Logistic(), L2(1e-3), scale="records")
SUMS = Proven(1.0, 1e-3, clip=0.5, observer="sums")
ALONE = replace(SUMS, colluders=0)
BY_CLIENT = Proven(8.0, 1e-3, clip=0.1, unit="client", observer="sums", colluders=0)
METHODS: list[tuple[Method, Proven]] = [
    (NoisyGD(step=2.0), SUMS),
    (DPSGD(step=2.0), SUMS),
    (Moments(ridge=0.1), SUMS),
    (MomentsThenGradients(ridge=0.1), SUMS),
    (NoisyGD(step=1.0, batch=0.5), replace(SUMS, relation="add-remove")),
    (NoisyGD(step=1.0, batch=4), SUMS),
    (DPFedAvg(step=1.0), BY_CLIENT),
    (NoisyGD(step=2.0), BY_CLIENT),
]


def place(
    algorithm: Method, privacy: Proven, rounds: int = 3, federation: Federation = FED, **more: Any
) -> LocalClients:
    task = Task(algorithm, more.pop("objective", GOAL), privacy, rounds=rounds, engine="numpy")
    task.check("rows")
    return local_clients(task, federation, Streams(3, more.pop("runs", None)))


def alone(everyone: LocalClients, client: int) -> LocalClients:
    """One client on a machine of its own, with the settings and the seed of all."""
    task, (X, y) = everyone.task, FED.data()[client]
    ledger = MemoryLedger(Budget(*task.privacy.budget), (1,))  # type: ignore[misc]
    own = Federation.from_clients([(X, y)], row_bound=1.0)
    made = LocalClients.of(task, own, ledger, everyone.streams, everyone.door.events, np.array([client]))
    made.start(task.algorithm)
    return made


# ------------------------------------------------------------------------------------------------------- numbers


def test_defaults_are_the_whole_roster_and_a_third_of_it() -> None:
    assert [(SUMS.among(n).least, SUMS.among(n).colluders) for n in (2, 3, 10, 100)] == [
        (2, 1),
        (3, 1),
        (10, 4),
        (100, 34),
    ]
    assert SUMS.among(100).honest == 66
    assert SUMS.noise == "discrete"
    assert Proven(1.0, 1e-5, clip=1.0).honest == 1


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"least": 4, "colluders": 4}, "colluders must be fewer than least"),
        ({"least": 11}, "least must be at most the number of clients"),
        ({"roster": 9, "least": 9, "colluders": 1}, "roster must be the number of clients"),
        ({"mechanism": "laplace", "delta": 0.0, "noise": "secure"}, "needs Gaussian noise"),
        ({"observer": "server", "least": 3}, "go with observer='sums'"),
        ({"observer": "nobody"}, "observer"),
    ],
)  # fmt: skip
def test_numbers_without_a_proof_are_refused(numbers: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        replace(SUMS, **numbers).among(10)


def test_there_is_a_quorum_wherever_colluders_are_fewer_than_clients() -> None:
    """Q = floor((n + t)/2) + 1 <= n if and only if t < n."""
    for n in range(2, 12):
        for t in range(n):
            assert (n + t) // 2 + 1 <= n
            assert replace(SUMS, colluders=t).among(n).honest == n - t
        with pytest.raises(InvalidInput):
            replace(SUMS, colluders=n).among(n)


def test_noise_of_each_client_is_a_share_of_what_hides_a_record() -> None:
    """σ_1² = σ²/h, σ being the noise of the same plan for an observer of every message, up to 64 steps² in all."""
    task = Task(NoisyGD(step=2.0), GOAL, SUMS, rounds=3).settled(FED)
    (event,) = task.plan(FED.sizes, 4)
    (whole,) = replace(task, privacy=replace(SUMS, observer="server", clip=0.5)).plan(FED.sizes, 4)
    assert isinstance(event, GridEvent)
    assert isinstance(whole, GridEvent)
    assert (event.contributors, whole.contributors, event.sensitivity) == (3, 1, 2.0 * GRID_BOUND)
    assert event.scale == pytest.approx(whole.scale / np.sqrt(3), rel=1e-9)


def test_less_noise_than_8_steps_is_refused() -> None:
    with pytest.raises(InvalidInput, match="above 8 grid steps"):
        GridEvent("discrete-gaussian", 15.0, sensitivity=2.0, coordinates=3, contributors=16)  # 7.5 steps each


def test_a_door_refuses_noise_made_for_more_contributors() -> None:
    door = place(NoisyGD(), SUMS).door
    with pytest.raises(InvalidInput, match="made for the honest clients"):
        replace(door, events=(replace(door.events[0], contributors=4),))


def test_sums_that_could_wrap_around_are_refused() -> None:
    """n (m GRID_BOUND + 40 σ_1) < 2^63, and OpenDP's cut at the ends of 64 bits is never reached."""
    door = place(NoisyGD(), SUMS).door
    event = door.events[0]
    most = (2.0**63 / 5 - max(SIZES) * GRID_BOUND) / 40  # σ_1
    fits = most / event.scale * event.noise_multiplier * (1 - 1e-12)
    replace(door, events=(replace(event, noise_multiplier=fits),))
    with pytest.raises(InvalidInput, match="below 2\\^63 grid steps"):
        replace(door, events=(replace(event, noise_multiplier=fits * (1 + 1e-11)),))


# ------------------------------------------------------------------------------------------- one client and all of them


@pytest.mark.parametrize(("algorithm", "privacy"), METHODS, ids=lambda x: getattr(x, "name", "") or x.unit)
def test_a_simulation_is_what_machines_would_sum_to_the_last_bit(algorithm: Method, privacy: Proven) -> None:
    """Terms of clients on machines of their own, added mod 2^64 and opened by a stand-in, against the simulator."""
    everyone = place(algorithm, privacy)
    everyone.start(algorithm)
    task = everyone.task
    fixed = bool(algorithm.asks().batch) and privacy.relation == "replace-one"
    nodes = [alone(everyone, client) for client in range(5)]
    stand_in = alone(everyone, 0)
    server = algorithm.init_server(hub(everyone, 1))
    for k in range(1, (algorithm.asks().parts[-1].last or 3) + 1):
        down = algorithm.broadcast(server, hub(everyone, k))
        exchange = everyone.exchange(algorithm, down, np.ones(5, dtype=bool), k)
        assert exchange is not None
        if fixed and privacy.unit == "record":
            with pytest.raises(InvalidInput, match="must weigh the same"):
                sums.own_term(nodes[0], down, k)
            return
        terms = [sums.own_term(node, down, k) for node in nodes]
        assert all(term.dtype == np.uint64 and term.shape == (sums.length(stand_in, down, k),) for term in terms)
        total = np.zeros_like(terms[0])
        for term in terms:
            total += term  # wraps
        opened = sums.opened(stand_in, down, k, total, np.ones(5, dtype=bool))
        for name, value in vars(exchange.up).items():
            assert value.shape[-2] == 1
            assert np.array_equal(value, getattr(opened.up, name)), name
        server = algorithm.server(server, exchange.up, hub(everyone, k))
    assert task.privacy.honest == everyone.door.events[0].contributors


def hub(clients: LocalClients, k: int) -> Hub:
    return Hub(5, clients.task.objective.penalty, None, k, np.ones((5, 1), dtype=bool), np.zeros((1, 4)))  # type: ignore[arg-type]


def test_one_term_shows_nothing_of_the_sum_alone_but_all_of_them_do() -> None:
    """With much budget the opened sum is the exact mean gradient; a term is whole numbers mod 2^64."""
    loud = replace(ALONE, epsilon=1e6)
    everyone = place(NoisyGD(), loud, rounds=1)
    everyone.start(NoisyGD())
    w = np.array([[0.3, -0.2, 0.1, 0.0]])
    exchange = everyone.exchange(NoisyGD(), NoisyGD.down(w), np.ones(5, dtype=bool), 1)
    slopes = -LABELS / (1 + np.exp(LABELS * (ROWS @ w[0])))
    cut = slopes * np.minimum(1, 0.5 / (np.abs(slopes) * np.linalg.norm(ROWS, axis=1)))
    assert exchange is not None
    assert np.allclose(exchange.up.g, cut @ ROWS / len(ROWS), rtol=0, atol=1e-4)  # six deviations of the noise


def test_weights_of_clients_go_into_the_terms_before_the_grid() -> None:
    """Scale "mean": every record of a small client weighs more, and all terms are on the grid of the heaviest."""
    loud, mean = replace(ALONE, epsilon=1e6), replace(GOAL, scale="mean")
    everyone = place(NoisyGD(), loud, rounds=1, objective=mean)
    everyone.start(NoisyGD())
    exchange = everyone.exchange(NoisyGD(), NoisyGD.down(np.zeros((1, 4))), np.ones(5, dtype=bool), 1)
    per_client = [-(LABELS[i == OWNERS] / 2) @ ROWS[i == OWNERS] / SIZES[i] for i in range(5)]
    assert exchange is not None
    assert np.allclose(exchange.up.g, np.mean(per_client, axis=0), atol=1e-4)
    door: Any = everyone.door
    assert np.allclose(door.shares(0)[:, 0], min(SIZES) / np.array(SIZES))
    assert door.shares(0).max() == 1.0  # the smallest client has the heaviest records


def test_noise_of_clients_adds_up_and_is_new_in_every_round() -> None:
    everyone = place(NoisyGD(), SUMS, rounds=40)
    everyone.start(NoisyGD())
    down, drawn = NoisyGD.down(np.zeros((1, 4))), []
    exact = everyone.door._grid_gradient(down.w, _question(everyone))
    for k in range(1, 41):
        sent = everyone.take_part(NoisyGD(), down, np.ones(5, dtype=bool), k)
        assert sent is not None
        drawn.append(sent.up.g.view(np.int64) - exact)
    noise = np.array(drawn) / everyone.door.events[0].scale
    assert abs(noise.var() - 1) < 6 * np.sqrt(2 / noise.size)
    assert abs(noise.sum(axis=1).var() / 5 - 1) < 6 * np.sqrt(2 / 160)
    flat = noise.reshape(-1, 4)
    assert len(np.unique(flat, axis=0)) == len(flat)


def _question(clients: LocalClients) -> Any:
    from sottovoce.privacy.doors.releases import Question

    return Question(np.arange(5), np.ones(5, dtype=bool), 1, 0, clients.task.asks().parts[0])


# --------------------------------------------------------------------------------------------- what is refused, and why


@pytest.mark.parametrize("name", [name for name, kind in ALGORITHMS.items() if kind.layout == "rows"])
@pytest.mark.parametrize("privacy", [SUMS, BY_CLIENT], ids=["record", "client"])
def test_methods_run_or_are_refused_with_the_reason(name: str, privacy: Proven) -> None:
    admitted = {"noisy-gd", "dp-sgd", "moments", "moments-then-gradients"}
    if privacy.unit == "client":
        admitted |= {"fedavg", "fedprox", "dp-fedavg", "sfedavg", "sfedprox"}
    algorithm = ALGORITHMS[name]()
    if name in admitted:
        result = train(algorithm, FED, GOAL, rounds=2, privacy=privacy, seed=0, engine="numpy")
        assert np.isfinite(result.model).all()
    elif "proven" in algorithm.modes:
        with pytest.raises(NoGuarantee, match="is not for observer='sums'"):
            train(algorithm, FED, GOAL, rounds=2, privacy=privacy, seed=0)


def test_reasons_say_what_is_in_the_way() -> None:
    reasons = {name: kind().why_not_sums("record") for name, kind in ALGORITHMS.items()}
    assert "sorts" in reasons["fedepm"]
    assert "dual" in reasons["dp-admm"]
    assert "control variate" in reasons["scaffold"]
    assert "columns" in reasons["admm-sharing"]
    assert FedAvg(over="drawn").why_not_sums("client")


def test_held_out_records_are_not_counted_in_sums() -> None:
    with pytest.raises(InvalidInput, match="not summed"):
        train(NoisyGD(), FED, GOAL, rounds=2, privacy=SUMS, evaluate=True)


class Server(Arrays):
    w: Array


class Down(Arrays):
    w: Array


class Up(Arrays):
    g: Array
    also: Array


class Kept(Arrays):
    g: Array


@dataclass(frozen=True)
class Rogue(Algorithm[Server, Kept, Down, Up]):
    """Does one of the things that Theorem 1 forbids, or none of them."""

    how: str = "honest"
    name: ClassVar[str] = "rogue"
    summary: ClassVar[str] = "for tests"

    def asks(self) -> Asks:
        if self.how.startswith("prox"):
            return Asks.every_round(kind="prox-steps", releases=2)
        kinds: Any = {"descent": "descent", "argmin": "argmin"}
        return Asks.every_round(answers=2, kind=kinds.get(self.how, "gradient"), releases=2)

    def why_not_sums(self, unit: str) -> str:
        return ""

    def init_server(self, hub: Hub) -> Server:
        return Server(hub.zeros.copy())

    def init_client(self, site: Site) -> Kept:
        return Kept(site.zeros + 0.0)

    def broadcast(self, server: Server, hub: Hub) -> Down:
        return Down(server.w)

    def client(self, state: Kept, down: Down, site: Site) -> tuple[Kept, Up]:
        if self.how.startswith("prox"):
            push = down.w + 1 if self.how == "prox, own push" else 0.0
            spec = ProxSteps([1.0, 1.0], [2.0, 2.0], push, down.w, NoPenalty())
            start = down.w * 1.0 if self.how == "prox, own start" else down.w
            return state, Up(site.release(site.f.prox_steps(start, spec), centre=down.w), site.zeros[..., :0])
        points = {"own point": down.w + 0.1, "state": state.g, "copy": down.w.copy()}
        answer = site.f.grad(points.get(self.how, down.w))
        if self.how == "map":
            answer = 2.0 * answer
        if self.how == "none of it":
            answer = np.ones_like(site.zeros)
        sent = site.release(answer, centre=site.zeros)
        also = site.zeros[..., :0]
        if self.how == "twice":
            also = sent
        if self.how == "same again":
            also = site.release(answer, centre=site.zeros)
        if self.how == "two":
            also = site.release(site.f.grad(site.zeros), centre=site.zeros)
        return Kept(state.g + answer + sent), Up(sent, also)

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        return Server(server.w - hub.mean(up.g))

    def model(self, server: Server) -> Array:
        return server.w


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("own point", "arrays of the broadcast as they came"),
        ("state", "arrays of the broadcast as they came"),
        ("copy", "arrays of the broadcast as they came"),
        ("prox, own push", "arrays of the broadcast as they came"),
        ("prox, own start", "arrays of the broadcast as they came"),
        ("map", "an answer of the oracle as it came"),
        ("none of it", "an answer of the oracle as it came"),
        ("twice", "one field of an upload is one answer"),
        ("same again", "was released before"),
        ("descent", "no secure or discrete noise for 'descent'"),
        ("argmin", "nothing is proved about sums"),
    ],
)
def test_a_client_half_that_breaks_the_proof_is_stopped(how: str, said: str) -> None:
    with pytest.raises((InvalidInput, NoGuarantee), match=said):
        train(Rogue(how), FED, GOAL, rounds=2, privacy=replace(SUMS, clip=0.5), seed=0)


@pytest.mark.parametrize("how", ["honest", "two", "prox"])
def test_neither_data_nor_noise_enters_a_state(how: str) -> None:
    """A client that keeps all it was given keeps zeros, whatever its rows and its noise are."""
    everyone = place(Rogue(how), SUMS)
    task = everyone.task
    task.play(everyone, Streams(3))
    kept = everyone._states.g
    assert kept.shape == (5, 4)
    assert not kept.any()


def test_under_unit_client_no_noise_enters_a_state() -> None:
    """The state of a client that keeps exact answers and releases is the same for every noise."""
    states = []
    for seed in (1, 2):
        task = Task(Rogue("honest"), GOAL, BY_CLIENT, rounds=1, engine="numpy")
        everyone = local_clients(task, FED, Streams(seed))
        task.play(everyone, Streams(0))
        states.append(everyone._states.g)
    assert states[0].any()
    assert np.array_equal(states[0], states[1])


def test_ends_of_proximal_steps_are_summed_around_the_broadcast() -> None:
    loud = replace(ALONE, epsilon=1e6)
    everyone = place(Rogue("prox"), loud, rounds=1)
    everyone.start(Rogue("prox"))
    w = np.array([[0.3, -0.2, 0.1, 0.0]])
    exchange = everyone.exchange(Rogue("prox"), Down(w), np.ones(5, dtype=bool), 1)
    assert exchange is not None
    ends = []
    for i in range(5):
        X, y, x = ROWS[i == OWNERS], LABELS[i == OWNERS], w[0].copy()
        for _ in range(2):  # x ← centre + (keep (x − centre) − g)/total
            slopes = -y / (1 + np.exp(y * (X @ x)))
            slopes *= np.minimum(1, 0.5 / (np.abs(slopes) * np.linalg.norm(X, axis=1)))
            x = w[0] + (x - w[0] - slopes @ X * 5 / len(ROWS)) / 2
        ends.append(x)
    assert np.allclose(exchange.up.g, np.mean(ends, axis=0), atol=1e-4)


def test_the_end_of_proximal_steps_moves_by_at_most_what_it_is_charged_for() -> None:
    """Neighbours: one record replaced by its opposite, in grid steps, noise taken off by an intercept."""
    opposite = LABELS.copy()
    opposite[3] *= -1
    seen = []
    for labels in (LABELS, opposite):
        other = Federation.from_arrays(ROWS, labels, groups=OWNERS, row_bound=1.0)
        everyone = place(Rogue("prox"), SUMS, rounds=1, federation=other)
        tape = everyone.door.intercept = Tape()
        everyone.task.play(everyone, Streams(3))
        (made,) = tape.all_made
        seen.append(made.exact / made.scale * everyone.door.events[0].scale)  # in grid steps
    moved = float(np.linalg.norm(seen[0] - seen[1]))
    assert 0.3 * GRID_STEPS < moved <= everyone.door.events[0].sensitivity


def test_proximal_steps_that_do_not_absorb_differences_are_refused() -> None:
    """Without a bound on rows one record moves the end by more than the grid, which is common to all, is made for."""
    unbounded = Federation.from_arrays(ROWS, LABELS, groups=OWNERS)
    everyone = place(Rogue("prox"), SUMS, rounds=1, federation=unbounded)
    with pytest.raises(InvalidInput, match="need steps that absorb differences"):
        everyone.task.play(everyone, Streams(3))


# ------------------------------------------------------------------------------------------------------- who answers


def test_below_least_nothing_is_opened_and_the_charge_stays() -> None:
    privacy = replace(SUMS, least=4, colluders=1)
    script = Schedule(((0, 1, 2, 3), (0, 1, 2), (1, 2, 3, 4)))
    result = train(NoisyGD(step=2.0), FED, GOAL, rounds=3, privacy=privacy, participation=script, seed=0)
    assert list(result.history["answered"]) == [4, 0, 4]
    assert result.charges is not None
    answers = [sum((result.charges.of(i).spent() or Counter()).values()) for i in range(5)]
    assert answers == [2, 3, 3, 2, 1]


def test_rows_of_those_who_did_not_answer_are_not_in_the_sum() -> None:
    privacy = replace(ALONE, epsilon=1e6, least=2)
    everyone = place(NoisyGD(), privacy, rounds=1)
    everyone.start(NoisyGD())
    who = np.array([True, False, True, False, False])
    exchange = everyone.exchange(NoisyGD(), NoisyGD.down(np.zeros((1, 4))), who, 1)
    some = np.isin(OWNERS, [0, 2])
    assert exchange is not None
    expected = -(LABELS[some] / 2) @ ROWS[some] * 5 / len(ROWS) / 2
    assert np.allclose(exchange.up.g, expected, atol=1e-4)


def test_a_node_gives_no_term_beyond_the_plan_and_an_exchange_of_one_opens_nothing() -> None:
    everyone = place(NoisyGD(), SUMS)
    node, down = alone(everyone, 2), NoisyGD.down(np.zeros((1, 4)))
    with pytest.raises(InvalidInput, match="rounds are numbered from 1 to 3"):
        sums.own_term(node, down, 4)
    exchange = node.exchange(NoisyGD(), down, np.ones(1, dtype=bool), 1)
    assert exchange is not None
    assert exchange.up is None
    assert not exchange.answered.any()
    assert node.ledger is not None
    assert sum(node.ledger.spent(0).values()) == 1
    with pytest.raises(InvalidInput, match="over at least 5"):
        sums.opened(node, down, 1, np.zeros(4, dtype=np.uint64), np.array([True] * 4 + [False]))


def test_several_runs_are_independent_and_those_below_least_stand_still() -> None:
    privacy = replace(SUMS, least=3, colluders=1)
    more: Any = {"privacy": privacy, "seed": 4, "runs": 6, "participation": Bernoulli(0.6)}
    result = train(NoisyGD(step=2.0), FED, GOAL, rounds=2, **more)
    answered = result.history["answered"].reshape(2, 6)
    assert (answered == 0).any()
    assert set(answered.ravel()) <= {0, 3, 4, 5}
    still = (answered == 0).all(axis=0)
    assert not result.model[still].any()
    moved = result.model[~still]
    assert len(np.unique(moved, axis=0)) == len(moved)


def test_a_run_with_ledgers_on_disk_goes_on_with_the_same_terms(tmp_path: Any) -> None:
    """Answers that a run gave are not given twice: the same whole numbers are summed again, for free."""
    whole = train(NoisyGD(step=2.0), FED, GOAL, rounds=3, privacy=SUMS, seed=0, ledgers=tmp_path / "a")
    stops: list[Any] = []

    def stop(checkpoint: Any) -> None:
        stops.append(checkpoint)
        if checkpoint.k == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(NoisyGD(step=2.0), FED, GOAL, rounds=3, privacy=SUMS, seed=0, ledgers=tmp_path / "b", after_round=stop)
    more: Any = {"privacy": SUMS, "seed": 0, "ledgers": tmp_path / "b", "resume": stops[0]}  # round 2 was answered
    again = train(NoisyGD(step=2.0), FED, GOAL, rounds=3, **more)
    assert np.array_equal(whole.model, again.model)
    assert again.guarantee.epsilon == whole.guarantee.epsilon


def test_the_guarantee_names_who_is_trusted_for_what() -> None:
    said = train(NoisyGD(step=2.0), FED, GOAL, rounds=3, privacy=SUMS, seed=0).guarantee
    for part in (
        "(1, 0.001 + negligible)-differential privacy",
        "at most 2 of the other clients who share what they know with it",
        "at least 5 of the 5 clients are in every sum",
        "X25519, ChaCha20, SHA-256 or Ed25519",
        "at most 2 of the other clients share what they know with the server (promised by the user)",
    ):
        assert part in said.text
    assert (said.constants["least"], said.constants["colluders"], said.constants["roster"]) == (5, 2, 5)
    assert "server sees sums only" in said.short
    assert (
        "negligible" not in train(NoisyGD(), FED, GOAL, rounds=1, privacy=Proven(1.0, 1e-3, 0.5), seed=0).guarantee.text
    )


def test_a_ledger_with_terms_of_sums_promises_nothing_against_who_sees_every_message(tmp_path: Any) -> None:
    """What was charged with the noise of five clients is no guarantee against somebody who saw single terms."""
    more: Any = {"rounds": 2, "ledgers": tmp_path / "ledgers"}
    first = train(NoisyGD(), FED, GOAL, privacy=ALONE, seed=0, **more).guarantee
    rests = "of every sum that was charged for with the noise of 5, so many clients' noise is known to nobody else"
    assert f"{rests} (promised by the user)" in first.text
    trusting_less = train(NoisyGD(), FED, GOAL, privacy=SUMS, seed=1, **more).guarantee
    assert rests in trusting_less.text  # not of this run, which counts on three
    alone = Proven(1.0, 1e-3, clip=0.5)
    later = train(NoisyGD(), FED, GOAL, privacy=alone, seed=2, **more).guarantee
    assert later.observer.endswith("earlier runs charged as terms of sums, every opened sum and masked message alone")
    assert "sums only of earlier ones" in later.short
    assert "0.001 + negligible" in later.text
    assert rests in later.text
    fresh = train(NoisyGD(), FED, GOAL, privacy=alone, seed=2, rounds=2, ledgers=tmp_path / "other").guarantee
    assert "sum" not in fresh.observer
    assert not any("sum" in one.what for one in fresh.assumptions)


def test_noise_of_runs_that_every_message_is_seen_of_did_not_change() -> None:
    """Settings that came later are not part of what noise is bound to, unless they are used."""
    from sottovoce.privacy.noise_key import stable_text

    text = stable_text(Proven(1.0, 1e-5, clip=1.0))
    assert "observer" not in text
    assert text.endswith("noise='seeded', participations=None)")
    assert "least=5, colluders=2, roster=5" in stable_text(SUMS.among(5))


def test_doors_of_sums_are_those_that_are_opened() -> None:
    assert isinstance(place(NoisyGD(), SUMS).door, RecordSums)
    assert isinstance(place(DPFedAvg(), BY_CLIENT).door, SumsDoor)


def test_standard_errors_are_those_of_the_sum() -> None:
    """Deviation of the model's noise over many runs, against what the result says of itself."""
    result = train(NoisyGD(step=1.0), FED, GOAL, rounds=1, privacy=SUMS, seed=1, runs=400, engine="numpy")
    assert result.standard_errors is not None
    found = np.asarray(result.model).std(axis=0) / result.standard_errors[0]
    assert np.all(np.abs(found - 1) < 6 / np.sqrt(800))


def test_rules_count_the_honest_clients() -> None:
    """s = √(N/h)/(μ n) against √N/(μ n): less noise, so the rule goes further."""
    from sottovoce.rules import PublicNumbers

    numbers: Any = {"records": 4000, "clients": 10, "columns": 4, "epsilon": 1.0, "delta": 1e-5}
    assert PublicNumbers(**numbers, contributors=6).noise == pytest.approx(PublicNumbers(**numbers).noise / np.sqrt(6))
    said = [train("noisy-gd", FED, GOAL, privacy=one, seed=0).config["choice"]["why"] for one in (SUMS, ALONE)]
    deviations = [float(why.split("s = ")[1].split(",")[0]) for why in said]
    assert deviations[0] / deviations[1] == pytest.approx(np.sqrt(5 / 3), rel=0.01)


def test_run_files_name_the_observer(tmp_path: Any) -> None:
    from sottovoce.experiment import run_file

    rows = np.column_stack([ROWS, LABELS, OWNERS])
    header = "a,b,c,d,label,owner"
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header=header, comments="")
    text = """
        [data]
        csv = "rows.csv"
        label = "label"
        labels = ["-1.0", "1.0"]
        owner = "owner"
        row_bound = 1.0
        shorten = true
        [objective]
        loss = "logistic"
        [privacy]
        mode = "proven"
        epsilon = 1.0
        delta = 1e-3
        observer = "sums"
        least = 4
        colluders = 1
        [run]
        seed = 0
    """
    (tmp_path / "run.toml").write_text(text)
    result = run_file.load(tmp_path / "run.toml").train()
    told = result.config["privacy"]
    assert (told["observer"], told["least"], told["colluders"], told["roster"]) == ("sums", 4, 1, 5)
    again = run_file.build(
        result.config | {"data": {**result.config["data"], "csv": str(tmp_path / "rows.csv")}}, "again"
    )
    assert np.array_equal(again.train().model, result.model)
