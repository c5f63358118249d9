"""Rounds of which only a sum is seen: one client's term of it, and what an opened sum stands for.

A simulation and a deployment share all of this. In a simulation the terms of all clients are added here, mod 2^64
(`only_the_sum`). Between machines a node hands `own_term` to a protocol, which hides it, and a server hands the opened
sum to `opened`. With seeded noise both add the same whole numbers, so the models are the same to the last bit.
"""

from typing import TYPE_CHECKING, cast

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import everyone
from sottovoce.core.round import Exchange, State
from sottovoce.privacy.doors.sums import Reading, added, end_to_end, read
from sottovoce.privacy.modes import Proven

if TYPE_CHECKING:
    from sottovoce.experiment.rounds import ClientRounds


def own_term(clients: "ClientRounds", down: State, k: int) -> np.ndarray:
    """The term of this machine's one client in the sum of round k: whole numbers mod 2^64, uint64, one-dimensional.

    It is charged, computed and noised as any answer, once; `clients` keeps the new state. It carries a share of the
    noise only: whoever sees it sees more than the guarantee allows, so it must leave under masks alone, once, and never
    under other masks or in another round. `down` is the broadcast of the round. Raises `BudgetSpent` if the budget does
    not hold the round: the client then stays away, and must not send zeros.
    """
    task = clients.task
    check.require(clients.n == 1, "sums", "a term is that of one client", clients.n)
    check.require(1 <= k <= task.rounds, "sums", f"rounds are numbered from 1 to {task.rounds}", k)
    batch, poisson = task.declared.batch, getattr(task.privacy, "relation", "") == "add-remove"
    alike = task.objective.scale != "mean" and (batch == 0 or (batch < 1 and poisson))
    rule = "between machines all records must weigh the same: scale 'records', and no batches of a fixed size"
    check.require(alike or task.privacy.promise == "client", "sums", rule, (task.objective.scale, batch))
    sent = clients.take_part(task.algorithm, down, np.ones(1, dtype=bool), k)
    if sent is None:
        raise check.BudgetSpent("sums: the privacy budget does not hold this round; nothing was computed")
    return end_to_end(sent.up)[0]


def length(clients: "ClientRounds", down: State, k: int) -> int:
    """How many whole numbers a term of round k has. No data are looked at, so a stand-in without data knows it too."""
    return sum(reading.width for reading in _readings(clients, down, k).values())


def opened(clients: "ClientRounds", down: State, k: int, total: np.ndarray, answered: np.ndarray) -> Exchange:
    """What a server makes of the opened sum of round k: the upload that the algorithm's server half gets.

    Parameters
    ----------
    clients
        Whichever clients of the same task, such as a stand-in without data: nothing is asked of them.
    down
        The broadcast of the round.
    total
        The sum mod 2^64 of the terms (`own_term`) of all who answered: uint64, one-dimensional.
    answered
        Whose terms are in it, one truth value for each client of the roster.
    """
    least, roster = _least(clients), len(answered)
    count = int(answered.sum())
    check.require(count >= least, "sums", f"a sum must be over at least {least} of the {roster} clients", count)
    return Exchange(read(clients.task.algorithm.up, _readings(clients, down, k), total[None], answered), answered)


def only_the_sum(clients: "ClientRounds", down: State, k: int, sent: Exchange) -> Exchange:
    """The round of a simulation: the sum of what the clients sent. Of fewer than `least`, nothing is opened."""
    enough = sent.answered.sum(axis=-1, keepdims=True) >= _least(clients)
    answered = sent.answered & enough
    if sent.up is None or not answered.any():
        return Exchange(None, answered)
    total = added(end_to_end(sent.up), answered)
    return Exchange(read(clients.task.algorithm.up, _readings(clients, down, k), total, answered), answered)


def _least(clients: "ClientRounds") -> int:
    return cast(int, cast(Proven, clients.task.privacy).least)  # no other mode has sums; settled by `among`


def _readings(clients: "ClientRounds", down: State, k: int) -> dict[str, Reading]:
    """How the fields of an upload of round k are read: what is public about it."""
    who, active = everyone(clients.n), np.ones(clients.door.shape(clients.n), dtype=bool)
    return clients.door.readings(clients.visit(clients.task.algorithm, None, down, who, active, k))
