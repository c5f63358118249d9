"""The one training loop. A transport carries messages to clients and back; the rest is the same wherever they are."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core import codec
from sottovoce.core.arrays import AnyArray, Booleans, Floats, unwritable
from sottovoce.core.contract import Hub, Method, Penalty
from sottovoce.core.participation import Participation
from sottovoce.core.random.streams import SERVER, Draw, Streams

_SERVER = np.array([SERVER], dtype=np.uint64)

State = Any  # of a server or a client, or a message: a frozen dataclass of arrays, different for each algorithm


@dataclass(frozen=True)
class Exchange:
    """What came back from one round."""

    up: State  # an upload with one row per client; rows of clients that did not answer hold nothing
    answered: Booleans  # (runs?, n)


class Transport(Protocol):
    """How messages reach the clients: all in one call (`experiment/rounds.py`), or over a network."""

    n: int
    dim: int

    def start(self, algorithm: Method) -> None:
        """Initialise the clients' states."""
        ...

    def exchange(self, algorithm: Method, down: State, active: Booleans, k: int) -> Exchange | None:
        """One round; None when nobody can answer any more (every budget is spent)."""
        ...

    def measure(self, model: Floats) -> Mapping[str, ArrayLike]:
        """Named numbers about the model, one per run, for the history."""
        ...

    def snapshot(self) -> dict[str, AnyArray]:
        """The clients' states and budgets as named arrays."""
        ...


NOT_RELEASED = ("objective",)  # columns computed from private rows, which no guarantee covers: for simulations only


@dataclass
class History:
    """One row per recorded round (and run): columns of equal length. Those of `NOT_RELEASED` must not be published."""

    columns: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def add(self, runs: int, **row: ArrayLike) -> None:
        """Append one value per run for every name; a single number stands for all runs."""
        for name, value in row.items():
            column = self.columns.setdefault(name, [])
            if runs == 1:
                column.append(value if type(value) is float or type(value) is int else np.asarray(value).item())
            else:
                column.extend(np.broadcast_to(value, (runs,)).tolist())

    def __len__(self) -> int:
        return max(map(len, self.columns.values()), default=0)

    def first(self, rows: int) -> "History":
        """A copy of the first `rows` rows."""
        return History({name: column[:rows] for name, column in self.columns.items()})

    def __getitem__(self, name: str) -> AnyArray:
        return np.asarray(self.columns[name])


@dataclass(frozen=True)
class Checkpoint:
    """All that is needed to continue after round `k`. Arrays in it are never changed afterwards."""

    k: int
    server: State
    clients: dict[str, AnyArray]
    history: History  # shared with the running loop, which only appends: the first `recorded` rows belong to this one
    recorded: int = 0
    bytes_up: float = 0.0
    bytes_down: float = 0.0
    seconds: float = 0.0
    seed: int | None = None  # of the run, if it was stated; None too if storage already verified it


AfterRound = Callable[[Checkpoint], None]


@dataclass(frozen=True)
class Outcome:
    model: Floats
    history: History
    rounds: int
    stopped: str  # "" when all rounds were done, else why not
    server: object = None  # the server's last state


def train(
    algorithm: Method,
    transport: Transport,
    rounds: int,
    penalty: Penalty,
    participation: Participation,
    streams: Streams,
    resume: Checkpoint | None = None,
    record_every: int = 1,
    after_round: AfterRound | None = None,
) -> Outcome:
    """Run `algorithm` for `rounds` rounds over `transport`.

    `after_round` gets a checkpoint after every round: it may save it, show progress, or raise an error to stop.
    """
    runs, lead = streams.runs or 1, () if streams.runs is None else (streams.runs,)
    zeros, nobody = np.broadcast_to(0.0, (*lead, 1, transport.dim)), np.broadcast_to(False, (*lead, transport.n))
    labels = getattr(transport, "labels", None)  # if columns are split between parties

    def hub(k: int, draw: Draw, answered: Booleans) -> Hub:
        # The mask decides who is charged: an algorithm gets a copy.
        return Hub(transport.n, penalty, draw, k, unwritable(answered[..., None]), zeros, labels)

    algorithm.warn_about(participation, transport.n)
    if resume is None:
        transport.start(algorithm)
        server = algorithm.init_server(hub(0, Draw(streams, _SERVER, 0), nobody))
        resume = Checkpoint(0, server, transport.snapshot(), History())
    seed = None if streams.drawn else streams.seed
    now = replace(resume, history=resume.history.first(resume.recorded), seed=seed)
    del resume  # the first states of all clients may be large, and are not needed again
    run_numbers = 0 if runs == 1 else np.arange(runs)
    masks = _rounds(participation, transport.n, streams, now.k, rounds)
    stopped = _why_stop(algorithm, now.server, now.k, rounds)
    while not stopped and now.k < rounds:
        k, active = next(masks, (0, nobody))
        if k == 0:
            stopped = f"after round {now.k}: the schedule of participants ends here"
            break
        begun, draw = time.perf_counter(), Draw(streams, _SERVER, k)
        server_side = hub(k, draw, active)
        down = algorithm.broadcast(now.server, server_side)
        exchange = transport.exchange(algorithm, down, active, k)
        if exchange is None:
            stopped = f"after round {now.k}: every client's budget is spent"
            break
        answered, server, asked = exchange.answered, now.server, int(np.count_nonzero(active))
        answers = asked if answered is active else int(np.count_nonzero(answered))
        if answers:
            server_side = server_side if answered is active else hub(k, draw, answered)
            server = algorithm.server(server, exchange.up, server_side)
        spent = _spent(now, _sent(answers / runs, exchange.up), _sent(asked / runs, down), begun)
        stopped = _why_stop(algorithm, server, k, rounds)
        if k % record_every == 0 or k == rounds or stopped:
            of_runs = answers if runs == 1 else answered.sum(axis=-1)
            row = {"run": run_numbers, "round": k, "answered": of_runs, **spent}
            now.history.add(runs, **row, **transport.measure(algorithm.model(server)))
        kept = transport.snapshot() if after_round else {}  # nobody else sees it
        now = Checkpoint(k, server, kept, now.history, len(now.history), **spent, seed=seed)
        if after_round:
            after_round(now)
    return Outcome(algorithm.model(now.server), now.history, now.k, stopped, now.server)


def _sent(clients: float, message: State) -> float:
    """Bytes of the messages that so many clients send or get."""
    return clients * codec.bytes_per_client(message) if clients else 0.0


def _spent(now: Checkpoint, up: float, down: float, begun: float) -> dict[str, float]:
    """Bytes and seconds so far, after a round that began at this time and took `up` and `down` bytes."""
    seconds = now.seconds + time.perf_counter() - begun
    return {"bytes_up": now.bytes_up + up, "bytes_down": now.bytes_down + down, "seconds": seconds}


def _why_stop(algorithm: Method, server: State, k: int, rounds: int) -> str:
    reason = algorithm.stop(server) if 0 < k < rounds else ""
    return f"after round {k}: {reason}" if reason else ""


def _rounds(
    participation: Participation, n: int, streams: Streams, done: int, rounds: int
) -> Iterator[tuple[int, Booleans]]:
    """(k, which clients are asked) for the rounds still to do. Past rounds are drawn again, so that resuming agrees."""
    for k, mask in zip(range(1, rounds + 1), participation.masks(n, streams), strict=False):
        if k > done:
            yield k, mask
