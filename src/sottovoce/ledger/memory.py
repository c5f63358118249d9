"""Who has answered how often, and who may answer again: budgets, receipts, and the ledger of a simulation.

`MemoryLedger` counts for all clients of all runs at once. A data owner's own ledger, which outlives runs and
processes, is `ledger_file.FileLedger`. Both count events, leave the meaning of the counts to `accounting.py`, and
refuse *before* an answer is given.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sottovoce.core import check
from sottovoce.privacy import accounting
from sottovoce.privacy.events import Event

_UNKNOWN = -1  # a cap that has to be computed (again)


class LedgerError(check.SottovoceError):
    """A ledger cannot be trusted, read or written; no answer may be given on it."""


@dataclass(frozen=True)
class Budget:
    """The most that all answers together may give away. `delta` = 0 is for pure mechanisms (Laplace) only."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check.positive("Budget", epsilon=self.epsilon)
        check.non_negative("Budget", delta=self.delta)
        check.require(self.delta < 1, "Budget", "delta must lie in [0, 1)", self.delta)


@dataclass(frozen=True)
class Receipt:
    """One charged answer. (run, round, question) names it; `sequence` is its place in the owner's ledger."""

    sequence: int
    run: str
    round: int
    question: int
    purpose: str
    event: Event
    time: float


class AlreadyCharged(check.SottovoceError):
    """This question was charged before. Resend the stored answer, or, if there is none, ask (and pay) anew."""

    def __init__(self, receipt: Receipt) -> None:
        self.receipt = receipt
        super().__init__(
            f"ledger: run {receipt.run!r}, round {receipt.round}, question {receipt.question} was charged before "
            f"(row {receipt.sequence}). Resend the stored answer, or ask a new question"
        )


def fingerprint(*arrays: ArrayLike | None) -> str:
    """SHA-256 (hex) of the arrays' bytes, shapes and types: the same for the same data set, else different.

    It stays with the data's owner: whoever has it can confirm a guessed data set. See `FileLedger.create`.
    """
    digest = hashlib.sha256()
    for number, value in enumerate(arrays):
        if value is None:
            digest.update(b"none;")
            continue
        array = np.ascontiguousarray(value)
        check.require(
            not array.dtype.hasobject and array.dtype.itemsize > 0,
            "fingerprint",
            f"array {number} must have a plain type (numbers or text of fixed width)",
            str(array.dtype),
        )
        digest.update(f"{array.dtype.str}{np.shape(value)};".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def pack_event(event: Event) -> dict[str, Any]:
    """The event as plain numbers and text, for JSON; `unpack_event` undoes it exactly."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in asdict(event).items()}


@lru_cache(maxsize=1024)
def _text(event: Event) -> str:
    return json.dumps(pack_event(event))


def unpack_event(packed: Mapping[str, Any]) -> Event:
    """The first format did not keep the bound on rows that an answer rests on: then it is not known."""
    return Event(**{"row_bound": None, **packed})


def cap(event: Event, budget: Budget, spent: Mapping[Event, int]) -> int:
    """How many answers of this kind `budget` holds *in total* next to the other kinds in `spent`.

    It does not change while only this kind is asked, so it is computed once and each further charge is a comparison.
    """
    return _cap(event, budget, frozenset((other, n) for other, n in spent.items() if n and other != event))


def refusal(who: str, event: Event, budget: Budget, spent: Mapping[Event, int]) -> check.BudgetSpent:
    """The error for an answer that does not fit any more; it says what was spent and what the answer would cost."""
    before = accounting.epsilon(spent, budget.delta)
    after = accounting.epsilon({**spent, event: spent.get(event, 0) + 1}, budget.delta)
    return check.BudgetSpent(
        f"{who}: the next answer would exceed the privacy budget: epsilon {before:.6g} is spent after "
        f"{sum(spent.values())} answers, the next would make it {after:.6g}, the budget is {budget.epsilon:.6g} at "
        f"delta {budget.delta:g}. Nothing was answered; give it a larger budget or more noise, or go on without it"
    )


@lru_cache(maxsize=4096)
def _cap(event: Event, budget: Budget, others: frozenset[tuple[Event, int]]) -> int:
    return accounting.affordable(event, budget.epsilon, budget.delta, spent=dict(others))


class MemoryLedger:
    """The ledgers of all clients (and runs) of a simulation, as arrays of counts.

    Parameters
    ----------
    budget
        What each client of each run may give away.
    shape
        (runs, clients) or (clients,). Masks and results have this shape, their last axis cut to `clients` where given.
    """

    def __init__(self, budget: Budget, shape: tuple[int, ...]) -> None:
        check.require(len(shape) in (1, 2), "MemoryLedger", "shape must be (runs, clients) or (clients,)", shape)
        check.whole("MemoryLedger", **{f"shape[{axis}]": length for axis, length in enumerate(shape)})
        self.budget = budget
        self.shape = tuple(int(length) for length in shape)
        self._everyone = np.arange(self.shape[-1])
        self._events: list[Event] = []
        self._counts = np.zeros((0, *self.shape), np.int64)  # first axis: kind of event
        self._caps = self._counts.copy()

    def charge(
        self,
        event: Event,
        clients: NDArray[np.integer] | None = None,
        active: NDArray[np.bool_] | None = None,
        round: int = 0,
        question: int = 0,
    ) -> None:
        """Count one answer of each of `clients` (None: all) in the runs where `active`; on refusal, of none of them.

        `round` and `question` name an answer in a ledger on disk; here only numbers are kept.
        """
        row, who = self._row(event), self._who(clients)
        left = self._left(row, who)
        asked = self._mask(active, left.shape)
        beyond = asked & (left <= 0)
        if beyond.any():
            place = np.argwhere(beyond)[0]
            client, run = int(np.arange(self.shape[-1])[who][place[-1]]), int(place[0])
            name = f"client {client}" + (f" of run {run}" if len(self.shape) == 2 else "")
            raise refusal(name, event, self.budget, self.spent(client, run))
        self._counts[row][..., who] += asked
        if len(self._events) > 1:  # an answer of one kind leaves less for the other kinds; its own cap is a total
            self._caps[:row, ..., who] = _UNKNOWN
            self._caps[row + 1 :, ..., who] = _UNKNOWN

    def afford(
        self, event: Event, answers: ArrayLike = 1, clients: NDArray[np.integer] | None = None, round: int | None = None
    ) -> NDArray[np.bool_]:
        """Who can still give this many more answers of this kind."""
        return self._left(self._row(event), self._who(clients)) >= np.asarray(answers)

    def kept(self, round: int, question: int, clients: object, active: object) -> None:
        """Answers are kept where ledgers are files (`owners.OwnerLedgers`)."""

    def keep(self, round: int, question: int, clients: object, active: object, answer: object) -> None: ...

    def finished(self) -> None:
        """Nothing to do: memory keeps no answers."""

    def close(self) -> None:
        """Nothing to do: memory has no files."""

    def spent(self, client: int, run: int = 0) -> dict[Event, int]:
        """What one client has answered (in one run)."""
        return self._as_spent(self._counts[:, client] if len(self.shape) == 1 else self._counts[:, run, client])

    spent_here = spent  # what a simulation remembers is this run

    def histories(self) -> tuple[list[dict[Event, int]], NDArray[np.intp]]:
        """The distinct histories of all clients (in all runs), and whose is which: (runs, clients)."""
        states, which = self._distinct(self._counts)
        return [self._as_spent(state) for state in states], which.reshape(-1, self.shape[-1])

    def epsilons(self, roughly: bool = False) -> NDArray[np.float64]:
        """The epsilon spent so far, of every client (in every run).

        `roughly`: still an upper bound, but where batches are sampled an accountant takes its time, so counts are
        rounded up (to a quarter of a power of two) and few of them are ever looked at. Nobody is beyond the budget.
        """
        counts = self._counts
        if roughly and any(event.sampling != "full" for event in self._events):
            grain = 2 ** np.maximum(np.floor(np.log2(np.maximum(counts, 1))).astype(np.int64) - 2, 0)
            counts = -(-counts // grain) * grain
        states, which = self._distinct(counts)
        values = [accounting.epsilon(self._as_spent(state), self.budget.delta) for state in states]
        if roughly:
            values = np.minimum(values, self.budget.epsilon)
        return np.array(values, np.float64)[which].reshape(self.shape)

    def state(self) -> dict[str, NDArray]:
        """Plain named arrays for a checkpoint: "counts" (kinds of event, *shape) and "events", a JSON text per kind."""
        return {"counts": self._counts.copy(), "events": np.array([_text(event) for event in self._events], np.str_)}

    def restore(self, state: Mapping[str, NDArray]) -> None:
        """Go on from what `state` gave; what was counted here since is forgotten."""
        events = [unpack_event(json.loads(str(text))) for text in state["events"]]
        counts = np.asarray(state["counts"])
        fits = counts.shape == (len(events), *self.shape) and counts.dtype.kind in "iu" and bool((counts >= 0).all())
        check.require(
            fits,
            "MemoryLedger",
            f"a state with {len(events)} kinds of event must hold counts >= 0 of shape {(len(events), *self.shape)}",
            (counts.dtype.name, counts.shape),
        )
        self._events = events
        self._counts = counts.astype(np.int64)
        self._caps = np.full_like(self._counts, _UNKNOWN)

    def _row(self, event: Event) -> int:
        """The event's place on the first axis; a new kind gets a new one."""
        if event not in self._events:
            self._events.append(event)
            one = np.zeros((1, *self.shape), np.int64)
            self._counts = np.concatenate([self._counts, one])
            self._caps = np.concatenate([self._caps, one + _UNKNOWN])
        return self._events.index(event)

    def _who(self, clients: NDArray[np.integer] | None) -> slice | NDArray[np.integer]:
        if clients is None:
            return slice(None)
        n, clients = self.shape[-1], np.asarray(clients)
        whole = clients.ndim == 1 and (clients.dtype.kind in "iu" or clients.size == 0)
        if whole and len(clients) == n and (clients == self._everyone).all():
            return slice(None)  # the common case, and the cheapest
        inside = whole and bool(((clients >= 0) & (clients < n)).all())
        check.require(inside, "MemoryLedger", f"clients must be whole numbers in 0..{n - 1}", clients)
        clients = clients.astype(np.intp)
        once = clients.size == 0 or np.bincount(clients).max() == 1  # else an answer would go uncounted
        check.require(once, "MemoryLedger", "a client may be named only once in one charge", clients)
        return clients

    def _left(self, row: int, who: slice | NDArray[np.integer]) -> NDArray[np.int64]:
        """How many more of this kind the clients can afford."""
        caps = self._caps[row][..., who]
        unknown = caps == _UNKNOWN
        if unknown.any():
            others = self._counts[..., who]
            others = np.where(np.arange(len(others)) == row, 0, others.T).T  # the cap counts its own kind from zero
            # The accountant is asked once for each distinct history, however many clients share it.
            states, which = self._distinct(others)
            values = [cap(self._events[row], self.budget, self._as_spent(state)) for state in states]
            caps = np.array(values, np.int64)[which].reshape(caps.shape)
            self._caps[row][..., who] = caps
        return caps - self._counts[row][..., who]

    def _distinct(self, counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """The distinct histories among these counts, one a row, and which of them each client (of each run) has."""
        flat = counts.reshape(len(counts), int(np.prod(counts.shape[1:])))
        first, which = np.zeros(1, np.intp), np.zeros(flat.shape[1], np.intp)
        if (flat == flat[:, :1]).all():
            return flat[:, first].T, which
        for row in flat:  # kind by kind, numbered afresh each time: far faster than np.unique over an axis
            _, first, which = np.unique(which * (row.max() + 1) + row, return_index=True, return_inverse=True)
        return flat[:, first].T, which

    def _as_spent(self, state: NDArray[np.int64]) -> dict[Event, int]:
        return {event: int(count) for event, count in zip(self._events, state, strict=True) if count}

    def _mask(self, active: NDArray[np.bool_] | None, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        if active is None:
            return np.ones(shape, bool)
        active = np.asarray(active)
        fits = active.shape == shape and active.dtype == bool
        check.require(fits, "MemoryLedger", f"active must be a mask of shape {shape}", (active.dtype, active.shape))
        return active
