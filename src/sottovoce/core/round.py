"""The one loop. A transport carries messages to clients and back; everything else is the same wherever they are."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from sottovoce.core import codec
from sottovoce.core.contract import Algorithm, Hub, Penalty
from sottovoce.core.participation import Participation
from sottovoce.core.random.streams import SERVER, Draw, Streams

_SERVER = np.array([SERVER], dtype=np.uint64)


@dataclass(frozen=True)
class Exchange:
    """What came back from one round."""

    up: Any  # an upload with one row per client; rows of those who did not answer hold nothing
    answered: np.ndarray  # (runs?, n) of bool


class Transport(Protocol):
    """How messages reach the clients: all in one call (`experiment/local.py`), or over a network."""

    n: int
    dim: int

    def start(self, algorithm: Algorithm) -> None:
        """Initialise the clients' states."""
        ...

    def exchange(self, algorithm: Algorithm, down: Any, active: np.ndarray, k: int) -> Exchange | None:
        """One round; None when nobody can answer any more (every budget is spent)."""
        ...

    def measure(self, model: np.ndarray) -> dict[str, np.ndarray]:
        """Named numbers about the model, one per run, for the history."""
        ...

    def snapshot(self) -> dict[str, np.ndarray]:
        """The clients' states and budgets as named arrays."""
        ...


NOT_RELEASED = ("objective",)  # columns read off private rows: a simulation may look, nothing of it is in a guarantee


@dataclass
class History:
    """One row per recorded round (and run): columns of equal length. Those of `NOT_RELEASED` must not leave."""

    columns: dict[str, list[float]] = field(default_factory=dict)

    def add(self, runs: int, **row: Any) -> None:
        """Append one value per run for every name; a single number stands for all runs."""
        for name, value in row.items():
            values = np.asarray(value)
            several = np.broadcast_to(values, (runs,)).tolist() if values.ndim else [values.item()] * runs
            self.columns.setdefault(name, []).extend(several)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def first(self, rows: int) -> "History":
        """A copy of the first `rows` rows."""
        return History({name: column[:rows] for name, column in self.columns.items()})

    def __getitem__(self, name: str) -> np.ndarray:
        return np.asarray(self.columns[name])


@dataclass(frozen=True)
class Checkpoint:
    """All that is needed to go on after round `k`. Arrays in it are never changed afterwards."""

    k: int
    server: Any
    clients: dict[str, np.ndarray]
    history: "History"  # shared with the running loop, which only appends: the first `recorded` rows are this one's
    recorded: int = 0
    bytes_up: float = 0.0
    bytes_down: float = 0.0
    seconds: float = 0.0
    seed: int | None = None  # of the run, if it was stated; None too if storage already verified it


@dataclass(frozen=True)
class Outcome:
    model: np.ndarray
    history: History
    rounds: int
    stopped: str  # "" when all rounds were done, else why not


def train(
    algorithm: Algorithm,
    transport: Transport,
    *,
    rounds: int,
    penalty: Penalty,
    participation: Participation,
    streams: Streams,
    resume: Checkpoint | None = None,
    record_every: int = 1,
    after_round: Callable[[Checkpoint], None] = lambda checkpoint: None,
) -> Outcome:
    """Run `algorithm` for `rounds` rounds over `transport`.

    `after_round` is handed a checkpoint after every round: it may save it, show progress, or raise to stop.
    """
    runs = streams.runs or 1
    zeros = _read_only(_runs_shape(streams, 1, transport.dim), 0.0)
    nobody = _read_only(_runs_shape(streams, transport.n, 1), False)
    labels = getattr(transport, "labels", None)  # where columns are split between parties

    def hub(k: int) -> Hub:
        return Hub(transport.n, penalty, Draw(streams, _SERVER, k), k, nobody, zeros, labels)

    algorithm.warn_about(participation, transport.n)
    if resume is None:
        transport.start(algorithm)
        resume = Checkpoint(0, algorithm.init_server(hub(0)), transport.snapshot(), History())
    server, history = resume.server, resume.history.first(resume.recorded)
    up_so_far, down_so_far, seconds, done = resume.bytes_up, resume.bytes_down, resume.seconds, resume.k
    masks = _rounds(participation, transport.n, streams, done, rounds)
    stopped = _why_stop(algorithm, server, done, rounds)

    while not stopped and done < rounds:
        k, active = next(masks, (0, nobody[..., 0]))
        if k == 0:
            stopped = f"after round {done}: the schedule of participants ends here"
            break
        begun = time.perf_counter()
        here = hub(k)
        down = algorithm.broadcast(server, replace(here, answered=active[..., None]))
        exchange = transport.exchange(algorithm, down, active, k)
        if exchange is None:
            stopped = f"after round {done}: every client's budget is spent"
            break
        if exchange.answered.any():
            server = algorithm.server(server, exchange.up, replace(here, answered=exchange.answered[..., None]))
            up_so_far += exchange.answered.sum() / runs * codec.bytes_per_client(exchange.up)
        down_so_far += active.sum() / runs * codec.bytes_per_client(down)
        seconds += time.perf_counter() - begun
        done, stopped = k, _why_stop(algorithm, server, k, rounds)
        if k % record_every == 0 or k == rounds or stopped:
            history.add(
                runs,
                run=np.arange(runs),
                round=k,
                answered=exchange.answered.sum(axis=-1),
                bytes_up=up_so_far,
                bytes_down=down_so_far,
                seconds=seconds,
                **transport.measure(algorithm.model(server)),
            )
        clients = transport.snapshot()
        spent = (up_so_far, down_so_far, seconds, None if streams.drawn else streams.seed)
        after_round(Checkpoint(k, server, clients, history, len(history), *spent))
    return Outcome(algorithm.model(server), history, done, stopped)


def _why_stop(algorithm: Algorithm, server: Any, k: int, rounds: int) -> str:
    reason = algorithm.stop(server) if 0 < k < rounds else ""
    return f"after round {k}: {reason}" if reason else ""


def _rounds(
    participation: Participation, n: int, streams: Streams, done: int, rounds: int
) -> Iterator[tuple[int, np.ndarray]]:
    """(k, who is asked) for the rounds still to do. Past rounds are drawn again, so that a resumed run agrees."""
    for k, mask in zip(range(1, rounds + 1), participation.masks(n, streams), strict=False):
        if k > done:
            yield k, mask


def _runs_shape(streams: Streams, *tail: int) -> tuple[int, ...]:
    return tail if streams.runs is None else (streams.runs, *tail)


def _read_only(shape: tuple[int, ...], value: float | bool) -> np.ndarray:
    return np.broadcast_to(np.asarray(value), shape)
