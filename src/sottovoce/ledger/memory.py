"""The ledgers of all clients of a simulation, as counts in memory."""

import json
import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sottovoce.core import check
from sottovoce.core.arrays import every, everyone, unwritable
from sottovoce.ledger.budget import Budget, Spread, Standing, spread_of
from sottovoce.ledger.histories import Counted
from sottovoce.privacy import accounting
from sottovoce.privacy.events import Event, make_event, pack_event

_BLOCK = 8
_UNKNOWN = -1  # a cap that has to be computed (again)
Clients = NDArray[np.integer] | None  # None: all
Mask = NDArray[np.bool_] | None  # None: everywhere


class MemoryLedger:
    """The ledgers of all clients (and runs) of a simulation, as arrays of counts.

    Parameters
    ----------
    budget
        What each client of each run may give away.
    shape
        (runs, clients) or (clients,). Masks and results have this shape, their last axis cut to `clients` where given.
    """

    run = ""  # a simulation has no name in any owner's ledger

    def __init__(self, budget: Budget, shape: tuple[int, ...]) -> None:
        check.require(len(shape) in (1, 2), "MemoryLedger", "shape must be (runs, clients) or (clients,)", shape)
        check.whole("MemoryLedger", **{f"shape[{axis}]": length for axis, length in enumerate(shape)})
        self.budget = budget
        self.shape = tuple(int(length) for length in shape)
        self._events: list[Event] = []
        self._counts = np.zeros((0, *self.shape), np.int64)  # first axis: kind of event
        self._caps = self._counts.copy()
        self._all = unwritable(np.ones(self.shape, bool))
        self._alike: int | None = 0  # how many answers each client gave, of all kinds; None: not known, or unequal
        self._exceeded: Mask = np.zeros(self.shape, bool)  # whose recalled answers cost too much; None: not known
        self._least = 0  # so many more answers every client can afford, if there is one kind of event; 0: not known

    def charge(
        self, event: Event, clients: Clients = None, active: Mask = None, round: int = 0, question: int = 0
    ) -> None:
        """Count one answer of each of `clients` (None: all) in the runs where `active`.

        If one of them cannot afford it, nobody is charged.

        `round` and `question` name an answer in a ledger on disk; here only numbers are kept.
        """
        row, who = self._row(event), self._who(clients)
        asked = self._mask(active, who)
        if self._least <= 0:
            beyond = asked & (self._left(row, who) <= 0)
            if beyond.any():
                place = np.argwhere(beyond)[0]
                client, run = int(np.arange(self.shape[-1])[who][place[-1]]), int(place[0])
                name = f"client {client}" + (f" of run {run}" if len(self.shape) == 2 else "")
                raise Standing(self.budget, self.spent(client, run)).refusal(name, event)
        self._least -= 1
        counts = self._counts[row]
        if isinstance(who, slice) and every(asked):  # the common case, and the cheapest
            counts += 1
            self._alike = None if self._alike is None else self._alike + 1
        else:
            counts[..., who] += asked
            self._alike = None
        if len(self._events) > 1:  # what is left for other kinds must be computed again; this kind's cap is a total
            self._caps[:row, ..., who] = _UNKNOWN
            self._caps[row + 1 :, ..., who] = _UNKNOWN

    def recall(self, event: Event, client: int, answers: int) -> None:
        """Count answers that this client gave before, even beyond the budget."""
        row = self._row(event)
        self._counts[row][..., client] += answers
        self._caps[..., client] = _UNKNOWN
        self._least, self._alike, self._exceeded = 0, None, None

    def afford(
        self, event: Event, answers: ArrayLike = 1, clients: Clients = None, round: int | None = None
    ) -> NDArray[np.bool_]:
        """Who can still give this many more answers of this kind. Not to be written to."""
        row, who = self._row(event), self._who(clients)
        if isinstance(answers, int) and 0 < answers <= self._least:  # the common case, and the cheapest
            return self._all if isinstance(who, slice) else self._all[..., who]
        return self._left(row, who) >= np.asarray(answers)

    def kept(self, round: int, question: int, clients: object, active: object) -> None:
        """None: answers are kept only where ledgers are files (`OwnerLedgers`)."""

    def keep(self, round: int, question: int, clients: object, active: object, answer: object) -> None: ...

    def finished(self) -> None:
        """Nothing to do: memory keeps no answers."""

    def close(self) -> None:
        """Nothing to do: memory has no files."""

    def spent(self, client: int, run: int = 0) -> dict[Event, int]:
        """What one client has answered (in one run)."""
        return self._as_spent(self._counts[:, client] if len(self.shape) == 1 else self._counts[:, run, client])

    spent_here = spent  # a simulation remembers this run only

    def histories(self) -> tuple[tuple[Counted, ...], tuple[tuple[int, ...], ...]]:
        """The distinct histories of all clients, and for each run which of them each client has."""
        states, which = self._distinct(self._counts)
        distinct = tuple(Counted.of(self._as_spent(state)) for state in states)
        return distinct, tuple(tuple(clients.tolist()) for clients in which.reshape(-1, self.shape[-1]))

    def spread(self) -> Spread:
        """The largest, the median and the smallest of `epsilons(roughly=True)`: of each run, or one for all runs."""
        if self._alike and len(self._events) == 1 and self._events[0].sampling == "full":  # the cheapest case
            alike = _epsilon(self.budget, tuple(self._events), (self._alike,))
            return alike, alike, alike
        return spread_of(self.epsilons(roughly=True))

    def epsilons(self, roughly: bool = False) -> NDArray[np.float64]:
        """The epsilon spent so far, of every client (in every run).

        `roughly`: still an upper bound, but cheaper where batches are sampled and an accountant takes its time: counts
        are rounded up (to a quarter of a power of two), so that few different ones occur. That shows no client beyond
        a budget that it did not exceed.
        """
        counts = self._counts
        roughly = roughly and any(event.sampling != "full" for event in self._events)
        if roughly:
            grain = 2 ** np.maximum(np.floor(np.log2(np.maximum(counts, 1))).astype(np.int64) - 2, 0)
            counts = -(-counts // grain) * grain
        states, which = self._distinct(counts)
        events = tuple(self._events)
        values = np.array([_epsilon(self.budget, events, tuple(state)) for state in states.tolist()], np.float64)
        if roughly:
            self._exceeded = self.epsilons() > self.budget.epsilon if self._exceeded is None else self._exceeded
            shown = values[which].reshape(self.shape)
            return np.where(self._exceeded, shown, np.minimum(shown, self.budget.epsilon))
        return values[which].reshape(self.shape)

    def state(self) -> dict[str, np.ndarray]:
        """Plain named arrays for a checkpoint: "counts" (kinds of event, *shape) and "events", a JSON text per kind."""
        return {"counts": self._counts.copy(), "events": np.array(_texts(tuple(self._events)), np.str_)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what `state` gave; what was counted here since is forgotten."""
        events = [make_event(**json.loads(str(text))) for text in state["events"]]
        counts = np.asarray(state["counts"])
        fits = counts.shape == (len(events), *self.shape) and counts.dtype.kind in "iu" and bool((counts >= 0).all())
        rule = f"a state with {len(events)} kinds of event must hold counts >= 0 of shape {(len(events), *self.shape)}"
        check.require(fits, "MemoryLedger", rule, (counts.dtype.name, counts.shape))
        self._events = events
        self._counts = counts.astype(np.int64)
        self._caps = np.full_like(self._counts, _UNKNOWN)
        self._least, self._alike, self._exceeded = 0, None, None

    def _row(self, event: Event) -> int:
        """The event's place on the first axis; a new kind gets a new one."""
        if len(self._events) == 1 and event is self._events[0]:
            return 0  # the common case, and the cheapest
        if event not in self._events:
            self._events.append(event)
            one = np.zeros((1, *self.shape), np.int64)
            self._counts = np.concatenate([self._counts, one])
            self._caps = np.concatenate([self._caps, one + _UNKNOWN])
            self._least = 0
        return self._events.index(event)

    def _who(self, clients: Clients) -> slice | NDArray[np.integer]:
        n = self.shape[-1]
        if clients is None or clients is everyone(n):
            return slice(None)  # the common case, and the cheapest
        clients = np.asarray(clients)
        whole = clients.ndim == 1 and (clients.dtype.kind in "iu" or clients.size == 0)
        inside = whole and bool(((clients >= 0) & (clients < n)).all())
        check.require(inside, "MemoryLedger", f"clients must be whole numbers in 0..{n - 1}", clients)
        clients = clients.astype(np.intp)
        once = clients.size == 0 or np.bincount(clients).max() == 1  # else an answer would go uncounted
        check.require(once, "MemoryLedger", "a client may be named only once in one charge", clients)
        return clients

    def _left(self, row: int, who: slice | NDArray[np.integer]) -> NDArray[np.int64]:
        """How many more of this kind the clients can afford."""
        caps = self._caps[row][..., who]
        if caps.size and caps.min() == _UNKNOWN:
            others = self._counts[..., who]
            others = np.where(np.arange(len(others)) == row, 0, others.T).T  # the cap counts its own kind from zero
            # The accountant is asked once for each distinct history, however many clients share it.
            states, which = self._distinct(others)
            values = [self._standing(state).cap(self._events[row]) for state in states]
            caps = np.array(values, np.int64)[which].reshape(caps.shape)
            self._caps[row][..., who] = caps
        left = caps - self._counts[row][..., who]
        if left.shape == self.shape and len(self._events) == 1:
            self._least = int(left.min())
        return left

    def _distinct(self, counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """The distinct histories among these counts, one a row, and which of them each client (of each run) has."""
        flat = counts.reshape(len(counts), math.prod(counts.shape[1:]))
        first, which = np.zeros(1, np.intp), np.zeros(flat.shape[1], np.intp)
        if every(flat == flat[:, :1]):
            return flat[:, :1].T, which
        for row in flat:  # kind by kind, numbered afresh each time: far faster than np.unique over an axis
            _, first, which = np.unique(which * (row.max() + 1) + row, return_index=True, return_inverse=True)
        return flat[:, first].T, which

    def _standing(self, state: NDArray[np.int64]) -> Standing:
        return Standing(self.budget, self._as_spent(state))

    def _as_spent(self, state: NDArray[np.int64]) -> dict[Event, int]:
        return {event: int(count) for event, count in zip(self._events, state, strict=True) if count}

    def _mask(self, active: Mask, who: slice | NDArray[np.integer]) -> NDArray[np.bool_]:
        """In which runs which of these clients are meant."""
        shape = self.shape if isinstance(who, slice) else (*self.shape[:-1], len(who))
        if active is None:
            return np.ones(shape, bool)
        active = np.asarray(active)
        if active.shape != shape or active.dtype.kind != "b":  # a rule is worded only where it is broken
            rule = f"active must be a mask of shape {shape}"
            check.require(False, "MemoryLedger", rule, (active.dtype, active.shape))
        return active


@lru_cache(maxsize=4096)  # clients that are asked equally often have the same history
def _epsilon(budget: Budget, events: tuple[Event, ...], counts: tuple[int, ...]) -> float:
    """The epsilon after so many answers of each kind."""
    if len(events) == 1 and events[0].sampling == "full" and counts[0]:
        block, place = divmod(counts[0], _BLOCK)
        return _epsilons(events[0], budget, block)[place]
    return Standing(budget, {event: count for event, count in zip(events, counts, strict=True) if count}).epsilon()


@lru_cache(maxsize=1024)
def _epsilons(event: Event, budget: Budget, block: int) -> list[float]:
    """The epsilon after as many answers of one kind as the numbers of a block.

    Computed together they take far less time than in as many different rounds.
    """
    counts = range(block * _BLOCK, (block + 1) * _BLOCK)
    return [epsilon for _, epsilon in accounting.table(event, budget.delta, counts)]


@lru_cache(maxsize=64)
def _texts(events: tuple[Event, ...]) -> tuple[str, ...]:
    return tuple(json.dumps(pack_event(event)) for event in events)
