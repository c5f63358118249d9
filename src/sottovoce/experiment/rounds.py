"""What clients in this process do in a round, and what is kept of them between rounds."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sottovoce.core import check, codec
from sottovoce.core.arrays import every, everyone, of_clients, unwritable
from sottovoce.core.contract import Algorithm, ColumnOracle, Oracle, Site
from sottovoce.core.random.streams import Draw, Streams
from sottovoce.core.round import Exchange, State
from sottovoce.experiment import sums
from sottovoce.experiment.held_out import Split
from sottovoce.experiment.task import Task
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.ledger.owner_ledgers import OwnerLedgers
from sottovoce.privacy.doors.releases import Sealed, SealedZeros, Visit
from sottovoce.privacy.noise_key import stable_text
from sottovoce.problems.federation import FederatedData

Ledgers = MemoryLedger | OwnerLedgers


@dataclass(kw_only=True)
class ClientRounds:
    """Clients behind their door, round by round.

    Parameters
    ----------
    task
        What is asked for.
    federation
        The data of these clients.
    exact, door
        Exact answers about the data, and the only way to them.
    streams
        Random numbers of the clients, noise apart.
    ledger
        What their answers are charged to; None where nothing is counted.
    split
        What decides which records are held out; None where none are.
    """

    task: Task
    federation: FederatedData
    exact: Any  # `Rows`, or `Columns`
    door: Any  # the `Door` that keeps the promise of the task
    streams: Streams
    ledger: Ledgers | None
    split: Split | None = None

    _zeros: Sealed | None = None  # those that the last round had

    def __post_init__(self) -> None:
        self.n, self.dim = self.federation.n, self.exact.dim
        self._everyone = everyone(self.n)
        self._states: State = None
        self._algorithm = self.task.algorithm
        self._k = 0  # the last round

    def start(self, algorithm: Algorithm) -> None:
        """Initialise the clients' states. Their oracles are closed: a start that reads data would be a leak."""
        self._algorithm, self._states = algorithm, self._first_states(algorithm, self._everyone)
        codec.to_arrays(self._states)

    def _first_states(self, algorithm: Algorithm, local: np.ndarray) -> State:
        return algorithm.init_client(self.site(local, np.ones(self.streams.shape(len(local)), dtype=bool), k=0))

    def site(self, local: np.ndarray, active: np.ndarray, k: int) -> Site:
        """What these clients have in round k, before they are told anything; in round 0 their oracles are closed."""
        return self._site(local, k, *self.door.open(local, active, k, [self._sealed_zeros(len(local))]))

    def exchange(self, algorithm: Algorithm, down: State, active: np.ndarray, k: int) -> Exchange | None:
        self._k = k
        sent = self.take_part(algorithm, down, active, k)
        return sent if sent is None or not self.door.summed else sums.only_the_sum(self, down, k, sent)

    def take_part(self, algorithm: Algorithm, down: State, active: np.ndarray, k: int) -> Exchange | None:
        """What each client sends in round k; None if nobody can afford it."""
        able = self.door.able(self._everyone, k)
        if not every(able):
            if not able.any():
                return None
            active = active & able
        if every(active):
            visit = self.visit(algorithm, self._states, down, self._everyone, active, k)
            self._states, up = self.door.take_part(visit)
            return Exchange(up, active)
        # With several runs at once a client works if any run asks it; runs that did not ask keep their old state.
        asked = np.flatnonzero(active if active.ndim == 1 else active.any(axis=0))
        if len(asked) == 0:
            return Exchange(None, active)
        whole = len(asked) == self.n
        asked, takes = (self._everyone, active) if whole else (asked, active[..., asked])
        before, broadcast = (x if whole else codec.rows(x, asked) for x in (self._states, down))
        after, up = self.door.take_part(self.visit(algorithm, before, broadcast, asked, takes, k))
        self._states = codec.merge(self._states, after, asked, takes[..., None])
        return Exchange(codec.merge(codec.empty_rows(up, self.n), up, asked, takes[..., None]), active)

    @cached_property
    def digest(self) -> str:
        """Changes with anything that answers depend on: task, noise, engine, rows, and which of them are held out."""
        task, bound = replace(self.task, engine="auto"), self.federation.row_bound
        parts = (task, getattr(self.door, "events", ()), getattr(self.exact, "arithmetic", ""), bound)
        split = "" if self.split is None else self.split.digest
        return hashlib.sha256(stable_text(parts).encode() + self.door.key.rows.tobytes() + split.encode()).hexdigest()

    def close(self) -> None:
        """Let go of ledger files."""
        if self.ledger is not None:
            self.ledger.close()

    def snapshot(self) -> dict[str, np.ndarray]:
        states = {f"client.{name}": array for name, array in codec.to_arrays(self._states).items()}
        states |= self._unchanging
        if self.ledger is not None:
            states |= {f"ledger.{name}": array for name, array in self.ledger.state().items()}
        return states

    @cached_property
    def _unchanging(self) -> dict[str, np.ndarray]:
        """What is in every snapshot: the same arrays, which nobody can change."""
        drawn = (
            {} if self.split is None or not self.split.drawn else {"split": unwritable(np.asarray(self.split.drawn))}
        )
        return {"task": unwritable(np.asarray(self.digest)), **drawn}

    def restore(self, algorithm: Algorithm, arrays: dict[str, np.ndarray]) -> None:
        """Take up a snapshot of this same task; `algorithm` says what a client's state looks like."""
        same = str(arrays.get("task", self.digest)) == self.digest
        rule = "a checkpoint belongs to another task, engine, rows or held-out records: answers would be given twice"
        check.require(same, "train", rule, hint="Go on with what it began with, or start anew")
        self.start(algorithm)
        self._states = codec.from_arrays(type(self._states), codec.under("client.", arrays), like=self._states)
        if self.ledger is not None:
            self.ledger.restore(codec.under("ledger.", arrays))

    def visit(
        self, algorithm: Algorithm, before: State, broadcast: State, local: np.ndarray, active: np.ndarray, k: int
    ) -> Visit:
        """One round of some clients. They must not change the broadcast, so it is sealed."""
        zeros, arrays = self._sealed_zeros(len(local)), codec.to_arrays(broadcast)
        sealed = {name: Sealed(array) for name, array in arrays.items()}
        broadcast = type(broadcast)(**{name: part.given for name, part in sealed.items()})
        oracle, releases = self.door.open(local, active, k, [zeros, *sealed.values()])

        def alone(place: int) -> Visit:
            one = np.array([place])
            state, message = codec.rows(before, one), codec.rows(broadcast, one)
            return self.visit(algorithm, state, message, local[one], active[..., one], k)

        return Visit(
            before=before,
            clients=len(local),
            start=lambda: self._first_states(algorithm, local),
            oracle=oracle,
            releases=releases,
            zeros=zeros.given,
            play=lambda states, f, release: algorithm.client(states, broadcast, self._site(local, k, f, release)),
            alone=alone,
        )

    def _site(
        self, local: np.ndarray, k: int, oracle: Oracle | ColumnOracle, release: Callable[..., np.ndarray]
    ) -> Site:
        who = unwritable(of_clients(self.door.clients, local))  # a copy: the door's own says who is charged
        return Site(
            f=oracle,
            penalty=self.task.objective.penalty,
            # A plain function: an attribute of the site must not lead back to the rows.
            release=lambda u, noise=None, centre=None: release(u, noise, centre),
            rng=Draw(self.streams, who, k),
            k=k,
            who=who,
            claim=self.task.privacy.claim,
            zeros=self._sealed_zeros(len(local)).given,
        )

    def _sealed_zeros(self, clients: int) -> Sealed:
        shape = (*self.streams.shape(clients), self.dim)
        if self._zeros is None or self._zeros.given.shape != shape:
            self._zeros = SealedZeros(shape)
        return self._zeros
