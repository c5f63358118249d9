"""What a client checks before it answers: one function for each rule. Each raises `Refused`, and nothing is sent.

A refusal follows from the server's messages alone, never from rows or noise.
"""

from collections.abc import Mapping

from sottovoce.core import check
from sottovoce.deploy import wire
from sottovoce.deploy.aggregation.messages import Announcement, about_set, is_signed
from sottovoce.deploy.aggregation.plan import Plan
from sottovoce.deploy.aggregation.state import State
from sottovoce.deploy.limits import Refused


def must_be_at(state: State | None, stage: int) -> State:
    """Each step of a set-up is taken once, in its order. A state that was lost is not mended."""
    if state is None or state.stage != stage:
        raise Refused(wire.SET_UP, "sums: it has agreed on no such set-up; set up again")
    return state


def must_be_its_own(announcement: bytes, shown: bytes) -> None:
    """Its own announcement must be among those of all, so that its nonce is in `run`."""
    if announcement != shown:
        raise Refused(wire.SET_UP, "sums: its own announcement is not among those of all; set up again")


def must_be_announced(plan: Plan, j: int, content: bytes) -> Announcement:
    """What client j announced for this plan, under its own number, signed by the key that the owner's file pins."""
    try:
        return Announcement.read(plan, j, content)
    except check.InvalidInput as error:
        raise Refused(wire.SET_UP, f"sums: {error}") from None


def must_be_another_attempt(state: State | None, attempt: bytes) -> None:
    """A question of S1 that comes late must not end the set-up that it began."""
    if state is not None and state.attempt == attempt:
        raise Refused(wire.LATE, "sums: this set-up has gone on since")


def must_be_this_run(state: State, run: bytes) -> None:
    """A question of another run, or with another roster, is refused."""
    if state.run != run:
        raise Refused(wire.SET_UP, "sums: this is not the run that it set up; set up again")


def must_be_a_new_round(plan: Plan, state: State, k: int) -> None:
    """One upload per round: round numbers only grow, whatever happens. A client that was away leaves rounds out."""
    if not state.k < k:
        raise Refused(wire.LATE, f"sums: round {k} is over for this client, which uploaded in round {state.k}")
    if not plan.first <= k <= plan.last:
        raise Refused(wire.SET_UP, f"sums: it was set up for rounds {plan.first} to {plan.last}; set up again")


def must_be_the_same_question(state: State, question: bytes) -> None:
    """What was uploaded is sent again for the same question of the same round only."""
    if state.question != question:
        raise Refused(wire.ANSWERED, f"sums: round {state.k} was answered before, about something else")
    if state.given:
        raise Refused(wire.LATE, f"sums: it gave its shares for round {state.k}, and keeps its upload no more")


def must_be_open(state: State, k: int) -> None:
    """Only the round of its last upload can be opened."""
    if state.k != k or k == 0:
        raise Refused(wire.LATE, f"sums: round {k} is not open at this client")


def is_given(state: State) -> bool:
    """Shares are given once in a round; afterwards the same bytes are sent again."""
    return state.given


def must_be_large(plan: Plan, members: frozenset[int]) -> None:
    """A sum of fewer than `least` clients is not opened."""
    if len(members) < plan.least:
        raise Refused(wire.LIMITS, f"sums: {len(members)} clients are named, and at least {plan.least} must be")


def must_be_the_set_it_signed(state: State, members: frozenset[int]) -> None:
    """One set in a round; also the whole roster is refused to a server that had a smaller set signed."""
    if state.signed is not None and state.signed != members:
        raise Refused(wire.ANSWERED, f"sums: it stands for another set of clients in round {state.k}")


def must_have_a_quorum(plan: Plan, state: State, members: frozenset[int], signatures: Mapping[int, bytes]) -> None:
    """Q clients signed this set in this round of this run. All of the signatures must hold."""
    content = about_set(plan, state.run, state.k, members)
    if len(signatures) < plan.quorum:
        raise Refused(wire.BAD_ASK, f"sums: {len(signatures)} signatures are there, and {plan.quorum} must be")
    if not all(is_signed(plan.roster[i], signature, content) for i, signature in signatures.items()):
        raise Refused(wire.BAD_ASK, "sums: a signature is not of this set, round and run")
