"""Moments: one answer of each client, and the model that is best to second order around zero. Ours.

    symbol   here                meaning
    x, s     core/moments.py     a record's row, and minus the slope of its loss at margin 0
    b        first               mean over records of x ⊗ s: the gradient at 0, with its sign turned
    G        gram                mean over records of x x'
    κ        kappa               how much the second moments weigh in an answer
    c        curvature           second derivative of the loss at margin 0: 1/4 logistic, 1/K softmax, 1 squared
    λ        ridge               what keeps noise in G from being inverted; chosen by rule from its deviation

The method, one round:

    client i    (1)  m_i ← first and second moments of its records, with noise;  sends m_i
    server      (2)  b, G ← mean of the m_i;  G₊ ← G with negative eigenvalues set to 0
                (3)  w ← argmin over w of  c/2 w'(G₊ + λ) w − b·w + r(w)

Without noise and λ, (3) minimises the objective with the loss replaced by its second-order expansion at 0, which for a
squared loss is the objective itself. d (d + 3)/2 numbers are sent once, instead of d numbers in every round.

Privacy. m_i is one answer; (2) and (3) are post-processing. `core/moments.py` has the sensitivity with its proof: up to
κ² = B²/2 (B: the largest slope) the second moments cost nothing beside the first.

Standard errors. To first order, noise δb and δG moves w by A⁻¹ (δb − c δG w), A = c (G₊ + λ) + r''. δb has variance
σ_b² in each coordinate; δG is symmetric with variance σ_G² on its diagonal and half of that beside it, so δG w has the
covariance σ_G²/2 (|w|² + w w').

Departures
----------
There is no paper. Noisy Gram matrices: Dwork, Talwar, Thakurta and Zhang 2014.
"""

from dataclasses import dataclass

import numpy as np

from sottovoce.core import moments
from sottovoce.core.check import NonNegative, Positive, Whole
from sottovoce.core.contract import Algorithm, Array, Arrays, Asks, Hub, KnownNoise, Nothing, Part, Penalty, Site
from sottovoce.core.shapes import widths

_STEPS = 2000  # of proximal gradient descent in (3), for penalties without a closed form


def moments_width(algorithm: "Moments", dim: int) -> int:
    """Numbers in an upload, for a model of `dim` parameters."""
    return moments.width(dim, dim // algorithm.outputs)


class Server(Arrays):
    w: Array
    m: Array  # the mean of the answers
    done: Array  # rounds that were answered, one number for each run


class Up(Arrays):
    m: Array = widths(moments_width)


@dataclass(frozen=True)
class Moments(Algorithm[Server, Nothing, Nothing, Up]):
    """One round: noisy moments of all records, and the minimiser of the quadratic that they make.

    Parameters
    ----------
    kappa
        Weight of the second moments; √(1/2) is near the best for one round.
    ridge
        λ, beside the penalty of the objective.
    curvature
        Second derivative of the loss at margin 0.
    outputs
        Margins of the loss (classes of a softmax loss).
    slope_bound
        For a loss whose slope at 0 is not bounded (squared: the label): slopes are cut to this size.
    """

    kappa: Positive = 0.5**0.5
    ridge: NonNegative = 0.0
    curvature: Positive = 0.25
    outputs: Whole = 1
    slope_bound: Positive = 1e100

    name = "moments"
    summary = "noisy first and second moments, one round"
    not_summed = ""

    def asks(self) -> Asks:
        return Asks((Part("moments", last=1, kappa=self.kappa, slope_bound=self.slope_bound),))

    def init_server(self, hub: Hub) -> Server:
        answer = np.zeros((*hub.zeros.shape[:-1], moments_width(self, hub.zeros.shape[-1])))
        return Server(hub.zeros.copy(), answer, hub.zeros[..., :1].copy())

    def client(self, state: Nothing, down: Nothing, site: Site) -> tuple[Nothing, Up]:
        return state, Up(site.release(site.f.moments(self.kappa, self.slope_bound), centre=0.0))  # (1)

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        m = hub.if_any(hub.mean(up.m), server.m)
        w = minimiser(*self.quadratic(m, hub.zeros.shape[-1]), hub.penalty, self.outputs)  # (3)
        return Server(hub.if_any(w, server.w), m, server.done + hub.answered.any(axis=-2, keepdims=True))

    def quadratic(self, m: Array, dim: int) -> tuple[Array, Array]:
        """The curvature c (G₊ + λ) and the slope b."""
        first, gram = moments.split(m, dim, self.kappa)  # (2)
        return self.curvature * (positive_part(gram) + self.ridge * np.eye(gram.shape[-1])), first

    def standard_errors(self, server: Server, noise: KnownNoise) -> Array | None:
        curve, _ = self.quadratic(server.m, server.w.shape[-1])
        columns = curve.shape[-1]
        curvatures = noise.penalty.curvatures(columns)
        if curvatures is None:  # the minimiser does not follow the noise linearly
            return None
        inverse = np.linalg.inv(curve + np.diag(curvatures))
        w = server.w.reshape(*server.w.shape[:-1], self.outputs, columns)
        of_first = (noise.deviation * noise.row_bound) ** 2
        of_gram = (self.curvature * noise.deviation * noise.row_bound**2 / self.kappa) ** 2 / 2
        lengths = np.square(w).sum(axis=-1, keepdims=True)
        squares = np.square(inverse).sum(axis=-1)[..., None, :]  # of the rows of A⁻¹
        variance = (of_first + of_gram * lengths) * squares + of_gram * np.square(w @ inverse)
        return np.sqrt(variance).reshape(server.w.shape)

    def stop(self, server: Server) -> str:
        return "one round is all that this method has" if (server.done > 0).all() else ""


def positive_part(gram: Array) -> Array:
    """Symmetric matrices with their negative eigenvalues set to 0."""
    values, vectors = np.linalg.eigh(gram)
    return (vectors * np.maximum(values, 0.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2)


def minimiser(curve: Array, first: Array, penalty: Penalty, outputs: int) -> Array:
    """argmin over w of ½ w' curve w − first·w + r(w), for each of the `outputs` blocks of w."""
    columns = curve.shape[-1]
    b = first.reshape(*first.shape[:-1], outputs, columns)
    curvatures = penalty.curvatures(columns)
    if curvatures is not None:  # quadratic, or nothing
        whole = curve + np.diag(curvatures)
        return np.swapaxes(np.linalg.solve(whole, np.swapaxes(b, -1, -2)), -1, -2).reshape(first.shape)
    largest = np.linalg.eigvalsh(curve)[..., -1:]
    step = 1 / np.maximum(largest, np.finfo(float).tiny)
    w = v = np.zeros_like(first)
    for k in range(_STEPS):  # Nesterov's method with a proximal step
        slope = (v.reshape(b.shape) @ curve).reshape(first.shape) - first
        ahead = penalty.prox(v - step * slope, step)
        w, v = ahead, ahead + k / (k + 3) * (ahead - w)
    return w
