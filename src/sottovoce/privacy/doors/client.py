"""The proven door for whole clients: exact answers stay with the client, and every upload is noisy."""

from dataclasses import dataclass, field, replace

import numpy as np

from sottovoce.core import check, codec
from sottovoce.core.clipping import clip_rows
from sottovoce.core.contract import Arrays, Noise, Oracle
from sottovoce.core.random.streams import Purpose
from sottovoce.ledger.budget import LedgerError
from sottovoce.privacy.doors.proven import ProvenDoor
from sottovoce.privacy.doors.releases import Question, Rehearsal, Visit, places_of, quietly
from sottovoce.privacy.modes import Proven

NO_CENTRE = "needs a public centre: this algorithm released a value without one"


@dataclass(kw_only=True)
class ClientDoor(ProvenDoor):
    """Exact answers that stay with the client; every upload is clipped around a public centre, charged and noised.

    Given past releases, a release is a mixture over hidden states of Gaussians around points within `clip` of the
    centre; any two such points are at most 2·clip apart, and mixtures do not widen that. So whatever hidden state an
    algorithm keeps, replacing a client's whole data set moves the release by at most 2·clip.
    """

    privacy: Proven  # type: ignore[assignment]
    _ledger_error: Exception | None = field(default=None, init=False)  # what a ledger refused in this round

    def release(self, u: np.ndarray, noise: Noise | None, centre: np.ndarray | None, question: Question) -> np.ndarray:
        centre = check.given(centre, "Proven(unit='client')", NO_CENTRE, error=check.NoGuarantee)
        rule = f"this algorithm declared {self.asks.releases} a round and asked for one more"
        check.require(question.number < self.asks.releases, "release", rule)
        question = replace(question, asked=(centre,))
        try:
            moved = self.answered(
                question,
                lambda: clip_rows(u - centre, self.privacy.clip),
                lambda moved: self.noisy_in_ball(moved, self.privacy.clip, Purpose.NOISE, question),
            )
        except (check.BudgetSpent, LedgerError) as error:
            self._ledger_error = error
            raise
        return self.beside(centre, moved)  # not before the noise: see `prox_steps`

    def beside(self, centre: np.ndarray, moved: np.ndarray) -> np.ndarray:
        """What is uploaded: the public centre with a noisy movement."""
        return centre + moved

    def take_part(self, visit: Visit) -> tuple[Arrays, Arrays]:
        """One round whose outcome has one form, whatever the data: the declared releases, and finite states.

        The algorithm works with exact numbers here, and what it does with them could fail, or leave a state that fails
        in the next round: an observer would see it, for free. So the round is first played on answers that are public
        (zeros); whatever that raises, it raises for every data set, and which releases make up the upload is decided
        there. If the true round then fails, it is tried client by client, so that no client's failure shows in
        another's upload; of one that fails alone, what is still to be released is public, charged and noised like any
        other, and so is its state. A state that is not finite is replaced by the public one too.
        """
        rehearsal, self._ledger_error = Rehearsal(), None
        answers = public_answers(visit.oracle, visit.zeros, self.moments_width)
        public_after, public_up = visit.play(visit.start(), answers, rehearsal)
        places, releases, promised = places_of(public_up, rehearsal.given), visit.releases, rehearsal.released
        within = len(promised) <= self.asks.releases
        check.require(within, "release", f"at most {self.asks.releases} a round were declared", len(promised))
        releases.shapes = [np.shape(u) for u, _ in promised]
        after = None
        with quietly():
            try:
                played, _ = visit.play(visit.before, visit.oracle, releases)
                after = _finite(played, public_after) if len(releases) == len(promised) else None
            except Exception as error:
                if self._of_ledger(error):
                    raise  # a ledger raised it, not what an algorithm does with exact numbers
                after = None
            if after is None and visit.clients > 1:
                return self._one_by_one(visit)
            for u, centre in promised[len(releases) :]:
                releases(u, centre=centre)
        return public_after if after is None else after, releases.message(public_up.__class__, places)

    def _of_ledger(self, error: Exception) -> bool:
        return error is self._ledger_error

    def _one_by_one(self, visit: Visit) -> tuple[Arrays, Arrays]:
        """The round of each client by itself; what was released of it before, stays released."""
        played: list[tuple[Arrays, Arrays]] = []
        for place in range(visit.clients):
            alone = visit.alone(place)
            alone.releases.before = visit.releases.of_client(place)
            played.append(self.take_part(alone))
        states, uploads = zip(*played, strict=True)
        return codec.stacked(states), codec.stacked(uploads)


def public_answers(oracle: Oracle, zeros: np.ndarray, moments_width: int) -> Oracle:
    """The same oracle, but for its answers: they are what anybody could say."""

    def beside(point: np.ndarray, *_: object, **__: object) -> np.ndarray:
        return zeros + point

    def nothing(*_: object) -> np.ndarray:
        return np.zeros((*zeros.shape[:-1], moments_width))

    def flat(w: np.ndarray) -> np.ndarray:
        return zeros

    return replace(oracle, grad=flat, argmin=beside, prox_steps=beside, descent=beside, moments=nothing)


def _finite(states: codec.Message, instead: codec.Message) -> codec.Message:
    """The states, those of a client with a number that is not finite replaced whole."""
    arrays, others = codec.to_arrays(states), codec.to_arrays(instead)
    alike = all(array.shape == others[name].shape for name, array in arrays.items())
    check.require(alike, "client", "states must have one shape, whatever the data")
    fine = [np.isfinite(array).all(axis=-1, keepdims=True) for array in arrays.values()]
    if all(each.all() for each in fine):
        return states
    good = np.logical_and.reduce(np.broadcast_arrays(*fine))
    return type(states)(**{name: np.where(good, array, others[name]) for name, array in arrays.items()})
