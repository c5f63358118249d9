"""Local solvers: how a client approximately minimises its own smooth, strongly convex problem d within a round.

An algorithm gives the gradient of d, a start and the moduli of d, and gets back the last iterate. Each step asks for
one gradient. A solver for random batches only says how large they are (`batch`): the oracle draws them, because the
algorithm has declared `Asks.every_round(solver.answers, batch=solver.batch)`.

A number that differs between clients is a sequence indexed by client number, or an (n, 1) array for the clients at
hand. To add a solver, write a subclass with one method, `advance`, or a frozen dataclass with `solve`, `answers` and
`batch`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, ClassVar, Literal

import numpy as np

from sottovoce.core import check
from sottovoce.core.contract import Array
from sottovoce.core.plain import Json
from sottovoce.core.random.streams import Draw

LocalSteps = Literal["gradient", "accelerated"]  # what most methods with local steps offer
Real = float | Sequence[float] | Array
Whole = int | Sequence[int] | Array
Steps = Annotated[Whole, check.Interval(1, whole=True, each=True)]


@dataclass(frozen=True)
class Local:
    """What a solver knows about the local problem d besides its gradient: moduli, random numbers, client numbers."""

    strong: Array | float
    smooth: Array | float
    rng: Draw | None
    who: Array | None

    def pick(self, value: Real) -> Array | float:
        """A number that may differ between clients, for the clients at hand."""
        if not isinstance(value, Sequence):
            return value
        if self.who is None:
            raise check.InvalidInput("Solver: one number per client needs solve(..., who=site.who)")
        last = int(self.who.max())
        check.require(last < len(value), "Solver", f"needs one number for each of {last + 1} clients", len(value))
        return np.asarray(value)[self.who][:, None]


@dataclass(frozen=True)
class Solver(ABC):
    """`steps` gradients a round, each over about `batch` records (a share of them if < 1; 0: all)."""

    steps: Steps = 10
    batch: check.NonNegative = field(default=0, kw_only=True)

    name: ClassVar[str]

    def __post_init__(self) -> None:
        check.fields(self)

    @property
    def answers(self) -> int:
        """Oracle answers a round: the largest number of steps any client takes."""
        return int(np.max(self.steps))

    def solve(
        self,
        gradient: Callable[[Array], Array],
        start: Array,
        strong: Array | float,
        smooth: Array | float,
        rng: Draw | None = None,
        who: Array | None = None,
    ) -> Array:
        """The last iterate. A client with fewer steps than others stays at its own last iterate, but is still asked.

        Parameters
        ----------
        gradient
            Gradient of the local problem d.
        start
            First iterate: (runs?, clients, dim), or with a client axis of length one.
        strong, smooth
            Moduli of d: strong convexity and Lipschitz constant of its gradient, (n, 1) or one number.
        rng, who
            `site.rng` for solvers that draw, `site.who` for numbers per client.
        """
        local = Local(strong, smooth, rng, who)
        steps = local.pick(self.steps)
        w, memory = start, start
        for done in range(self.answers):
            new, memory = self.advance(w, memory, gradient(w), local)
            w = new if np.ndim(steps) == 0 else np.where(done < steps, new, w)
        return w

    @abstractmethod
    def advance(self, w: Array, memory: Array, g: Array, local: Local) -> tuple[Array, Array]:
        """One step from `w`, where the gradient is `g`: the next point and the next `memory` (at first: the start)."""


@dataclass(frozen=True)
class Gradient(Solver):
    """Gradient descent. `step`: one number or one per client; None: 2/(strong + smooth), the fastest."""

    step: Annotated[Real, check.Interval(0, each=True)] | None = None

    name: ClassVar[str] = "gradient"

    def advance(self, w: Array, memory: Array, g: Array, local: Local) -> tuple[Array, Array]:
        return w - self.length(local) * g, memory

    def length(self, local: Local) -> Array | float:
        """The step size of the clients at hand."""
        if self.step is not None:
            return local.pick(self.step)
        return 2 / (local.strong + _finite(local.smooth, self, "step=..."))


@dataclass(frozen=True)
class Stochastic(Gradient):
    """Gradient descent on random batches: `batch` must be given."""

    batch: check.Positive = field(default=0, kw_only=True)

    name: ClassVar[str] = "stochastic"


@dataclass(frozen=True)
class Noisy(Gradient):
    """Gradient descent that adds Gaussian noise of deviation `noise_std` to every coordinate after every step.

    It reproduces what papers do, and promises no privacy by itself: in `Proven` mode the oracle's answers are noisy
    already, and this noise is added to theirs.
    """

    noise_std: Annotated[Real, check.Interval(0, closed=("low",), each=True)] = 0.0

    name: ClassVar[str] = "noisy"

    def advance(self, w: Array, memory: Array, g: Array, local: Local) -> tuple[Array, Array]:
        if local.rng is None:
            raise check.InvalidInput("Noisy: needs random numbers, solve(..., rng=site.rng)")
        new, memory = super().advance(w, memory, g, local)
        return new + local.pick(self.noise_std) * local.rng.normal(new.shape[-1]), memory


@dataclass(frozen=True)
class Accelerated(Solver):
    """Nesterov's method with constant momentum (√κ−1)/(√κ+1), κ = smooth/strong, restarted in every round.

    It returns the extrapolated point, as Fed-PLT (12) does.
    """

    name: ClassVar[str] = "accelerated"

    def advance(self, w: Array, memory: Array, g: Array, local: Local) -> tuple[Array, Array]:
        smooth, strong = np.sqrt(_finite(local.smooth, self, "solver='gradient' with a step")), np.sqrt(local.strong)
        u = w - g / smooth**2
        return u + (smooth - strong) / (smooth + strong) * (u - memory), u


@dataclass(frozen=True)
class PerAgent(Solver):
    """A solver for each client: `solvers[i]` for client i. All share one `batch`, as one gradient call serves them."""

    solvers: tuple[Solver, ...] = ()
    steps: Whole = field(init=False)
    batch: float = field(init=False)

    name: ClassVar[str] = "per-agent"

    def __post_init__(self) -> None:
        check.require(len(self.solvers) > 0, "PerAgent", "needs one solver per client", self.solvers)
        single = all(isinstance(solver.steps, int) for solver in self.solvers)
        check.require(single, "PerAgent", "steps of each solver must be one number")
        batches = sorted({solver.batch for solver in self.solvers})
        hint = "Privacy noise is calibrated from the batch, which is declared once for all clients: give all the same"
        check.require(len(batches) == 1, "PerAgent", f"all solvers must have the same batch, got {batches}", hint=hint)
        object.__setattr__(self, "steps", tuple(solver.steps for solver in self.solvers))
        object.__setattr__(self, "batch", batches[0])

    def advance(self, w: Array, memory: Array, g: Array, local: Local) -> tuple[Array, Array]:
        # Every solver moves every row, and each client keeps the row of its own solver. So random numbers are drawn in
        # the same order for any set of clients, and a client alone computes what it computes among the others.
        new, new_memory, w = w, memory, np.broadcast_to(w, g.shape)
        for solver in (solver for i, solver in enumerate(self.solvers) if solver not in self.solvers[:i]):
            uses_it = local.pick([each == solver for each in self.solvers])
            moved, remembered = solver.advance(w, memory, g, local)
            new, new_memory = np.where(uses_it, moved, new), np.where(uses_it, remembered, new_memory)
        return new, new_memory


SOLVERS: dict[str, type[Solver]] = {solver.name: solver for solver in (Gradient, Accelerated, Stochastic, Noisy)}


def make(solver: str | Solver, steps: Whole, **options: object) -> Solver:
    """The solver of this name with those options that are not None; or `solver` itself if it is an object."""
    if not isinstance(solver, str):
        return solver
    kind = SOLVERS[check.one_of("Solver", "solver", solver, SOLVERS)]
    stated: Json = {name: value for name, value in options.items() if value is not None}
    check.all_of(f"Solver {solver!r}", "option", stated, [each.name for each in fields(kind)])
    return kind(steps, **stated)


def _finite(smooth: Array | float, solver: Solver, instead: str) -> Array | float:
    if np.isfinite(smooth).all():
        return smooth
    raise check.InvalidInput(
        f"{type(solver).__name__}: the step needs a public bound on row lengths ({check.ROW_BOUND}), or give {instead}"
    )
