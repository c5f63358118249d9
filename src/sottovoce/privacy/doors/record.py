"""The proven door for records: the only way in which answers about a client's rows leave, with proven noise."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from sottovoce.core import check, histogram, moments
from sottovoce.core.arrays import of_clients
from sottovoce.core.check import NoGuarantee
from sottovoce.core.contract import ArgMin, Descent, Part, ProxSteps
from sottovoce.core.random.streams import Purpose
from sottovoce.core.vouched import vouched
from sottovoce.privacy import discrete_noise as mechanisms
from sottovoce.privacy import local_steps as local_runs
from sottovoce.privacy import sensitivity
from sottovoce.privacy.calibration import AnswerShape, histogram_steps, moments_steps
from sottovoce.privacy.doors.base import ARGMIN_TOL, Numbers
from sottovoce.privacy.doors.grid_sums import gradient_sums, moment_sums, must_be_few
from sottovoce.privacy.doors.proven import ProvenDoor
from sottovoce.privacy.doors.releases import Question
from sottovoce.privacy.events import Event
from sottovoce.privacy.modes import Proven

PROMISE_SLACK = 1 + 2.0**-30  # the square of a row's length is checked against its promised bound to 12 digits
_COARSEST = 2.0**32  # public numbers beside what one record changes
_COARSEST_ON_GRID = mechanisms.LARGEST_INTEGER / mechanisms.GRID_STEPS  # the same: beyond, integers would be cut off
MOST_KINDS = 64  # different sampling rates that are accounted one by one
Kinds = tuple[list[Event], np.ndarray]  # the distinct events of all clients, and which is whose


def _proven(holds: bool, rule: str, hint: str = "") -> None:
    check.require(holds, "Proven", rule, hint=hint, error=NoGuarantee)


@dataclass(kw_only=True)
class RecordDoor(ProvenDoor):
    """Noisy answers; uploads are post-processing and go out as they are.

    Gradient: with everything before it fixed, the clipped sums of two neighbouring data sets differ in one term, so
    the sensitivity is 2·clip·weight (replace-one) or clip·weight (add-remove), whatever the loss and the point; over
    a batch both are divided by the public share drawn. The weight, 1/m or 1, is public. Sums are rounded, for which
    `sensitivity.sum_rounding` adds a little. (A record that is removed leaves a blank row in its place, so that the
    other rows are computed alike, to the last bit.)

    Arg-min: the minimised function is (rho + ridge)-strongly convex, and two neighbours' gradients differ by that
    same amount *everywhere*, because rows are scaled so that |slope|·|row| <= clip for a loss of bounded slope. So
    the minimisers differ by that amount / (rho + ridge), and what a solver returns within `tol` by 2·tol / (rho +
    ridge) more. The tolerance is public, and that it is reached is proved of public numbers first (`sure_tolerance`).

    Runs of local steps: see `local_runs.py`.

    Noise on a grid: each record's clipped gradient is truncated, and integers are summed. Moments are sums of products
    of whole numbers, put on the grid together (`grid_sums.moment_sums`). Of an arg-min and of the end of local steps
    only the difference between neighbours is bounded, so that is what the grid is made for:
    `discrete_noise.difference_to_grid`.
    """

    privacy: Proven  # type: ignore[assignment]
    counted = True
    # How far one record moves a gradient, by batch; and the events of all clients, see `_kinds_of`.
    _moved: dict[float, np.ndarray] = field(default_factory=dict[float, np.ndarray], init=False)
    _kinds: dict[Part, Kinds] = field(default_factory=dict[Part, Kinds], init=False)
    _last_kinds: tuple[Part, Kinds] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.poisson = any(event.sampling == "poisson" for event in self.events)
        mechanisms.check_clip(self.privacy.clip)
        for part in self.asks.parts:
            self._must_be_proven(part)

    def _must_be_proven(self, part: Part) -> None:
        """Refuse what no proof covers."""
        kind, loss, name = part.kind, self.exact.loss, type(self.exact.loss).__name__
        ours = vouched(loss) and vouched(getattr(loss, "output_loss", loss))
        rule = f"nobody vouches for the constants of {name}, which is not a loss of this library"
        _proven(ours, rule, "Use Logistic(), Huber() or another that is, or unit='client', or Published or NoPrivacy")
        drawn = kind in ("gradient", "prox-steps") or self.privacy.mechanism == "gaussian"
        _proven(drawn, f"no {self.privacy.mechanism} noise for {kind!r}", "Use mechanism='gaussian'")
        if kind == "argmin":
            rule, instead = f"the arg-min of {name} has no bounded sensitivity", "a method that asks for gradients"
            _proven(loss.convex, f"{rule}: it is not convex", f"Use {instead}")
            hint = f"Use a loss of bounded slope such as Huber(), or {instead}"
            _proven(loss.lipschitz < np.inf, f"{rule}: its slope is unbounded", hint)
        if kind == "descent":
            hint = "Use the method's default variant"
            # Noise is in every step, and steps leave the grid.
            _proven(not self.privacy.on_grid, f"no secure or discrete noise for {kind!r}", hint)
            plain = loss.convex and loss.outputs == 1 and not part.batch
            rule = "hidden local steps need a convex loss of one margin and all records (batch=0) in each step"
            _proven(plain, rule, hint)

    def gradient(self, w: np.ndarray, question: Question) -> np.ndarray:
        return self._noisy_sum(
            question,
            lambda: self.exact_gradient(w, question, self.privacy.clip, self._norm, quick=True),
            self.event_of(question.part).noise_multiplier * self._sensitivity(question),
            lambda: self._grid_gradient(w, question),
            self._reach * mechanisms.GRID_BOUND,
        )

    def _noisy_sum(
        self,
        question: Question,
        exact: Callable[[], np.ndarray],
        scale: Numbers,
        whole: Callable[[], np.ndarray],
        steps: float,
    ) -> np.ndarray:
        """A sum over records with noise: `exact` with noise of this scale; or, on a grid, the same in `whole` steps.

        `steps`: how far one record moves those.
        """
        event = self.event_of(question.part)
        if not self.privacy.on_grid:
            return self.answered(
                question, exact, lambda sums: self.noisy(sums, scale, Purpose.NOISE, question, event.mechanism, True)
            )
        step, grid_scale = self.grid_step(question.part)[question.local], self.grid_scale(question.part, steps)
        return self.answered(
            question, whole, lambda sums: self.on_grid(sums, step, grid_scale, Purpose.NOISE, question)
        )

    def argmin(self, asked: ArgMin, question: Question) -> np.ndarray:
        one, cap = self._sensitivity(question), self.privacy.clip / self.exact.loss.lipschitz * (1 - 2.0**-50)
        terms = self._argmin_terms(asked, question.local, cap)
        tol = sensitivity.sure_tolerance(terms, one, ARGMIN_TOL)
        change = (one + 2 * (tol + terms.rounding)) / terms.pull
        self._refuse_coarse(change, self._lengths(asked.centre, asked.linear / terms.pull))
        tols = np.broadcast_to(tol, (*np.broadcast_shapes(tol.shape, one.shape)[:-1], 1))[..., 0]
        public = asked.centre, asked.rho, asked.linear, asked.ridge, question.local, asked.start
        return self.answered(
            question,
            lambda: self.exact.argmin(*public, tols, cap, sensitivity.LAST_STEPS),
            lambda exact: self.noisy_within(change, exact, Purpose.NOISE, question),
        )

    def _argmin_terms(self, asked: ArgMin, local: np.ndarray, cap: float) -> sensitivity.ArgminTerms:
        exact, loss, rho = self.exact, self.exact.loss, np.asarray(asked.rho)
        shift = np.linalg.norm(np.asarray(asked.linear) - rho * asked.centre, axis=-1, keepdims=True)
        return sensitivity.ArgminTerms(
            *(exact.sizes[local][:, None], exact.dim // loss.outputs, loss.outputs, exact.weights[local]),
            *(cap, loss.lipschitz, loss.curvature, shift, rho + asked.ridge),
        )

    def prox_steps(self, start: np.ndarray, spec: ProxSteps, question: Question) -> np.ndarray:
        # The centre may be large, and rounding to its digits would show through noise that is added later.
        return spec.centre + self.noisy_end(self.prox_change(start, spec, question), start, spec, question)

    def noisy_end(self, change: np.ndarray, start: np.ndarray, spec: ProxSteps, question: Question) -> np.ndarray:
        """How far from the centre the end of the steps is, with noise for what one record moves it by: `change`."""
        gradients = self.gradients(question, self.privacy.clip, self._norm)
        return self.answered(
            question,
            lambda: local_runs.take_prox_steps(gradients, start, spec),
            lambda away: self.noisy_within(change, away, Purpose.NOISE, question),
        )

    def prox_change(self, start: np.ndarray, spec: ProxSteps, question: Question) -> np.ndarray:
        """How far one record moves the end of the steps, rounding included."""
        change, steps = self._prox_steps_sensitivity(spec, question), len(spec.weights[0])
        longest = (self._lengths(spec.push) + self._largest_gradient(question.local)) / spec.weights[1].min(axis=0)
        # Gradients of later steps are taken at the centre plus what was moved, which is rounded to the centre's digits.
        points = (start - spec.centre, spec.centre) if spec.fresh else (start - spec.centre,)
        return self._with_rounding(change, steps, longest, *points)

    def descent(self, start: np.ndarray, spec: Descent, question: Question) -> np.ndarray:
        c = local_runs.contraction(spec, self.smoothness(question.local) * PROMISE_SLACK)
        rule = f"local steps must contract, got a factor of {float(np.max(c)):.4g}; promise a row_bound and take a step"
        # c is infinite when no bound on the rows was promised
        _proven(bool((c < 1).all()), f"{rule} below 2 / (smoothness + ridge + pull)")
        multiplier, one = self.event_of(question.part).noise_multiplier, self._sensitivity(question)
        gain, dim = multiplier * local_runs.chain_gain(c, spec.count), self.exact.dim
        # The norm of d normal numbers exceeds √d + 40 with a probability of less than 2^-1000.
        longest = spec.step * (self._largest_gradient(question.local) + 2 * gain * one * (np.sqrt(dim) + 40))
        one = self._with_rounding(spec.step * one, spec.count, longest, start, spec.centre) / spec.step
        noise = gain * one

        def noisy(x: np.ndarray, j: int) -> np.ndarray:
            step = self.step_of(question, j)
            exact = self.exact_gradient(x, step, self.privacy.clip)
            return exact + noise * self.seeded(exact, noise, step)

        # Noise is in every step, so what is computed is already what may be given.
        return self.answered(question, lambda: local_runs.take_descent(noisy, start, spec), self.intercept)

    def moments(self, kappa: float, slope_bound: float, question: Question) -> np.ndarray:
        self.must_be_declared(kappa, slope_bound, question.part)
        return moments.rescaled(self.short_moments(question), self.exact.dim, self.row_cap(question.part))

    @staticmethod
    def must_be_declared(kappa: float, slope_bound: float, part: Part) -> None:
        """Refuse moments that noise was not planned for."""
        declared = (kappa, slope_bound) == (part.kappa, part.slope_bound)
        check.require(declared, "Oracle", "moments must be asked for with the kappa and slope_bound that were declared")

    def row_cap(self, part: Part) -> float:
        """To what rows are cut for moments, so that a record's first moment is cut to the clip norm."""
        return self.privacy.clip / self._slope(part)

    def _slope(self, part: Part) -> float:
        return min(part.slope_bound, self.exact.loss.slope_at_zero)

    def short_moments(self, question: Question) -> np.ndarray:
        """Noisy moments of rows that were divided by `row_cap`."""
        part, local, replaced = question.part, question.local, self._reach == 2
        kappa, slope, row_bound = part.kappa, self._slope(part), self.row_cap(part)
        # Products and sums of n records are off by at most n (n + 4) u (slope + kappa), for both of two neighbours.
        sizes, one = self.exact.sizes[local][:, None], moments.sensitivity(kappa, slope, replaced)
        rounding = 2 * sizes * (sizes + 4) * 2.0**-53 * (slope + kappa)
        shape = AnswerShape(self.exact.dim, self.exact.dim // self.exact.loss.outputs, slope)
        if self.privacy.on_grid:
            must_be_few(sizes)
        return self._noisy_sum(
            question,
            lambda: self.exact.moments(local, kappa, row_bound, slope),
            self.event_of(part).noise_multiplier * self.exact.weights[local] * (one + rounding),
            lambda: self.in_every_run(moment_sums(self.exact, local, kappa, (row_bound, slope), self.shares(0))),
            moments_steps(part, shape, replaced, self.moments_width),
        )

    def histogram(self, w: np.ndarray, question: Question) -> np.ndarray:
        """Counts of held-out records: whole numbers, so nothing is rounded. `core/histogram.py` has the sensitivity."""
        assert self.held is not None
        declared = self.held.width == question.part.cells
        check.require(declared, "Oracle", "a histogram must have the counts that were declared", self.held.width)
        replaced = self._reach == 2
        return self._noisy_sum(
            question,
            lambda: self.held_out_counts(w, question, not replaced),
            self.event_of(question.part).noise_multiplier * histogram.sensitivity(replaced),
            # In grid steps: noise of a few records is then many steps wide, as the accountant needs it.
            lambda: self.held_out_counts(w, question, not replaced).astype(np.int64) * mechanisms.GRID_STEPS,
            histogram_steps(replaced),
        )

    def grid_step(self, part: Part) -> np.ndarray:
        """What one grid step of each client's sums of gradients, moments or counts is worth, (n, 1)."""
        if part.kind == "histogram":
            return np.full_like(self.exact.weights, 1 / mechanisms.GRID_STEPS)
        longest = float(np.hypot(self._slope(part), part.kappa)) if part.kind == "moments" else self.privacy.clip
        return longest / mechanisms.GRID_STEPS * (self.exact.weights / self.rates(part.batch))

    def shares(self, batch: float) -> np.ndarray:
        """What each client's records are multiplied by before they are put on the grid, (n, 1): here by nothing."""
        return np.ones_like(self.exact.weights)

    def _prox_steps_sensitivity(self, spec: ProxSteps, question: Question) -> np.ndarray:
        one, local, penalty = self._sensitivity(question), question.local, type(spec.h).__name__
        # Those of ours are known to stretch no distance.
        _proven(vouched(spec.h), f"nothing is known about the prox of {penalty}; use a library penalty")
        kept = self._norm == 2 or spec.h.separable
        _proven(kept, f"the prox of {penalty} may stretch L1 distances; use Gaussian noise")
        if not spec.fresh:
            return local_runs.prox_steps_sensitivity(spec, one, one)
        bounded = 2 * self._largest_gradient(local) * self._rounding[local]
        # Clipping keeps the gradient of a loss of *one* margin the gradient of a convex function, no steeper than
        # before; so the steps absorb differences of the points if they keep enough of them.
        convex = self.exact.loss.convex and self.exact.loss.outputs == 1 and self._norm == 2
        absorbed = convex & (self.smoothness(local) * PROMISE_SLACK <= 2 * spec.weights[0]).all(axis=0)
        return local_runs.prox_steps_sensitivity(spec, one, np.where(absorbed, one, bounded))

    def _largest_gradient(self, local: np.ndarray) -> np.ndarray:
        return self.privacy.clip * self.exact.weights[local] * self.exact.sizes[local][:, None]

    def _lengths(self, *public: Numbers) -> np.ndarray:
        """The sum of the norms of these vectors, for each client: nothing made of it depends on other clients."""
        lengths = np.zeros((1, 1))
        for part in public:
            vectors = np.broadcast_to(part, np.broadcast_shapes(np.shape(part), (1, self.exact.dim)))
            lengths = lengths + np.linalg.norm(vectors, ord=self._norm, axis=-1, keepdims=True)
        return lengths

    def _refuse_coarse(self, change: np.ndarray, lengths: np.ndarray) -> None:
        """Refuse to answer near vectors so long that rounding there is not small beside what one record changes.

        On a grid numbers that are larger still would be cut off.
        """
        most = _COARSEST_ON_GRID if self.privacy.on_grid else _COARSEST
        ratio = float(np.max(lengths / change))
        rule = f"public numbers must be at most {most:.3g} times as large as what one record changes, or rounding shows"
        hint = "Numbers of that size come of training that diverges: take shorter steps, or a larger rho"
        check.require(ratio <= most, "Proven", rule, ratio, hint)

    def _with_rounding(self, change: np.ndarray, steps: int, longest_step: np.ndarray, *public: Numbers) -> np.ndarray:
        """What one record changes in a run of local steps, with what rounding adds to it.

        Each step rounds a few times (at most 16 operations a coordinate, each within 2^-53 of numbers no larger than
        the public ones and what `steps` of this length moved), on both of two neighbours. A gradient at a rounded point
        is off by what rounding moved the point times its smoothness, at most 2 total where steps absorb it. Steps do
        not stretch distances, so these errors add up at most.
        """
        lengths = self._lengths(*public) + steps * longest_step
        self._refuse_coarse(change, lengths)
        return change + 2 * 16 * steps * 2.0**-53 * (lengths + steps * change)

    def noise_std(self, local: np.ndarray, part: Part) -> np.ndarray:
        event = self.event_of(part) if part in self.asks.parts else self.events[0]
        unit = np.sqrt(2.0) if event.mechanism == "laplace" else 1.0  # deviation of a Laplace number of scale 1
        return unit * event.noise_multiplier * self._sensitivities(part.batch)[local]

    def gradient_bound(self, local: np.ndarray) -> np.ndarray | float:
        return self.privacy.clip

    @property
    def _norm(self) -> int:
        return 1 if self.privacy.mechanism == "laplace" else 2

    @property
    def _reach(self) -> int:
        """In clip norms: how far one record moves the sum of clipped gradients."""
        return 2 if self.privacy.relation == "replace-one" else 1

    def _sensitivity(self, question: Question) -> np.ndarray:
        return of_clients(self._sensitivities(question.part.batch), question.local)

    def _sensitivities(self, batch: float) -> np.ndarray:
        """How far one record moves each client's gradient."""
        if batch not in self._moved:
            weights = self.exact.weights / self.rates(batch)
            self._moved[batch] = self._reach * self.privacy.clip * weights * self._rounding
        return self._moved[batch]

    @cached_property
    def _rounding(self) -> np.ndarray:
        return sensitivity.sum_rounding(self.exact.sizes[:, None], self.exact.roundings + 1, self._reach)

    def charged(self, local: np.ndarray, part: Part) -> list[tuple[Event, np.ndarray | None]]:
        kinds, kind_of = self._kinds_of(part)
        if len(kinds) == 1:
            return [(kinds[0], None)]
        return [(kinds[kind], np.flatnonzero(kind_of[local] == kind)) for kind in np.unique(kind_of[local])]

    def _kinds_of(self, part: Part) -> Kinds:
        """The distinct events of all clients, and which is whose.

        The plan's event is that of the client with the largest share. Smaller shares cost less; but where there are
        very many different ones, all are charged as the largest, which is an upper bound.
        """
        last = self._last_kinds
        if last is not None and part is last[0]:
            return last[1]  # the common case, and the cheapest
        if part not in self._kinds:
            event = self.event_of(part)
            rates, kind_of = np.unique(self.rates(part.batch)[:, 0], return_inverse=True)
            if event.sampling == "full" or len(rates) > MOST_KINDS:
                kinds, kind_of = [event], np.zeros_like(kind_of)
            elif self.poisson:
                kinds = [replace(event, rate=float(rate)) for rate in rates]
            else:
                sizes = [int(self.exact.sizes[kind_of == kind][0]) for kind in range(len(rates))]
                pairs = zip(rates, sizes, strict=True)
                kinds = [replace(event, batch=round(rate * size), size=size) for rate, size in pairs]
            self._kinds[part] = kinds, kind_of
        self._last_kinds = part, self._kinds[part]
        return self._kinds[part]

    def _grid_gradient(self, w: np.ndarray, question: Question) -> np.ndarray:
        """Sums of clipped gradients as integers on a grid; over a batch if one was declared."""
        points = np.broadcast_to(w, (*self.shape(len(question.local)), self.exact.dim))
        about = points, question.local, self.drawn(question)
        return gradient_sums(self.exact, *about, self.privacy.clip, self._norm, self.shares(question.part.batch))
