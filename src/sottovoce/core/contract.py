"""The contract between an algorithm and the rest of the library.

An algorithm is a frozen dataclass of hyper-parameters with six pure methods. All but `client` and `server` have
defaults. Its client half and its server half stand in one file; what passes between them is a message. It never sees
data: it asks the oracle `site.f`, and every value it uploads passes through `site.release`.

Axes. The last axis of every array is coordinates, the axis before it is clients, and an axis before that, when
there is one, is independent runs of the same experiment. What all clients share has a client axis of length one.
Client code never names the client axis, so the same method serves one client on its own machine and all clients
at once in the simulator.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, dataclass_transform, get_args

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import every, sum_over_clients
from sottovoce.core.participation import Participation
from sottovoce.core.plain import Json
from sottovoce.core.questions import ArgMin as ArgMin
from sottovoce.core.questions import Array, Asks, Descent, Penalty, ProxSteps
from sottovoce.core.questions import Part as Part
from sottovoce.core.random.streams import Draw

Mode = Literal["none", "published", "proven"]
Layout = Literal["rows", "columns"]  # how data are split between their owners
ServerState = TypeVar("ServerState")
ClientState = TypeVar("ClientState")
Down = TypeVar("Down")
Up = TypeVar("Up")
_EACH = "each client"


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Arrays:
    """A state or a message: a frozen dataclass of arrays. A subclass only lists them and needs no decorator.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.core.contract import Array, Arrays
    >>> class Down(Arrays):
    ...     w: Array
    >>> Down(np.zeros((1, 2)))
    Down(w=array([[0., 0.]]))
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(frozen=True)(cls)


def of_each_client() -> Array:
    """A field of a server's state that has a row for each client, such as everybody's last message."""
    return field(metadata={_EACH: True})


class Nothing(Arrays):
    """The state of a client that remembers nothing, or the message of a server that has nothing to say."""


@dataclass(frozen=True)
class Noise:
    """The noise a paper adds to an upload: applied by `site.release` in `Published` mode, and in no other.

    Examples
    --------
    >>> from sottovoce.core.contract import Noise
    >>> Noise("gaussian", scale=0.5)
    Noise(kind='gaussian', scale=0.5)
    """

    kind: Literal["gaussian", "laplace"]
    scale: Array | float  # standard deviation, or Laplace scale; per client (n, 1) or one number


@dataclass(frozen=True)
class Claim:
    """What a paper's published mechanism promises one round, as numbers: the (epsilon, delta) given by the user."""

    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class Oracle:
    """All that an algorithm can learn of a client's data. In `Proven` mode every answer is noisy and charged.

    The numbers are public: they may be read by anyone and cost nothing. They hold one row per client, (n, 1).

    Examples
    --------
    >>> from dataclasses import fields
    >>> from sottovoce.core.contract import Oracle
    >>> [field.name for field in fields(Oracle)][:4]
    ['grad', 'argmin', 'prox_steps', 'descent']
    """

    grad: Callable[[Array], Array]  # gradient of the client's data term at w (over a batch, if one was declared)
    argmin: Callable[..., Array]  # argmin(centre, rho, linear=0, ridge=0, start=None): see `ArgMin`
    prox_steps: Callable[[Array, ProxSteps], Array]  # from a public start: noise on the end, not on each gradient
    descent: Callable[[Array, Descent], Array]  # from a public start: full gradients, noise in every step
    moments: Callable[..., Array]  # moments(kappa, slope_bound=inf): first and second moments, see `core/moments.py`
    histogram: Callable[[Array], Array]  # counts of held-out records at the model w: see `core/histogram.py`
    size: Array  # number of records
    weight: Array  # what one record's loss counts for in f: 1/size (scale "mean") or 1 ("sum")
    noise_std: Array  # standard deviation of the noise on each coordinate of `grad`; 0 where it is exact
    gradient_bound: Array | float  # bound on the norm of one record's gradient (the clip norm, or the loss's own)
    curvature_bound: Array | float  # bound on the second derivative of one record's loss, |∇²l|; inf: none is known
    smoothness: Callable[[], Array]  # Lipschitz constant of `grad`, or a public upper bound of it (inf: none is known)
    strong_convexity: Callable[[], Array]
    dim: int


@dataclass(frozen=True, slots=True)
class ColumnOracle:
    """All that an algorithm can learn of a party's columns D_m, one row per sample (`problems/columns.py`).

    Scores have one coordinate per sample. A model x_m has one per column, and zeros up to the widest party on this
    machine, so that models of unequal width stand in one array. In `Proven` mode only `fit` and `products` answer, and
    noisily.
    """

    fit: Callable[..., Array]  # fit(target, rho, noise=0): D_m argmin_x r(x) + rho/2 |D_m x − target|²; x stays inside
    predict: Callable[..., Array]  # predict(x, rows=None): D_m x, of all samples or of those numbered `rows`
    adjoint: Callable[..., Array]  # adjoint(v, rows=None): D_m' v
    products: Callable[[float], Array]  # products(kappa): its part in all products of columns, see `core/products.py`
    width: Array  # columns of each party, (parties, 1): public
    widest: int  # coordinates of a model on this machine
    samples: int


@dataclass(frozen=True, slots=True)
class LabelOracle:
    """All that the server can learn of the labels: plain functions, wherever the labels are. l is the data term."""

    prox: Callable[[Array, Array], Array]  # prox(v, rho): argmin_z l(z) + rho/2 |z − v|²
    slope: Callable[..., Array]  # slope(scores, rows=None): ∇l, of all samples or of those numbered `rows`
    smoothness: float  # Lipschitz constant of ∇l: public
    strong: float  # strong convexity of l, negative if it is not convex: public
    samples: int


@dataclass(frozen=True, slots=True)
class Site:
    """All that a client has.

    Examples
    --------
    >>> from dataclasses import fields
    >>> from sottovoce.core.contract import Site
    >>> [field.name for field in fields(Site)]
    ['f', 'penalty', 'release', 'rng', 'k', 'who', 'claim', 'zeros']
    """

    f: Any  # an `Oracle`; where columns are split, a `ColumnOracle`
    penalty: Penalty
    release: Callable[..., Array]  # release(u, noise=None, centre=None): the only way into an upload
    rng: Draw
    k: int  # the round, from 1; 0 while states are initialised
    who: Array  # client numbers
    claim: Claim | None  # what the published mechanism is asked to promise; None outside `Published`
    zeros: Array  # (runs?, clients, dim), read-only


@dataclass(frozen=True, slots=True)
class Hub:
    """All that the server has.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import L2
    >>> from sottovoce.core.contract import Hub
    >>> answered = np.array([[True], [False], [True]])
    >>> hub = Hub(n=3, penalty=L2(0.1), rng=None, k=1, answered=answered, zeros=np.zeros((1, 2)))
    >>> hub.mean(np.array([[1.0, 2.0], [9.0, 9.0], [3.0, 4.0]]))
    array([[2., 3.]])
    """

    n: int
    penalty: Penalty
    rng: Draw
    k: int
    answered: Array  # (runs?, n, 1) of bool: whose rows of the upload are fresh (in `broadcast`: who will be asked)
    zeros: Array  # (runs?, 1, dim), read-only
    labels: LabelOracle | None = None  # where columns are split

    def mean(self, x: Array) -> Array:
        """Mean over those who answered, with a client axis of length one (zero where nobody did).

        An upload of one row is what all who answered sent on average: where only sums are seen, there is no more.
        """
        if x.shape[-2] == 1:
            return self.if_any(x, np.zeros(()))
        total = sum_over_clients(self.fresh(x, 0.0))
        if every(self.answered):
            return total / self.answered.shape[-2]
        return total / np.maximum(self.answered.sum(axis=-2, keepdims=True), 1)

    def fresh(self, new: Array, old: Array | float) -> Array:
        """Row by row: the new message of those who answered, the old one of the others. Not to be written to."""
        if new.shape[:-1] == self.answered.shape[:-1] and every(self.answered):
            return new
        return np.where(self.answered, new, old)

    def if_any(self, new: Array, old: Array) -> Array:
        """The new value; the old one in those of several runs where nobody answered. Not to be written to."""
        if new.shape == old.shape and every(self.answered):
            return new
        return np.where(self.answered.any(axis=-2, keepdims=True), new, old)


@dataclass(frozen=True)
class KnownNoise:
    """What is public about the noise in a run in which everyone answered in every round.

    Parameters
    ----------
    deviation
        Of each coordinate of the mean over clients of one answer, to the method's first kind of question.
    row_bound
        "moments": the length to which rows were cut; the answer was about rows divided by it.
    curvature
        A bound on the curvature of the data term.
    penalty
        Of the objective.
    rounds
        How many were done.
    later
        As `deviation`, for the method's second kind of question; 0 if it has none.
    """

    deviation: float
    row_bound: float
    curvature: float
    penalty: Penalty
    rounds: int
    later: float = 0.0


@functools.cache
def _first_field(state: type) -> str:
    return fields(state)[0].name


@dataclass(frozen=True)
class Algorithm(ABC, Generic[ServerState, ClientState, Down, Up]):
    """A published method, or a baseline of one. To add one: these methods, a line in `algorithms/`.

    Examples
    --------
    A whole one stands under "Add an algorithm".

    >>> from sottovoce.algorithms import ALGORITHMS
    >>> from sottovoce.core.contract import Algorithm
    >>> all(issubclass(method, Algorithm) for method in ALGORITHMS.values())
    True
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str] = ""
    modes: ClassVar[frozenset[Mode]] = frozenset({"none", "proven"})  # "published" if it adds its paper's noise
    layout: ClassVar[Layout] = "rows"
    # The classes of its states and messages, from ``Algorithm[State, State, Down, Up]``; `core/shapes.py` says how to
    # declare what messages look like.
    server_state: ClassVar[type]
    client_state: ClassVar[type]
    down: ClassVar[type]
    up: ClassVar[type]
    not_summed: ClassVar[str] = "nobody declared that its server half needs only the mean of what clients send"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in cls.__dict__.get("__orig_bases__", ()):
            kinds = get_args(base)
            if len(kinds) == 4 and all(isinstance(kind, type) for kind in kinds):
                cls.server_state, cls.client_state, cls.down, cls.up = kinds

    def __post_init__(self) -> None:
        check.fields(self)  # by their annotations: `check.Positive`, Literal, ...

    def asks(self) -> Asks:
        """What one participation costs."""
        return Asks()

    def check(self, penalty: Penalty) -> None:
        """Refuse a penalty that this method cannot handle, before any work starts."""

    def warn_about(self, participation: Participation, n: int) -> None:
        """Warn, before any work starts, if the method fails when these of `n` clients take part."""

    def why_not_sums(self, unit: str) -> str:
        """Why it cannot do with sums of what clients send, for this unit of `Proven`; "" where it can.

        Its server half must take uploads by `hub.mean` alone. For unit "record" its clients upload answers as they
        come, asked at what was broadcast; for any unit they keep nothing that they made of a release.
        """
        return self.not_summed

    def claim_terms(self, sizes: Array, rounds: int) -> Json:
        """What its paper's claim depends on besides epsilon, delta and rounds: arguments of `privacy.claims.describe`.

        Among them is `unmet`: the assumptions of the claim that this run breaks, as texts.
        """
        return {}

    def get_params(self, deep: bool = True) -> Json:
        """Its hyper-parameters by name, as scikit-learn asks for them; `deep` makes no difference."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def set_params(self, **params: object) -> Self:
        """A copy with these hyper-parameters. An algorithm is never changed in place, so use what this returns.

        Examples
        --------
        >>> from sottovoce.algorithms import DPSGD
        >>> DPSGD(batch=32).set_params(step=0.5)
        DPSGD(step=0.5, batch=32)
        """
        check.all_of(type(self).__name__, "hyper-parameter", params, self.get_params())
        return replace(self, **params)

    def init_server(self, hub: Hub) -> ServerState:
        """The server's state before the first round: zeros as long as the model, unless a method says otherwise."""
        zeros = {each.name: hub.n if each.metadata.get(_EACH) else 1 for each in fields(self.server_state)}
        return self.server_state(**{name: np.repeat(hub.zeros, rows, axis=-2) for name, rows in zeros.items()})

    def init_client(self, site: Site) -> ClientState:
        """A client's state before the first round: the same."""
        return self.client_state(**{each.name: site.zeros.copy() for each in fields(self.client_state)})

    def broadcast(self, server: ServerState, hub: Hub) -> Down:
        """What the server says now: the fields of its state that the message names, unless a method says otherwise."""
        return self.down(**{each.name: getattr(server, each.name) for each in fields(self.down)})

    @abstractmethod
    def client(self, state: ClientState, down: Down, site: Site) -> tuple[ClientState, Up]:
        """One round where the data is."""

    @abstractmethod
    def server(self, server: ServerState, up: Up, hub: Hub) -> ServerState:
        """One round at the server. Rows of `up` whose client did not answer hold nothing: use `hub`'s helpers."""

    def model(self, server: ServerState) -> Array:
        """The model as it stands, (runs?, 1, dim): the first array of the state, unless a method says otherwise."""
        return getattr(server, _first_field(self.server_state))

    def standard_errors(self, server: ServerState, noise: KnownNoise) -> Array | None:
        """Deviation of each parameter of the model that noise causes, (runs?, 1, dim); None: not known.

        It is about the distance to what the same rounds would give without noise, and post-processing.
        """
        return None

    def stop(self, server: ServerState) -> str:
        """Why to stop after this round, or "" to go on. With several runs: only when all of them should stop.

        It sees the server's state and nothing else, so in `Proven` mode it is post-processing and costs nothing.
        """
        return ""


Method = Algorithm[Any, Any, Any, Any]  # any of them, whatever its states and messages are


@dataclass(frozen=True)
class VerticalAlgorithm(Algorithm[ServerState, ClientState, Down, Up]):
    """A method for columns that are split between parties. Messages have one coordinate per sample.

    A server without a model knows the scores of the training samples instead (`model`), and each party keeps its own
    part of the model (`kept`). Or the server has the model of all columns, and `kept` is None.
    """

    layout: ClassVar[Layout] = "columns"

    @abstractmethod
    def kept(self, state: ClientState) -> "Kept | None":
        """What the party's own model follows from, found in its state; None: the server's `model` is that of all."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A party's model: as it is (`x`), or as the answer it gave in round `k` to fit(target, rho, noise)."""

    x: Array | None = None
    target: Array | None = None
    rho: Array | None = None
    noise: Array | None = None
    k: Array | None = None

    @property
    def fitted(self) -> tuple[Array, Array]:
        """The target and the rho of the fit that it follows from."""
        assert self.target is not None
        assert self.rho is not None
        return self.target, self.rho
