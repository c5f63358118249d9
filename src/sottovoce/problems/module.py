"""A neural model in place of a linear one: the rows' scores come out of a PyTorch module. Extra `torch`.

`Module` says what the model is and takes the place of a loss; `ModuleRows` is the exact oracle behind it. Everything
else, from the doors to the algorithms, is the same as for a linear model. Gradients are taken example by example, so
that each can be clipped: the network sees one row at a time and cannot mix them.

PyTorch is imported when a `Module` is made, here and nowhere else in the library.
"""

import copy
import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import InitVar, dataclass, field
from importlib import import_module
from types import CodeType, NoneType
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core import check
from sottovoce.core.arrays import Booleans, Floats
from sottovoce.core.check import InvalidInput, WholeOrZero, require
from sottovoce.core.clipping import clip_rows
from sottovoce.core.derived import derived
from sottovoce.core.vouched import vouch
from sottovoce.problems.losses import Loss
from sottovoce.problems.rows.active import ActiveClients, Block
from sottovoce.problems.rows.gradients import SlopeBound
from sottovoce.problems.rows.oracle import Rows

_FUNCTION = "Put `lambda:` in front: starting parameters are drawn under the seed"
BLOCK = 2**22  # numbers in the gradients of the examples that are held at once (32 MB)


@vouch
@dataclass(frozen=True)
class Module(Loss):
    """The loss of a network's outputs, as a function of *how far its parameters are from where they start*.

    An algorithm starts from zero, and a network must not start with all its weights there. So the parameters are
    start + w, with a public start that a seed decides: w = 0 is the start, and a penalty pulls towards it.

    Parameters
    ----------
    build
        Makes the network, a ``torch.nn.Module`` that takes rows (1, features) and gives outputs (1, outputs). It is
        called once, under `seed`, and must not look at private data: what it returns is public. Parameters that need
        no gradient stay as they are. Dropout is off.
    output_loss
        A loss of ``losses.py`` on those outputs, e.g. ``Softmax(10)``, ``Logistic()``, ``Squared()``.
    seed
        Of the starting parameters.
    precision
        What the network computes in. Clipping and sums are float64 in any case.

    Attributes
    ----------
    network, start
        The layers as PyTorch prints them, and a digest of everything the network starts with: all parameters and
        buffers, also those that are not trained, plain attributes, and the code of its layers. It is what noise is
        bound to and what is saved of the model. A saved run of a neural model cannot be loaded without its code.
    """

    build: InitVar[Callable[[], Any]]
    output_loss: Loss
    seed: WholeOrZero = 0
    precision: Literal["float64", "float32"] = "float64"
    network: str = field(init=False)
    start: str = field(init=False)

    name = "module"
    code = -1  # the compiled kernel knows linear models only
    strong = -math.inf
    _net: ClassVar[Any]  # of the instance, like the next: called so to be no fields, which are the model's description
    _origin: ClassVar[np.ndarray]

    def __post_init__(self, build: Callable[[], Any]) -> None:
        torch = _torch()
        check.fields(self)
        linear = isinstance(self.output_loss, Loss) and not isinstance(self.output_loss, Module)
        require(linear, "Module", "output_loss must be a loss such as Softmax(10)", self.output_loss)
        function = callable(build) and not isinstance(build, torch.nn.Module)
        require(function, "Module", "build must be a function that makes the network", type(build).__name__, _FUNCTION)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            made = build()
        require(isinstance(made, torch.nn.Module), "Module", "build must return a torch.nn.Module", type(made).__name__)
        _refuse_batch_norm(torch, made)
        made = made.to(device="cpu", dtype=getattr(torch, self.precision)).eval()
        flat = [p.detach().double().numpy().ravel() for p in made.parameters() if p.requires_grad]
        require(bool(flat), "Module", "the network must have parameters to train")
        origin = np.concatenate(flat)
        require(bool(np.isfinite(origin).all()), "Module", "the starting parameters must be finite")
        kept = {"_net": made, "_origin": origin, "network": str(made), "start": _digest(made)}
        for name, value in kept.items():
            object.__setattr__(self, name, value)

    @property
    def dim(self) -> int:
        """Number of parameters that are trained."""
        return len(self._origin)

    def trained(self, w: ArrayLike) -> Any:
        """A copy of the network with a result's model in it, to be used without this library."""
        torch, w = _torch(), np.asarray(w)
        require(w.shape == (self.dim,), "Module", f"w must be one model of {self.dim} numbers", w.shape)
        net = copy.deepcopy(self._net)
        with torch.no_grad():
            for name, value in self._parameters(self._tensor(self._origin + w)).items():
                net.get_parameter(name).copy_(value)
        return net

    # Where a linear model would multiply a row by its parameters, the network is asked.

    def scores(self, X: np.ndarray, w: np.ndarray) -> np.ndarray:
        X, w = np.asarray(X, dtype=np.float64), np.asarray(w, dtype=np.float64)
        require(w.shape[-1:] == (self.dim,), "Module", f"w must end in an axis of {self.dim}", w.shape)
        out = np.empty((*w.shape[:-1], len(X), self.outputs))
        rows, step = self._tensor(X), max(1, BLOCK // max(1, X.shape[1]))
        for place in np.ndindex(w.shape[:-1]):
            point = self._tensor(self._origin + w[place])
            for low in range(0, len(X), step):
                out[(*place, slice(low, low + step))] = self._forward(point, rows[low : low + step])
        return out if self.outputs > 1 else out[..., 0]

    def examples(self, X: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
        """The gradient of each row's loss at w (dim,): (rows, dim)."""
        each = _torch().func.vmap(_torch().func.grad(self._along), in_dims=(None, 0, 0))
        with _said():
            return each(*self._at(X, y, w)).double().numpy()

    def bounded_examples(self, X: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
        """The same; a row that the network cannot be asked about has a gradient of 0.

        For doors, at which an error would tell something of the rows; and each row by itself, so that no row decides
        about another's gradient.
        """
        try:
            return self.examples(X, y, w)
        except Exception:
            answer = np.zeros((len(X), self.dim))
            for j in range(len(X)):
                with suppress(Exception):
                    answer[j] = self.examples(X[j : j + 1], y[j : j + 1], w)[0]
            return answer

    def try_on_zeros(self, features: int) -> None:
        """Ask the network about a made-up row: a network that draws, branches on values or keeps state fails."""
        torch = _torch()
        point, row = self._tensor(self._origin), self._tensor(np.zeros((1, features)))
        slope = self._tensor(np.ones((1, self.outputs)))
        try:
            torch.func.vmap(torch.func.grad(self._along), in_dims=(None, 0, 0))(point, row, slope)
        except InvalidInput:
            raise
        except Exception as error:
            said = str(error).strip().split("\n")[0]
            raise InvalidInput(f"Module: the network cannot be asked row by row ({said})") from error

    def total(self, X: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
        """The sum of `examples`, in one pass."""
        along_all = _torch().func.vmap(self._along, in_dims=(None, 0, 0))
        with _said():
            return _torch().func.grad(lambda *at: along_all(*at).sum())(*self._at(X, y, w)).double().numpy()

    @derived
    def outputs(self) -> int:
        return self.output_loss.outputs

    @derived
    def classification(self) -> bool:
        return self.output_loss.classification

    def model_size(self, columns: int) -> int:
        return self.dim

    def check_labels(self, y: ArrayLike) -> np.ndarray:
        return self.output_loss.check_labels(y)

    def value(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self.output_loss.value(margin, y)

    def slope(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self.output_loss.slope(margin, y)

    def second(self, margin: np.ndarray, y: np.ndarray) -> NoReturn:
        raise InvalidInput("Module: no second derivatives of a neural model; use a method that asks for gradients")

    def prox(self, v: np.ndarray, y: np.ndarray, rho: float | np.ndarray) -> NoReturn:
        raise InvalidInput("Module: a neural model is for rows split between clients, not for columns")

    def predict(self, margin: np.ndarray) -> np.ndarray:
        return self.output_loss.predict(margin)

    # Tensors in and out.

    def _along(self, point: Any, row: Any, slope: Any) -> Any:
        """A number whose gradient is that of the row's loss, by the chain rule."""
        return (self._outputs(point, row) * slope).sum()

    def _at(self, X: np.ndarray, y: np.ndarray, w: np.ndarray) -> tuple[Any, Any, Any]:
        """The point, the rows, and the slopes of their losses there."""
        point, rows = self._tensor(self._origin + w), self._tensor(X)
        outputs = self._forward(point, rows)
        slopes = self.output_loss.slope(outputs if self.outputs > 1 else outputs[:, 0], y)
        return point, rows, self._tensor(slopes.reshape(len(X), self.outputs))

    def _forward(self, point: Any, rows: Any) -> np.ndarray:
        torch = _torch()
        with torch.no_grad(), _said():
            return torch.func.vmap(self._outputs, in_dims=(None, 0))(point, rows).double().numpy()

    def _outputs(self, point: Any, row: Any) -> Any:
        out = _torch().func.functional_call(self._net, self._parameters(point), (row.unsqueeze(0),))
        if out.shape[:1] != (1,) or out.numel() != self.outputs:
            raise InvalidInput(
                f"Module: {self.output_loss!r} needs {self.outputs} outputs a row, the network gives shape "
                f"{tuple(out.shape)} for one row of {len(row)} features. Change its last layer"
            )
        return out.reshape(self.outputs)

    def _parameters(self, point: Any) -> dict[str, Any]:
        """A flat vector as the network's named parameters; what is not in it stays as the network has it."""
        named, low = {}, 0
        for name, parameter in self._net.named_parameters():
            if parameter.requires_grad:
                named[name] = point[low : low + parameter.numel()].reshape(parameter.shape)
                low += parameter.numel()
        return named

    def _tensor(self, array: np.ndarray) -> Any:
        torch = _torch()
        return torch.from_numpy(np.array(array, dtype=np.float64)).to(getattr(torch, self.precision))


class ModuleRows(Rows):
    """f_i(w) = weight_i * sum over the rows j of client i of output_loss(network(x_j; start + w), y_j).

    One client after the other, so that what a client gets does not depend on who else is asked. Nothing is known of
    f_i's curvature, and its arg-min is not offered: it is not convex.
    """

    loss: Module

    def __init__(
        self, X: ArrayLike, y: ArrayLike, offsets: ArrayLike, loss: Module, scale: str | float = "mean"
    ) -> None:
        super().__init__(X, y, offsets, loss, scale, engine="numpy")
        loss.try_on_zeros(self.features)  # whether it takes such rows, before it is asked

    def clipped_examples(
        self, w: np.ndarray, client: int, clip: float, norm: int = 2, some: np.ndarray | None = None
    ) -> np.ndarray:
        start, end = int(self.offsets[client]), int(self.offsets[client + 1])
        rows = slice(start, end) if some is None else start + some
        return clip_rows(self.loss.bounded_examples(self.X[rows], self.y[rows], w), clip, norm)

    def smoothness(self, clients: ArrayLike | None = None) -> np.ndarray:
        return np.full((len(self.active(clients).clients), 1), np.inf)

    def strong_convexity(self, clients: ArrayLike | None = None) -> np.ndarray:
        return -self.smoothness(clients)

    def longest_row(self, clients: ArrayLike | None = None) -> np.ndarray:
        """Unknown: a row's length says nothing about its gradient."""
        return self.smoothness(clients)

    def _subproblems(self, *_: Any, **__: Any) -> NoReturn:
        raise InvalidInput(
            "Module: the arg-min of a neural model is not offered, since it is not convex; use a method that asks for "
            "gradients, such as FedAvg or DPSGD"
        )

    def _points(self, w: Floats, active: ActiveClients) -> Floats:
        """`w` as (runs, clients or 1, dim)."""
        w, n = np.asarray(w, dtype=np.float64), len(active.sizes)
        fits = w.ndim in (2, 3) and w.shape[-1] == self.dim and w.shape[-2] in (1, n)
        require(fits, "Rows", f"w must have shape ([runs,] {n} or 1, {self.dim})", w.shape)
        return w if w.ndim == 3 else w[None]

    def margins_at(self, X: Floats, point: Floats, block: Block) -> Floats:
        if len(point) == 1:
            return self.loss.scores(X, point[0])
        each = enumerate(zip(block.bounds[:-1], block.bounds[1:], strict=True), start=block.low)
        return np.concatenate([self.loss.scores(X[low:high], point[i]) for i, (low, high) in each])

    def _gradients(self, active: ActiveClients, points: Floats, bound: SlopeBound, keep: Booleans) -> Floats:
        runs, step = max(len(points), len(keep)), max(1, BLOCK // self.dim)
        answer = np.zeros((runs, len(active.sizes), self.dim))
        for run, i in np.ndindex(answer.shape[:2]):
            point = points[run if len(points) > 1 else 0]
            rows = active.starts[i] + np.arange(int(active.sizes[i]))
            if len(keep):
                rows = rows[keep[run if len(keep) > 1 else 0, active.bounds[i] : active.bounds[i + 1]]]
            for low in range(0, len(rows), step):
                some = rows[low : low + step]
                at = self.X[some], self.y[some], point[i if len(point) > 1 else 0]
                if bound.bound < np.inf:
                    answer[run, i] += clip_rows(self.loss.bounded_examples(*at), bound.bound, bound.norm).sum(axis=0)
                else:
                    answer[run, i] += self.loss.total(*at)
        return answer * self.weights[active.clients]


def _torch() -> Any:
    try:
        return import_module("torch")
    except ImportError:
        raise InvalidInput(
            "Module: a neural model needs PyTorch. Install the extra: pip install 'sottovoce[torch]' (its CPU build is "
            "enough)"
        ) from None


def _digest(net: Any) -> str:
    """Of all that the network's outputs follow from, as far as it can be seen: state, attributes and code."""
    digest = hashlib.sha256()
    for name, tensor in net.state_dict(keep_vars=False).items():
        array = np.ascontiguousarray(tensor.detach().cpu().numpy())
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    for name, buffer in net.named_buffers():  # those that are not in the state too
        digest.update(f"{name} {buffer.detach().cpu().numpy().tolist()!r} ".encode())
    for name, part in net.named_modules():
        plain = {key: value for key, value in vars(part).items() if _plain(value)}
        digest.update(f"{name} {type(part).__module__}.{type(part).__qualname__} {sorted(plain.items())!r} ".encode())
        for kind in type(part).__mro__:
            if not kind.__module__.startswith(("torch.", "builtins")):
                for function in vars(kind).values():
                    digest.update(repr(_code(getattr(function, "__code__", None))).encode())
    return digest.hexdigest()


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return isinstance(value, bool | int | float | str | NoneType)


def _code(code: Any) -> Any:
    """A function's code without the lines it stands on; functions inside it likewise."""
    if not isinstance(code, CodeType):
        return None
    return code.co_code, code.co_names, [_code(each) or repr(each) for each in code.co_consts]


def _refuse_batch_norm(torch: Any, net: Any) -> None:
    for name, part in net.named_modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            raise InvalidInput(
                f"Module: layer {name or 'itself'!r} is {type(part).__name__}, which mixes examples: one record would "
                "change the gradients of the others, and clipping would bound nothing. Use GroupNorm or LayerNorm"
            )


@contextmanager
def _said() -> Iterator[None]:
    """An error of PyTorch as ours, without its words: they may hold numbers of a private row."""
    try:
        yield
    except InvalidInput:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise InvalidInput(
            f"Module: the network could not be asked about a row ({kind}); try it on public rows"
        ) from None
