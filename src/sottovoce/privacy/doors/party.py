"""The only way from an algorithm to a party's columns: the doors for data that are split by columns.

In `Proven` mode a party answers two kinds of question. `fit`: the scores of its best model for a public target, clipped
or of known sensitivity, charged to its ledger, noised and only then given. What a target is made of (the broadcast and
the party's own released scores) is public, and the model itself stays behind the door; so however the algorithm goes
on, its messages are post-processing. A model that is to predict is one more such answer, after the last round.
`products`: its contribution to the products of all columns (`core/products.py`), charged and noised in the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce.core.arrays import Matrix
from sottovoce.core.check import InvalidInput
from sottovoce.core.clipping import clip_matrix, clip_rows, into_ball
from sottovoce.core.contract import ColumnOracle, Kept
from sottovoce.core.products import UNIT, Split, must_fit, products_sensitivity, to_limbs
from sottovoce.core.questions import plain, plain_array
from sottovoce.core.random.bits import Bits
from sottovoce.core.random.streams import Purpose
from sottovoce.privacy import discrete_noise, sensitivity
from sottovoce.privacy.doors.base import Door, Numbers, untouched
from sottovoce.privacy.doors.proven import ProvenDoor
from sottovoce.privacy.doors.releases import Question, Releases, Sealed, quietly
from sottovoce.privacy.modes import PrivacyMode, ProvenColumns, Published

MODEL = 0  # the round under which a ledger keeps the model for prediction: it is made once a run, whenever that ends
SMALLEST, LARGEST = 1e-60, 1e60  # of what a proven fit is made of: products of these, as its noise has them, are finite


class OutOfRange(InvalidInput):
    """A public number of a question is too large or too small for any answer; nothing was charged."""


@dataclass
class PartyDoor(Door):
    """Exact answers, plain uploads: no privacy. `exact` is a `problems.columns.Columns`."""

    exact: Any
    split: Split | None = None  # who has which columns, where their products are asked for
    certified = True  # whether a fit that its solver did not finish is refused

    def open(
        self, local: np.ndarray, active: np.ndarray, k: int, public: Sequence[Sealed] = ()
    ) -> tuple[Any, Releases]:
        next_question = self.questions(local, active, k)

        def fit(target: np.ndarray, rho: np.ndarray, noise: Numbers = 0.0) -> np.ndarray:
            target, rho, noise = plain_array(target), plain_array(rho), plain(noise)
            return self.fit(target, rho, noise, next_question("fit", target, rho, noise))

        def predict(x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
            next_question("scores")
            return self.exact.predict(plain_array(x), local, None if rows is None else np.asarray(rows))

        def adjoint(v: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
            next_question("scores")
            return self.exact.adjoint(plain_array(v), local, None if rows is None else np.asarray(rows))

        def products(kappa: float) -> np.ndarray:
            kappa = float(kappa)
            return self.products(kappa, next_question("products", kappa))

        widths = self.exact.widths[local][:, None].astype(np.float64)
        oracle = ColumnOracle(fit, predict, adjoint, products, widths, self.exact.widest, self.exact.samples)
        return oracle, Releases(self, local, active, k, public)

    def fit(self, target: np.ndarray, rho: np.ndarray, noise: Numbers, question: Question) -> np.ndarray:
        return self.exact.predict(self.exact.fit(target, rho, question.local, self.certified), question.local)

    def products(self, kappa: float, question: Question) -> np.ndarray:
        """Each party's contribution to the products of all columns, in two limbs."""
        return self.in_every_run(to_limbs(self.exact.products(question.local)))

    def looked_at(self, kept: Kept, local: np.ndarray) -> np.ndarray:
        """The parties' models as they are behind the door, (runs?, parties, widest): a simulation may look."""
        return kept.x if kept.x is not None else self.exact.fit(*kept.fitted, local, self.certified)

    def models(self, kept: Kept, local: np.ndarray, k: int) -> np.ndarray | None:
        """The parties' models for prediction, made after round k; None where there must be none."""
        return self.looked_at(kept, local)

    def affords_models(self, local: np.ndarray) -> bool:
        return True

    def _of_everyone(self, local: np.ndarray, k: int, number: int, asked: tuple[np.ndarray, ...] = ()) -> Question:
        """A question to these parties in all runs."""
        return Question(local, np.ones(self.shape(len(local)), dtype=bool), k, number, asked=asked)

    def would_be(self, kept: Kept, local: np.ndarray, k: int) -> np.ndarray | None:
        """What `models` would give out here, for a simulation to measure: it is not given out, and not charged."""
        return self.looked_at(kept, local)


@dataclass(kw_only=True)
class PublishedPartyDoor(PartyDoor):
    """Noise on x as in (16): N(0, noise² (D'D)^-1), so that D x̃ is what leaves."""

    privacy: Published

    def fit(self, target: np.ndarray, rho: np.ndarray, noise: Numbers, question: Question) -> np.ndarray:
        x = self.exact.fit(target, rho, question.local)
        return self.exact.predict(x + noise * self._spread(x, noise, question), question.local)

    def looked_at(self, kept: Kept, local: np.ndarray) -> np.ndarray:
        """x̃ of each party's last fit, with the noise that was drawn in its round."""
        exact = x = super().looked_at(kept, local)
        if kept.noise is None or kept.k is None or kept.target is None or kept.rho is None:
            return x
        for k in np.unique(kept.k[kept.k > 0]):
            asked = (kept.target, kept.rho, kept.noise)  # as `fit` was asked in that round
            spread = self._spread(exact, kept.noise, self._of_everyone(local, int(k), 0, asked))
            x = x + np.where(kept.k == k, kept.noise * spread, 0.0)
        return x

    def _spread(self, x: np.ndarray, noise: Numbers, question: Question) -> np.ndarray:
        count = min(self.exact.widest, self.exact.samples)
        return self.exact.spread(self.seeded(x, noise, question, count), question.local)


@dataclass(kw_only=True)
class ProvenPartyDoor(PartyDoor, ProvenDoor):
    """Noisy fits; uploads are post-processing and go out as they are.

    Variant "clip": whatever the party did, its scores were clipped to norm C before the noise, so any change of its
    data moves them by at most 2C. Variant "ridge": scores and models are moved into balls of public radius, whatever a
    solver made of them; smaller changes are relied on only where public numbers prove them, see `sensitivity.py`.

    What is refused follows from what is public, and is refused before the charge: numbers out of a stated range, more
    columns than can be fitted. After it every question is answered, since a refusal would tell something of the data. A
    fit that its solver did not finish goes out clipped like any other; in place of one that came to nothing (numbers
    overflowed, a matrix was not one) zeros do. Within the range the closed forms of rows or columns of bounded length
    do not come to that, and zeros are scores that a whole party may have: I − mu (DD' + mu)^-1 = 0 for D = 0.
    """

    privacy: ProvenColumns  # type: ignore[assignment]
    counted = True
    certified = False

    def fit(self, target: np.ndarray, rho: np.ndarray, noise: Numbers, question: Question) -> np.ndarray:
        u, rho = self._checked(target, rho, question.local)
        return self.answered(
            question,
            lambda: self._scores(u, rho, question),
            lambda scores: self._noisy_scores(scores, u, rho, question),
        )

    def _scores(self, u: np.ndarray, rho: np.ndarray, question: Question) -> np.ndarray:
        scores = self.exact.predict(self.exact.fit(u, rho, question.local, self.certified), question.local)
        return np.where(np.isfinite(scores).all(axis=-1, keepdims=True), scores, 0.0)

    def _noisy_scores(self, scores: np.ndarray, u: np.ndarray, rho: np.ndarray, question: Question) -> np.ndarray:
        if self.privacy.variant == "clip":
            return self._clipped(scores, _stated(self.privacy.bound), Purpose.NOISE, question)
        scores = into_ball(scores, u / 2, sensitivity.norm(u) / 2)
        mu, error, bound = self._mu(rho), self._error(rho, question.local), self.privacy.score_bound
        match self.privacy.unit:
            case "party":
                change = sensitivity.party_scores(u)
            case "column":
                change = sensitivity.column_scores(u, mu, _stated(self.privacy.column_bound), error)
            case _:
                scores = np.clip(scores, -_stated(bound), _stated(bound))
                change = sensitivity.record_scores(u, mu, _stated(self.privacy.row_bound), _stated(bound), error)
        return self.noisy_within(change, scores, Purpose.NOISE, question)

    def products(self, kappa: float, question: Question) -> np.ndarray:
        """The same with noise, of the full scale on every number that the party has a part in.

        Noise is bound to the party's own rows and not, as elsewhere, to the exact answer: of a product that two parties
        compute together, each has a random half. A number changes only if the rows of a party that adds noise to it do.
        """
        if kappa != question.part.kappa:  # noise was planned for the declared one
            raise InvalidInput("Oracle: products must be asked with the kappa that was declared; nothing was computed")
        scale = self.grid_scale(question.part, UNIT * products_sensitivity(kappa))
        must_fit(self.exact.samples, scale, kappa)
        return self.answered(
            question,
            lambda: self.exact.products(question.local),
            lambda exact: self._noisy_products(exact, scale, kappa, question),
        )

    def _noisy_products(self, exact: np.ndarray, scale: float, kappa: float, question: Question) -> np.ndarray:
        assert self.split is not None
        split, shape = self.split, self.shape(len(question.local))
        factors = split.noise_factors(kappa)
        noise = np.zeros((*shape, split.size), dtype=np.int64)
        streams: Sequence[Bits] = ()
        if not self.privacy.secret_noise:
            streams = self.key.bits(self.occasion(Purpose.NOISE, question), (np.array([[scale]]), *question.asked))
        for place, party in enumerate(self.clients[question.local]):
            of_owner = split.of_owner(int(party))
            of_party = streams[place :: len(question.local)]
            for factor in np.unique(factors):  # one scale after the other, from the same streams
                here = np.flatnonzero(of_owner & (factors == factor))
                zeros = np.zeros((*shape[:-1], len(here)), dtype=np.int64)
                noise[..., place, here] = discrete_noise.noised("gaussian", scale * factor, zeros, of_party)
        return self.intercept(to_limbs(exact + noise))  # modulo 2^64

    def _mu(self, rho: np.ndarray) -> np.ndarray:
        return self.exact.penalty.strong / rho

    def _error(self, rho: np.ndarray, local: np.ndarray) -> np.ndarray:
        """How far rounding can move a fit, by public numbers; infinite where nothing bounds the entries."""
        samples, width = self.exact.samples, self.exact.widths[local][:, None]
        column, row = self.privacy.column_bound, self.privacy.row_bound
        squares = width * column**2 if column is not None else np.inf if row is None else samples * row**2
        return sensitivity.solve_error(self._mu(rho), squares, samples, width)

    def models(self, kept: Kept, local: np.ndarray, k: int) -> np.ndarray | None:
        if not self.privacy.model:
            return None
        self._checked(*kept.fitted, local)
        return self.answered(
            self._of_everyone(local, MODEL, 0),
            lambda: self.looked_at(kept, local),
            lambda x: self._noisy_models(x, kept, local, k),
        )

    def would_be(self, kept: Kept, local: np.ndarray, k: int) -> np.ndarray | None:
        if not self.privacy.model or self.privacy.secret_noise:
            return None
        intercept, self.intercept = self.intercept, untouched  # nothing is given out
        try:
            with quietly():
                return self._noisy_models(self.looked_at(kept, local), kept, local, k)
        finally:
            self.intercept = intercept

    def _noisy_models(self, x: np.ndarray, kept: Kept, local: np.ndarray, k: int) -> np.ndarray:
        target, rho = kept.fitted
        question = self._of_everyone(local, k, self.asks.parts[0].answers, (target, rho))
        if self.privacy.variant == "clip":
            return self._clipped(x, _stated(self.privacy.model_bound), Purpose.RELEASE, question)
        u = self._projected(target)
        radius = np.broadcast_to(sensitivity.model_radius(u, self._mu(rho)), (*x.shape[:-1], 1))
        for place, width in enumerate(self.exact.widths[local]):  # alone, a party would not be padded
            x[..., place, :width] = clip_rows(x[..., place, :width], radius[..., place, :])
        if self.privacy.unit == "record":
            error = self._error(rho, local)
            change = sensitivity.record_model(u, self._mu(rho), _stated(self.privacy.row_bound), error)
        else:
            change = sensitivity.party_model(u, self._mu(rho))
        return self.noisy_within(change, x, Purpose.RELEASE, question)

    def looked_at(self, kept: Kept, local: np.ndarray) -> np.ndarray:
        target, rho = kept.fitted
        return super().looked_at(Kept(target=self._projected(target), rho=rho), local)

    def able(self, local: np.ndarray, k: int) -> np.ndarray:
        """Who can afford this round and, after it, its model."""
        return self.ledger.afford(self.events[0], self.part_at(k).answers + self._models, local, k)

    @property
    def _models(self) -> int:
        """How many answers a party's model for prediction is: none where the server has the model."""
        return int(self.privacy.model and self.asks.kinds == ("fit",))

    def affords_models(self, local: np.ndarray) -> bool:
        """A party that was short of budget from the start has no room for a model either."""
        return not self._models or bool(self.ledger.afford(self.events[0], 1, local, MODEL).all())

    def _checked(self, target: np.ndarray, rho: np.ndarray, local: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is asked about, as it is used; refused out of range, by public numbers and without a look at data."""
        self.exact.check_sizes(local)
        rho, privacy = np.atleast_2d(rho), self.privacy
        bounds = (privacy.bound, privacy.model_bound, privacy.row_bound, privacy.column_bound, privacy.score_bound)
        _in_range("rho", rho)
        for bound in bounds:
            _in_range("a bound", 1.0 if bound is None else bound)
        if privacy.variant == "ridge":
            _in_range("lam / rho", self.exact.penalty.strong / rho)
        _in_range("the target's largest entry", np.maximum(np.abs(target), SMALLEST))
        return self._projected(target), rho

    def _projected(self, target: np.ndarray) -> np.ndarray:
        """On |u| <= U: noise comes back in the target, and without a bound would feed on itself."""
        return clip_rows(target, _stated(self.privacy.bound)) if self.privacy.variant == "ridge" else target

    def _clipped(self, value: np.ndarray, bound: float, purpose: Purpose, question: Question) -> np.ndarray:
        return self.noisy_in_ball(clip_rows(value, bound), bound, purpose, question)


def _in_range(what: str, value: Numbers) -> None:
    if not np.all((value >= SMALLEST) & (value <= LARGEST)):  # NaN is outside
        raise OutOfRange(f"fit: {what} must be from {SMALLEST:g} to {LARGEST:g}")


def _stated(bound: float | None) -> float:
    assert bound is not None  # ProvenColumns has checked it
    return bound


def bounded(parts: Sequence[Matrix], privacy: PrivacyMode) -> list[Matrix]:
    """The parts that are trained on: columns or rows longer than a proof allows are scaled down, each by itself."""
    column_bound, row_bound = getattr(privacy, "column_bound", None), getattr(privacy, "row_bound", None)
    if column_bound is not None:
        return [clip_matrix(part, column_bound, axis=0) for part in parts]
    if row_bound is not None:
        return [clip_matrix(part, row_bound, axis=1) for part in parts]
    return list(parts)
