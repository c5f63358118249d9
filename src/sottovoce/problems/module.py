"""A neural model instead of a linear one: a PyTorch module computes the scores of the rows. Needs the extra `torch`.

`Module` says what the model is and takes the place of a loss; `ModuleRows` is the exact oracle behind it. Everything
else, from the doors to the algorithms, is the same as for a linear model. Gradients are taken example by example, so
that each can be clipped: the network sees one row at a time and cannot mix them.

PyTorch is imported when a `Module` is made, here and nowhere else in the library.
"""

import copy
import hashlib
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import InitVar, field
from importlib import import_module
from types import CodeType, NoneType
from typing import Annotated, Any, ClassVar, Literal, NoReturn, cast

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core import check
from sottovoce.core.arrays import AnyArray, Booleans, Floats, Numbers
from sottovoce.core.check import Example, InvalidInput, WholeOrZero, require
from sottovoce.core.clipping import clip_rows
from sottovoce.core.vouched import derived, vouch
from sottovoce.problems.losses import Loss
from sottovoce.problems.rows.active import ActiveClients, Block
from sottovoce.problems.rows.gradients import SlopeBound
from sottovoce.problems.rows.oracle import Rows

Network = Any  # a torch.nn.Module; PyTorch may not be installed
Tensor = Any
_FUNCTION = "Put `lambda:` in front: starting parameters are drawn under the seed"
BLOCK = 2**22  # numbers in the gradients of the examples that are held at once (32 MB)


@vouch
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

    build: InitVar[Callable[[], Network]]
    output_loss: Annotated[Loss, Example("Softmax(10)")]
    seed: WholeOrZero = 0
    precision: Literal["float64", "float32"] = "float64"
    network: str = field(init=False)
    start: str = field(init=False)

    name = "module"
    code = -1  # the compiled kernel knows linear models only
    strong = -math.inf
    outputs = derived(lambda self: self.output_loss.outputs)
    classification = derived(lambda self: self.output_loss.classification)
    probabilities = derived(lambda self: self.output_loss.probabilities)
    check_labels = derived(lambda self: self.output_loss.check_labels)
    value = derived(lambda self: self.output_loss.value)
    slope = derived(lambda self: self.output_loss.slope)
    predict = derived(lambda self: self.output_loss.predict)
    _net: ClassVar[Network]  # of each instance, like the next; ClassVar, because fields describe the model
    _origin: ClassVar[Floats]

    def __post_init__(self, build: Callable[[], Network]) -> None:
        torch = _torch()
        check.fields(self)
        linear = not isinstance(self.output_loss, Module)
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

    def trained(self, w: ArrayLike) -> Network:
        """A copy of the network with a result's model in it, to be used without this library."""
        torch, w = _torch(), np.asarray(w)
        require(w.shape == (self.dim,), "Module", f"w must be one model of {self.dim} numbers", w.shape)
        net = copy.deepcopy(self._net)
        with torch.no_grad():
            for name, value in self._parameters(self._tensor(self._origin + w)).items():
                net.get_parameter(name).copy_(value)
        return net

    # The network computes what a linear model would get by multiplying a row with its parameters.

    def scores(self, X: AnyArray, w: Floats) -> Floats:
        w = np.asarray(w, dtype=np.float64)
        require(w.shape[-1:] == (self.dim,), "Module", f"w must end in an axis of {self.dim}", w.shape)
        out = np.empty((*w.shape[:-1], len(X), self.outputs))
        rows, step = self._tensor(X), max(1, BLOCK // max(1, np.shape(X)[1]))
        for place in np.ndindex(w.shape[:-1]):
            point = self._tensor(self._origin + w[place])
            for low in range(0, len(X), step):
                out[(*place, slice(low, low + step))] = self._forward(point, rows[low : low + step])
        return out if self.outputs > 1 else out[..., 0]

    def examples(self, X: AnyArray, y: Floats, w: Floats) -> Floats:
        """The gradient of each row's loss at w (dim,): (rows, dim)."""
        each = _torch().func.vmap(_torch().func.grad(self._along), in_dims=(None, 0, 0))
        with _without_its_text():
            return each(*self._at(X, y, w)).double().numpy()

    def bounded_examples(self, X: AnyArray, y: Floats, w: Floats) -> Floats:
        """The same; a row for which the network fails has a gradient of 0.

        For doors, where an error would tell something about the rows. Each row is taken by itself, so that no row
        decides about another's gradient.
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
        """Try the network on a row of zeros: one that draws random numbers, branches on values or keeps state fails."""
        torch = _torch()
        point, row = self._tensor(self._origin), self._tensor(np.zeros((1, features)))
        slope = self._tensor(np.ones((1, self.outputs)))
        try:
            torch.func.vmap(torch.func.grad(self._along), in_dims=(None, 0, 0))(point, row, slope)
        except InvalidInput:
            raise
        except Exception as error:
            first_line = str(error).strip().split("\n")[0]
            raise InvalidInput(f"Module: the network cannot be asked row by row ({first_line})") from error

    def total(self, X: AnyArray, y: Floats, w: Floats) -> Floats:
        """The sum of `examples`, in one pass."""
        func = _torch().func

        def along_all(point: Tensor, rows: Tensor, slopes: Tensor) -> Tensor:
            return func.vmap(self._along, in_dims=(None, 0, 0))(point, rows, slopes).sum()

        with _without_its_text():
            return func.grad(along_all)(*self._at(X, y, w)).double().numpy()

    def model_size(self, columns: int) -> int:
        return self.dim

    def second(self, margin: Floats, y: Floats) -> NoReturn:
        raise InvalidInput("Module: no second derivatives of a neural model; use a method that asks for gradients")

    def prox(self, v: Floats, y: Floats, rho: Numbers) -> NoReturn:
        raise InvalidInput("Module: a neural model is for rows split between clients, not for columns")

    # Tensors in and out.

    def _along(self, point: Tensor, row: Tensor, slope: Tensor) -> Tensor:
        """A number whose gradient is that of the row's loss, by the chain rule."""
        return (self._outputs(point, row) * slope).sum()

    def _at(self, X: AnyArray, y: Floats, w: Floats) -> tuple[Tensor, Tensor, Tensor]:
        """The point, the rows, and the slopes of their losses there."""
        point, rows = self._tensor(self._origin + w), self._tensor(X)
        outputs = self._forward(point, rows)
        slopes = self.output_loss.slope(outputs if self.outputs > 1 else outputs[:, 0], y)
        return point, rows, self._tensor(slopes.reshape(len(X), self.outputs))

    def _forward(self, point: Tensor, rows: Tensor) -> Floats:
        torch = _torch()
        with torch.no_grad(), _without_its_text():
            return torch.func.vmap(self._outputs, in_dims=(None, 0))(point, rows).double().numpy()

    def _outputs(self, point: Tensor, row: Tensor) -> Tensor:
        out = _torch().func.functional_call(self._net, self._parameters(point), (row.unsqueeze(0),))
        if out.shape[:1] != (1,) or out.numel() != self.outputs:
            raise InvalidInput(
                f"Module: {self.output_loss!r} needs {self.outputs} outputs a row, the network gives shape "
                f"{tuple(out.shape)} for one row of {len(row)} features. Change its last layer"
            )
        return out.reshape(self.outputs)

    def _parameters(self, point: Tensor) -> dict[str, Tensor]:
        """A flat vector as the network's named parameters that are trained; the others stay as they are."""
        named: dict[str, Tensor] = {}
        low = 0
        for name, parameter in self._net.named_parameters():
            if parameter.requires_grad:
                named[name] = point[low : low + parameter.numel()].reshape(parameter.shape)
                low += parameter.numel()
        return named

    def _tensor(self, array: AnyArray) -> Tensor:
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
        self.point_shape = (self.dim,)
        loss.try_on_zeros(self.features)  # whether it takes such rows, before it is asked

    def clipped_examples(self, w: Floats, client: int, clip: float, norm: int = 2, some: slice = slice(None)) -> Floats:
        rows = self._rows_of(client, some)
        return clip_rows(self.loss.bounded_examples(self.X[rows], self.y[rows], w), clip, norm)

    def truncated_sums(self, *_: object, **__: object) -> None:
        """None: not compiled."""

    def smoothness(self, clients: ArrayLike | None = None) -> Floats:
        return np.full((len(self.active(clients).clients), 1), np.inf)

    def strong_convexity(self, clients: ArrayLike | None = None) -> Floats:
        return -self.smoothness(clients)

    def longest_row(self, clients: ArrayLike | None = None) -> Floats:
        """Unknown: a row's length says nothing about its gradient."""
        return self.smoothness(clients)

    def argmin(self, *_: object, **__: object) -> NoReturn:
        instead = "use a method that asks for gradients, such as FedAvg or DPSGD"
        raise InvalidInput(f"Module: the arg-min of a neural model is not offered, since it is not convex; {instead}")

    def margins_at(self, X: Floats, point: Floats, block: Block) -> Floats:
        if len(point) == 1:
            return self.loss.scores(X, point[0])
        each = enumerate(zip(block.bounds[:-1], block.bounds[1:], strict=True), start=block.low)
        return np.concatenate([self.loss.scores(X[low:high], point[i]) for i, (low, high) in each])

    @np.errstate(over="ignore", invalid="ignore")
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


def _digest(net: Network) -> str:
    """A digest of all that decides the network's outputs, as far as it can be seen: state, attributes and code."""
    digest = hashlib.sha256()
    for name, tensor in net.state_dict(keep_vars=False).items():
        array = np.ascontiguousarray(tensor.detach().cpu().numpy())
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    for name, buffer in net.named_buffers():  # also those that are not in the state
        digest.update(f"{name} {buffer.detach().cpu().numpy().tolist()!r} ".encode())
    for name, part in net.named_modules():
        plain = {key: value for key, value in cast(dict[str, object], vars(part)).items() if _plain(value)}
        digest.update(f"{name} {type(part).__module__}.{type(part).__qualname__} {sorted(plain.items())!r} ".encode())
        for kind in type(part).__mro__:
            if not kind.__module__.startswith(("torch.", "builtins")):
                for function in vars(kind).values():
                    digest.update(repr(_code(getattr(function, "__code__", None))).encode())
    return digest.hexdigest()


def _plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_plain, cast(Sequence[object], value)))
    return isinstance(value, bool | int | float | str | NoneType)


def _code(code: object) -> object:
    """A function's code without its line numbers; functions inside it likewise."""
    if not isinstance(code, CodeType):
        return None
    return code.co_code, code.co_names, [_code(each) or repr(each) for each in code.co_consts]


def _refuse_batch_norm(torch: Any, net: Network) -> None:
    for name, part in net.named_modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            raise InvalidInput(
                f"Module: layer {name or 'itself'!r} is {type(part).__name__}, which mixes examples: one record would "
                "change the gradients of the others, and clipping would bound nothing. Use GroupNorm or LayerNorm"
            )


@contextmanager
def _without_its_text() -> Generator[None, None, None]:
    """Replace an error of PyTorch by ours, without its text: that may contain numbers of a private row."""
    try:
        yield
    except InvalidInput:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise InvalidInput(
            f"Module: the network could not be asked about a row ({kind}); try it on public rows"
        ) from None
