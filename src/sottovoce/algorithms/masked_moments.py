"""Masked moments: columns split between owners, one round, and the model that is best to second order. Ours.

A linear model needs Σ x x' and Σ x ⊗ s (`core/moments.py`): sums over samples, which one record moves by at most Δ.
With columns split, X_a'X_b and X_a's are products of two owners' tables. Two owners compute them on masked tables
(`privacy/masked_products.py`), and noise is added before anything is opened. Scores need noise of their own for every
sample; sums do not, so they stay useful at a small ε. And labels are covered with the rows.

    symbol    here                meaning
    x_m, c_m  core/products.py    an owner's part of a row, and what it is cut to; Σ c_m² = 1
    s         core/products.py    minus the slope of a record's loss at margin 0, over 2B: |s| <= 1/2
    b         first               mean over samples of x ⊗ s
    G         gram                mean over samples of x x'
    κ         kappa               how much G weighs beside b: noise of scale σ on b, σ/κ and σ/(κ√2) on G
    σ         noise               scale of the noise that *each* owner adds to every product it has a part in
    c         curvature           second derivative of the loss at margin 0: 1/4 logistic, 1/K softmax, 1 squared
    B         slope_bound         slopes are cut to this size: 1/2 logistic, √(1 − 1/K) softmax, y_bound squared
    λ         ridge               what keeps noise in G from being inverted

The method, one round:

    owner m    (1)  scales its part of each row to length c_m and truncates it to whole numbers
               (2)  for itself X_m'X_m (and X_m's); with each other owner, masked, X_m'X_b and X_m's; adds noise
    server     (3)  opens the sums;  stops if one of them is larger than n c_a c_b + 80 σ: somebody computed wrongly
               (4)  b, G ← sums / n;  G₊ ← G with negative eigenvalues set to 0
               (5)  w ← argmin over w of  c/2 w'(G₊ + λ) w − 2B b·w + r(w)

Without noise and λ, (5) minimises the objective with the loss replaced by its second-order expansion at 0, which for a
squared loss is the objective itself. (4) and (5) are post-processing. So every penalty is free once the sums are open:
a path of ridges, a lasso, non-negative coefficients, a box; and so is the model of some of the columns, such as those
of one owner alone (`minimised`).

Privacy. The unit is one sample: all of its columns at all owners, and its label, replaced. `core/products.py` has Δ
with its proof, `privacy/masked_products.py` the theorem with what it assumes of dealer, server and owners. An owner's
noise is in every number that touches its table, so what one other owner, colluding with the server, can take off is its
own noise: each owner adds the full σ, and blocks of two owners carry two noises. Other units are refused: to hide a
label alone costs as much as the record (Δ = 1 for b; at κ² = 1/8 the row comes free), and a whole column or owner moves
the sums by about n, as large as they are.

λ = 0.3 √(2 d f) σ_g, where σ_g is the deviation of the noise on G's diagonal and f the mean number of noises in G's
entries: 0.3 times the length of a random matrix of such entries. The factor is that of `rules/numbers.py`.

Standard errors. To first order noise δb and δG moves w by A⁻¹ (2B δb − c δG w), A = c (G₊ + λ) + r''. Entries of δG are
independent up to symmetry, of variance V_ij, so (δG w) has the covariance V_ij w_i w_j for i ≠ j, and Σ_j V_ij w_j² on
its diagonal.

Departures
----------
There is no paper. Regression from masked cross-products: Du and Atallah 2001; Karr, Lin, Sanil and Reiter 2009; with a
trusted initialiser Gascón et al. 2017; dealers Beaver 1997; noisy Gram matrices Dwork et al. 2014. Nearest: SQM (2025)
and SPCA (2024), with secure computation and distributed Skellam noise and no trusted party.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np

from sottovoce.algorithms.moments import minimiser, positive_part
from sottovoce.core import check, products
from sottovoce.core.contract import Array, Arrays, Asks, Hub, KnownNoise, Nothing, Part, Site, VerticalAlgorithm
from sottovoce.core.participation import Participation
from sottovoce.core.penalty import Penalty
from sottovoce.core.products import Split
from sottovoce.core.shapes import widths


class Server(Arrays):
    w: Array
    sums: Array  # the opened sums, two limbs each
    done: Array  # rounds that all owners answered, one number for each run


class Up(Arrays):
    share: Array = widths(lambda algorithm, dim: 2 * algorithm.split.size)  # two limbs for each product


@dataclass(frozen=True)
class MaskedMoments(VerticalAlgorithm[Server, Nothing, Nothing, Up]):
    """One round: noisy products of all columns, and the minimiser of the quadratic that they make.

    All but the first three parameters follow from the data's public shape, the loss and the budget; left as they are,
    `train` and the estimators fill them in.

    Parameters
    ----------
    kappa
        Weight of the second moments; at most √(1/2), which is near the best.
    ridge
        λ, beside the penalty of the objective. "auto": by the rule above.
    slope_bound
        B. "auto": what the loss says; for a squared loss 1, labels being in [-1, 1].
    widths, shares, row_bounds
        Of each owner: its columns; the columns of the table that they were made from; the length that its rows are cut
        to, and that then counts as c_m.
    holder, bias
        The owner of the labels, and whether its last column is the constant one.
    samples
        How many there are: n.
    outputs, curvature
        Margins of the loss, and its second derivative at margin 0.
    noise
        σ of the first moments, in records. 0: none.
    """

    kappa: check.Positive = products.LARGEST_KAPPA
    ridge: check.NonNegative | Literal["auto"] = "auto"
    slope_bound: check.Positive | Literal["auto"] = "auto"
    widths: Sequence[int] = ()
    shares: Sequence[int] = ()
    row_bounds: Annotated[Sequence[float], check.Interval(0, each=True)] = ()
    holder: check.WholeOrZero = 0
    bias: bool = False
    samples: check.WholeOrZero = 0
    outputs: check.Whole = 1
    curvature: check.Positive = 0.25
    noise: check.NonNegative = 0.0

    name = "masked-moments"
    summary = "columns split between parties: noisy products of masked columns, one round"

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = "kappa must be at most √(1/2)"
        check.require(self.kappa <= products.LARGEST_KAPPA, "MaskedMoments", rule, self.kappa)
        check.of_kind("MaskedMoments", "bias", self.bias, bool, "True")
        for name in ("widths", "shares", "row_bounds"):
            listed = isinstance(getattr(self, name), list | tuple) and len(getattr(self, name)) == len(self.widths)
            check.require(listed, "MaskedMoments", f"{name} must be a list with one number for each owner")
        if self.widths:
            _ = self.split  # checks who has which columns

    def asks(self) -> Asks:
        return Asks((Part("products", last=1, kappa=self.kappa),))

    @cached_property
    def split(self) -> Split:
        """Who has which columns."""
        rule = "needs to know who has how many columns: train and the estimators say it"
        check.require(len(self.widths) > 0, "MaskedMoments", rule)
        return Split(tuple(self.widths), tuple(self.shares), self.holder, self.outputs)

    def warn_about(self, participation: Participation, n: int) -> None:
        if participation.answers(n) < n:
            text = "masked-moments: its one round needs the answers of all owners, and some are not asked"
            warnings.warn(text, stacklevel=3)

    def init_server(self, hub: Hub) -> Server:
        lead, split = hub.zeros.shape[:-1], self.split
        return Server(np.zeros((*lead, split.columns * self.outputs)), np.zeros((*lead, 2 * split.size)),
                      np.zeros((*lead, 1)))  # fmt: skip

    def client(self, state: Nothing, down: Nothing, site: Site) -> tuple[Nothing, Up]:
        return state, Up(site.release(site.f.products(self.kappa)))  # (1), (2)

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        everyone = hub.answered.all(axis=-2, keepdims=True)  # a sum without one of the owners is a mask
        sums = products.opened(np.where(everyone, up.share, 0.0))[..., None, :]  # (3)
        self.check_sums(sums)
        w = np.where(everyone, self.minimised(sums, hub.penalty), server.w)
        kept = np.where(everyone, products.to_limbs(sums), server.sums)
        return Server(w, kept, server.done + everyone)

    def check_sums(self, sums: Array) -> None:
        """Stop at sums that no honest owners can have: the charge stays."""
        noise = products.NOISE_REACH * self.noise * products.UNIT * self.split.noise_factors(self.kappa)
        largest = self.split.largest_entries(self.samples) * (1 + 1e-9) + noise  # with room for its own rounding
        rule = "a sum of products is larger than any that owners who follow the protocol can have"
        hint = "Somebody computed wrongly, or a message was changed. What was charged stays charged"
        possible = bool((np.abs(sums.astype(np.float64)) <= largest).all())
        check.require(possible, "masked-moments", rule, hint=hint, error=check.SottovoceError)

    def quadratic(self, sums: Array, keep: Array) -> tuple[Array, Array]:
        """The curvature c (G₊ + λ) and the slope 2B b of the columns `keep`, of rows as they were multiplied."""
        first, gram = self.moments_of(sums / (self.samples * float(products.UNIT)))  # (4)
        first, gram = first[..., keep], gram[..., keep, :][..., keep]
        curve = self.curvature * (positive_part(gram) + self.lam(keep) * np.eye(gram.shape[-1]))
        return curve, 2 * self.bound * first

    def minimised(self, sums: Array, penalty: Penalty, keep: Array | None = None) -> Array:
        """The model for this penalty, in the units of the owners' rows: (..., outputs · columns), flat.

        `keep`: which columns it may use (True), the others having coefficients of zero; None: all.
        """
        keep = np.ones(self.split.columns, dtype=bool) if keep is None else keep
        curve, first = self.quadratic(sums, keep)
        unit = self.units[keep]
        curve = curve / unit / unit[:, None]
        flat = (first / unit).reshape(*first.shape[:-2], -1)
        w = np.zeros((*flat.shape[:-1], self.outputs, len(keep)))
        w[..., keep] = minimiser(curve, flat, penalty, self.outputs).reshape(*flat.shape[:-1], self.outputs, -1)  # (5)
        return w.reshape(*flat.shape[:-1], -1)

    def columns_of(self, m: int) -> Array:
        """Which columns owner m could use alone: its own, and the constant one."""
        keep = np.repeat(np.arange(len(self.widths)) == m, self.widths)
        keep[sum(self.widths[: self.holder + 1]) - 1] |= self.bias
        return keep

    def lam(self, keep: Array) -> float:
        """λ, for the columns `keep`."""
        if self.ridge != "auto":
            return self.ridge
        noises = self.variances()[1][keep][:, keep]
        return 0.3 * math.sqrt(2 * keep.sum() * 2 * noises.mean())  # entries beside the diagonal have σ_g²/2 each

    def variances(self) -> tuple[Array, Array]:
        """The variance of the noise in each entry of b, and of G: V_ij."""
        scale = self.noise * self.split.noise_factors(self.kappa) / self.samples
        return self.moments_of(self.split.noises() * np.square(scale))

    def moments_of(self, numbers: Array) -> tuple[Array, Array]:
        """One number for each product of two columns, as b (..., outputs, columns) and G (..., columns, columns)."""
        rows, columns = self.split.places
        whole = np.zeros((*numbers.shape[:-1], *(self.split.starts[-1],) * 2))
        whole[..., rows, columns] = whole[..., columns, rows] = numbers
        label = self.split.is_label
        return whole[..., label, :][..., ~label], whole[..., ~label, :][..., ~label]

    @cached_property
    def units(self) -> Array:
        """What one unit of an owner's column is in rows as they are multiplied: c_m / row_bound."""
        split = self.split
        reach = [math.sqrt(split.longest(m)) / products.STEPS / self.row_bounds[m] for m in range(split.owners)]
        return np.repeat(reach, split.widths)

    @property
    def bound(self) -> float:
        """B."""
        return 1.0 if self.slope_bound == "auto" else self.slope_bound

    def standard_errors(self, server: Server, noise: KnownNoise) -> Array | None:
        curvatures, unit = noise.penalty.curvatures(self.split.columns), self.units
        if curvatures is None:  # the minimiser does not follow the noise linearly
            return None
        curve, _ = self.quadratic(products.from_limbs(server.sums), np.ones(len(unit), dtype=bool))
        inverse = np.linalg.inv(curve + np.diag(curvatures * unit**2))
        w = server.w.reshape(*server.w.shape[:-1], self.outputs, -1) / unit
        of_first, of_gram = self.variances()
        spread = np.square(w) @ of_gram
        # diag(A⁻¹ C A⁻¹) for C_ij = V_ij w_i w_j off the diagonal, and spread on it
        mixed = w[..., None] * (of_gram - np.diag(np.diag(of_gram))) * w[..., None, :]
        covariance = self.curvature**2 * mixed
        diagonal = self.curvature**2 * spread + (2 * self.bound) ** 2 * of_first
        inverse = inverse[..., None, :, :]
        variance = (np.square(inverse) * diagonal[..., None, :]).sum(axis=-1)
        variance += ((inverse @ covariance) * inverse).sum(axis=-1)
        return (np.sqrt(np.maximum(variance, 0.0)) * unit).reshape(server.w.shape)

    def kept(self, state: Nothing) -> None:
        return None

    def stop(self, server: Server) -> str:
        return "one round is all that this method has" if (server.done > 0).all() else ""
