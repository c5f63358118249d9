"""Doors for an observer who sees only sums: what leaves a client is whole numbers with a share of the noise.

Observer: the server and a set C of at most t = `colluders` clients, fixed before the run, that share all they know with
it and may break the rules. In round k an honest client i gets points w_i from the server (they may differ from client
to client), computes whole numbers x_i = q_i(w_i), draws noise ξ_i, and gives u_i = x_i + ξ_i mod 2^64 to a protocol.
The observer names one set U of at least `least` clients, and learns the sum of the u_i of the honest ones in it.

**Theorem 1.** Let j be honest, and suppose that for every sum that is opened

* (noise) all ξ_i are independent discrete Gaussian vectors of scale σ_1, never used twice, and independent of data,
  points and coins;
* (points) x_i is a function of client i's rows, of points and settings that the server sent, and of coins that are
  independent of all noise: *no noise, of any client or round, enters a client's state*;
* (reach) unit "record": one record of j moves x_j by at most Δ (in L2, in grid steps) at every point, and nothing that
  came from rows is carried from round to round. Unit "client": any two vectors that j could send are at most Δ apart;
  then state that came from rows is allowed, and state that came from noise is not;
* (sets) at least h = least − colluders honest clients are in U, and U depends on what was seen before, not on the noise
  of this round.

Then the run gives away of that record (or client) at most what as many adaptively composed answers x + Z do,
|x − x'| <= Δ, where each coordinate of Z is a sum of h discrete Gaussians of scale σ_1.

*Proof.* Fix the rows of the others and all coins: they have the same law under both neighbours, so the worst value
bounds the mixture. Fix what was seen before round k. Then points are constants, so are the x_i of the others, and U has
the same law under both neighbours. If j is not in U, neither is the difference. If it is, the sum is a constant, x_j
and the noise of at least h honest clients; noise beyond h of them and the reduction mod 2^64 are post-processing; a
mixture over j's hidden state (unit "client") is dominated by its worst pair. Adaptive composition. ∎

Theorem 2 (`privacy/accounting/discrete.py`) accounts for such answers. A round in which j is left out costs nothing,
but stays charged: j cannot know. Masks that hide u_i from everybody make this a claim about observers that break no
cryptography; the guarantee says which.

How the code makes the conditions true
--------------------------------------
1. *Points.* Questions are put at arrays of the broadcast as they came (or zeros): another array is refused.
2. *No noise in a state.* An algorithm gets zeros in place of an answer (unit "record") or of what it released (unit
   "client"). The whole numbers are kept in the door's `Releases` and take the place of the zeros in the upload after
   `client()` has returned. So under unit "record" neither data nor noise can enter its state, and under unit "client"
   no noise can.
3. *No map after the noise.* One field of an upload is one answer as it came. What the numbers stand for, the server
   computes from the opened sum (`Reading`), a weight common to all. Weights of single clients are multiplied into each
   record before it is put on the grid (`RecordSums.shares`), which is common to all.
4. *Whole numbers.* Bounded terms are truncated toward zero each, and then added. Where only a difference is bounded
   (the end of proximal steps; exact sums of moments), rounding adds up to two steps in each coordinate
   (`discrete_noise.difference_steps`, `grid_sums.moment_sums`).
5. *Full noise.* Each upload has noise of scale σ_1 (`GridEvent.scale`), whatever the rows; σ_1 > 8 (`GridEvent`). A
   client that cannot pay stays away.
6. *No wrap-around.* `_must_fit` refuses numbers and noise with which a sum over all clients could leave 63 bits. OpenDP
   cuts off at the ends of 64 bits, which is no function of the sum; within this bound it never does.

Descent with noise in its steps, arg-mins and counts of held-out records are refused: for sums of these nothing is
proved here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from sottovoce.core import check, codec, moments
from sottovoce.core.contract import Arrays, Noise, Oracle, Part, ProxSteps
from sottovoce.privacy import discrete_noise, local_steps
from sottovoce.privacy.doors.base import Numbers, untouched
from sottovoce.privacy.doors.client import NO_CENTRE, ClientDoor, public_answers
from sottovoce.privacy.doors.proven import ProvenDoor
from sottovoce.privacy.doors.record import RecordDoor
from sottovoce.privacy.doors.releases import Question, Rehearsal, Releases, Sealed, Visit, places_of
from sottovoce.privacy.events import GridEvent
from sottovoce.privacy.modes import Proven

SUMMED = ("gradient", "moments", "prox-steps")  # questions whose answers may be summed, for unit "record"
FARTHEST = 40  # deviations of noise that are left room for; more have a probability of less than 2^-1000
ROOM = 1 + 2.0**-16  # for rounding, beside what one record moves the end of proximal steps by


@dataclass(frozen=True)
class Reading:
    """What an opened sum of one field of an upload stands for. All of it is public.

    Parameters
    ----------
    width
        How many whole numbers each client sends.
    worth
        What one of them is worth: one number, or one for each coordinate.
    centre
        What the numbers are beside: zero, or a field of the broadcast, (runs?, clients or 1, width).
    """

    width: int
    worth: np.ndarray | float
    centre: np.ndarray | float = 0.0

    def mean(self, total: np.ndarray, answered: np.ndarray) -> np.ndarray:
        """The mean of what the clients stand for, (runs?, 1, width).

        `total`: the sum mod 2^64 of those who `answered` (runs?, clients), (runs?, 1, width).
        """
        counts = np.maximum(answered.sum(axis=-1), 1)[..., None, None]
        moved = total.view(np.int64) * self.worth / counts
        centre = np.asarray(self.centre)
        if centre.ndim > 1 and centre.shape[-2] > 1:
            centre = np.where(answered[..., None], centre, 0.0).sum(axis=-2, keepdims=True) / counts
        return centre + moved


def end_to_end(upload: Arrays) -> np.ndarray:
    """The whole numbers (uint64) of all fields of an upload, one after the other: (runs?, clients, all widths)."""
    arrays = [getattr(upload, each.name) for each in fields(upload)]
    return np.concatenate([array for array in arrays if array.shape[-1]], axis=-1, dtype=np.uint64)


def added(terms: np.ndarray, answered: np.ndarray) -> np.ndarray:
    """The sum mod 2^64 over those who answered (runs?, clients): what a protocol between machines opens."""
    return np.where(answered[..., None], terms, np.uint64(0)).sum(axis=-2, keepdims=True, dtype=np.uint64)


def read(
    kind: type[codec.Message], readings: Mapping[str, Reading], total: np.ndarray, answered: np.ndarray
) -> codec.Message:
    """An upload of one row, which holds the means that a sum of all fields (runs?, 1, all widths) stands for."""
    whole = sum(reading.width for reading in readings.values())
    fits = total.dtype == np.uint64 and total.shape[-1] == whole
    check.require(fits, "sums", f"must be {whole} whole numbers of 64 bits", (str(total.dtype), total.shape))
    means, start = {}, 0
    for name, reading in readings.items():
        part, start = total[..., start : start + reading.width], start + reading.width
        means[name] = reading.mean(np.ascontiguousarray(part), answered)
    return kind(**means)


@dataclass(kw_only=True)
class SumsDoor(ProvenDoor):
    """What both doors for sums share."""

    privacy: Proven  # type: ignore[assignment]
    summed = True

    def readings(self, visit: Visit) -> dict[str, Reading]:
        """How sums of a round are read: the round is played on public answers, so anybody without data can do it."""
        rehearsal = Rehearsal()
        _, up = visit.play(visit.start(), self.rehearsing(visit), rehearsal)
        readings: dict[str, Reading] = {}
        for name, place in places_of(up, rehearsal.given).items():
            released = None if place is None else rehearsal.released[place]
            readings[name] = Reading(0, 0.0) if released is None else self.reading(*released)
        return readings

    def rehearsing(self, visit: Visit) -> Oracle:
        """An oracle that answers without a look at data."""
        raise NotImplementedError

    def reading(self, u: np.ndarray, centre: np.ndarray | float | None) -> Reading:
        """How a sum of what was released as `u` around `centre` is read."""
        raise NotImplementedError

    def leaving(self, noisy: np.ndarray, exact: np.ndarray, step: Numbers, scale: float, kind: str) -> np.ndarray:
        """The whole numbers mod 2^64. What they stand for, the server computes from their sum."""
        if self.intercept is not untouched:  # audits and replay see, and may replace, what the numbers stand for
            noisy = np.rint(self.intercept(noisy * step, exact * step, scale * step, kind) / step)
        return noisy.astype(np.int64).view(np.uint64)

    def must_fit(self, part: Part, largest: float) -> None:
        """Refuse numbers of up to `largest` grid steps in all of a client with which a sum could leave 63 bits."""
        event, clients = self.event_of(part), self.privacy.roster or self.privacy.honest
        for_honest = isinstance(event, GridEvent) and event.contributors == self.privacy.honest
        check.require(for_honest, "Proven", "noise of sums must be on a grid, and made for the honest clients", event)
        assert isinstance(event, GridEvent)
        fits = clients * (largest + FARTHEST * event.scale) < 2.0**63
        rule = f"sums over {clients} clients must stay below 2^63 grid steps"
        hint = "Fewer records or clients, or a larger epsilon"
        check.require(fits, "Proven", rule, f"{clients * (largest + FARTHEST * event.scale):.3g}", hint)


@dataclass(frozen=True, eq=False)
class _Asked:
    """A question of this round: the zeros that were given, what its answer would be, and how a sum of it is read."""

    zeros: Sealed
    answer: Callable[[], np.ndarray]
    reading: Reading


@dataclass(kw_only=True)
class RecordSums(SumsDoor, RecordDoor):
    """Unit "record": an algorithm gets zeros for an answer, and whole numbers take their place in its upload."""

    _asked: list[_Asked] = field(default_factory=list[_Asked], init=False)
    _released: list[_Asked] = field(default_factory=list[_Asked], init=False)
    _public: Sequence[Sealed] = field(default=(), init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for part in self.asks.parts:
            rule = f"nothing is proved about sums of answers of kind {part.kind!r}"
            hint = "Ask for gradients, moments, or the ends of proximal steps from a public start"
            check.require(part.kind in SUMMED, "Proven", rule, hint=hint, error=check.NoGuarantee)
            most = int(self.exact.sizes.max()) * float(discrete_noise.GRID_BOUND)
            self.must_fit(part, discrete_noise.LARGEST_INTEGER if part.kind == "prox-steps" else most)

    def open(
        self, local: np.ndarray, active: np.ndarray, k: int, public: Sequence[Sealed] = ()
    ) -> tuple[Oracle, Releases]:
        if k > 0:  # before the first round nothing is asked, and starting states may be made at any time
            self._asked, self._released, self._public = [], [], public
        return super().open(local, active, k, public)

    def gradient(self, w: np.ndarray, question: Question) -> np.ndarray:
        self._as_it_came(w)
        reading = Reading(self.exact.dim, float(self.grid_step(question.part)[0, 0]))
        return self._zeros_for(question, reading, lambda: RecordDoor.gradient(self, w, question))

    def moments(self, kappa: float, slope_bound: float, question: Question) -> np.ndarray:
        part, width = question.part, self.moments_width
        self.must_be_declared(kappa, slope_bound, part)
        worth = moments.rescaled(np.full(width, self.grid_step(part)[0, 0]), self.exact.dim, self.row_cap(part))
        return self._zeros_for(question, Reading(width, worth), lambda: self.short_moments(question))

    def prox_steps(self, start: np.ndarray, spec: ProxSteps, question: Question) -> np.ndarray:
        for public in (start, spec.push, spec.centre, *(() if spec.at is None else (spec.at,))):
            self._as_it_came(public)
        worth = self._farthest(spec, question.part) / discrete_noise.GRID_STEPS
        reading = Reading(self.exact.dim, worth, spec.centre)
        return self._zeros_for(question, reading, lambda: self._common_end(start, spec, question))

    def release(self, u: np.ndarray, noise: Noise | None, centre: np.ndarray | None, question: Question) -> np.ndarray:
        """The whole numbers of the answer whose zeros `u` are."""
        asked = self._asked_for(u)
        check.require(asked not in self._released, "release", "this answer was released before; ask for another")
        self._released.append(asked)
        return asked.answer()

    def rehearsing(self, visit: Visit) -> Oracle:
        return visit.oracle  # it gives zeros

    def reading(self, u: np.ndarray, centre: np.ndarray | float | None) -> Reading:
        return self._asked_for(u).reading

    def shares(self, batch: float) -> np.ndarray:
        """Each client's weight, relative to the heaviest: so records of all clients are on one grid."""
        weights = self.exact.weights / self.rates(batch)
        return weights / weights.max()

    def noise_std(self, local: np.ndarray, part: Part) -> np.ndarray:
        return super().noise_std(local, part) / np.sqrt(self.privacy.honest)  # each adds a share

    def _zeros_for(self, question: Question, reading: Reading, answer: Callable[[], np.ndarray]) -> np.ndarray:
        zeros = Sealed(np.zeros((*self.shape(len(question.local)), reading.width)))
        self._asked.append(_Asked(zeros, answer, reading))
        return zeros.given

    def _asked_for(self, u: np.ndarray) -> _Asked:
        asked = next((asked for asked in self._asked if asked.zeros.given is u), None)
        rule = "where only sums are seen, an upload is an answer of the oracle as it came"
        return check.given(asked, "release", rule, "Nothing can be computed from it before it is summed")

    def _as_it_came(self, point: Numbers) -> None:
        """Refuse a point that is no array of the broadcast; a plain number is a setting, and the same for all."""
        is_public = isinstance(point, float | int) or any(point is public.given for public in self._public)
        rule = "where only sums are seen, questions are put at arrays of the broadcast as they came, or at site.zeros"
        check.require(is_public, "Oracle", rule, hint="This one was computed by the client")

    def grid_step(self, part: Part) -> np.ndarray:
        """What one grid step is worth, at all clients: that of the one whose records weigh the most (`shares`)."""
        steps = super().grid_step(part)
        return np.full_like(steps, steps.max())

    def _farthest(self, spec: ProxSteps, part: Part) -> float:
        """What one record moves the end of proximal steps by, of any client: the length of GRID_STEPS grid steps."""
        one = self._reach * self.privacy.clip * (self.exact.weights / self.rates(part.batch)).max(keepdims=True)
        moved = local_steps.prox_steps_sensitivity(spec, one, one)
        alike = moved.size == 1
        check.require(alike, "Proven", "sums need the same steps at all clients", hint="Give each step one number")
        return max(float(moved.ravel()[0]) * ROOM, discrete_noise.LEAST_CLIP)

    def _common_end(self, start: np.ndarray, spec: ProxSteps, question: Question) -> np.ndarray:
        """The end of proximal steps on the common grid."""
        farthest, change = self._farthest(spec, question.part), self.prox_change(start, spec, question)
        rule = (
            "sums of proximal steps need steps that absorb differences (convex loss, row_bound, keep >= smoothness/2)"
        )
        check.require(bool((change <= farthest).all()), "Proven", rule, float(np.max(change) / farthest))
        return self.noisy_end(np.full((1, 1), farthest), start, spec, question)


@dataclass(kw_only=True)
class ClientSums(SumsDoor, ClientDoor):
    """Unit "client": exact answers stay with the client, and what it releases takes its place in the upload unseen."""

    def __post_init__(self) -> None:
        self.must_fit(self.asks.parts[0], float(discrete_noise.GRID_BOUND))

    def beside(self, centre: np.ndarray, moved: np.ndarray) -> np.ndarray:
        return moved  # the centre is public: the server adds it to the sum

    def rehearsing(self, visit: Visit) -> Oracle:
        return public_answers(visit.oracle, visit.zeros, self.moments_width)

    def reading(self, u: np.ndarray, centre: np.ndarray | float | None) -> Reading:
        centre = check.given(centre, "Proven(unit='client')", NO_CENTRE, error=check.NoGuarantee)
        return Reading(u.shape[-1], self.privacy.clip / discrete_noise.GRID_STEPS, centre)
