"""Ways to divide rows between simulated clients.

Every function returns `groups`: one whole number per row, the client that owns it. All clients 0..n-1 own at least
one row, and the same seed gives the same answer. These random numbers shape an experiment; they are not privacy noise.
"""

import heapq
import inspect
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core import check
from sottovoce.core.arrays import AnyArray, Integers

_LARGEST_ALPHA = 1e9  # shares are equal to five digits by then, and NumPy's sampler overflows further out


def iid(rows: int, clients: int, seed: int) -> Integers:
    """Shuffled rows in parts whose sizes differ by at most one."""
    _check_counts("iid", rows, clients, seed)
    return np.random.default_rng(seed).permutation(np.arange(rows) % clients)


def dirichlet(y: ArrayLike, clients: int, alpha: float, seed: int, at_least: int = 1) -> Integers:
    """Label skew: each class is shared out in proportions drawn from Dirichlet(alpha, ..., alpha).

    A small `alpha` gives most of a class to few clients, a large one gives everyone the same mix. A draw that leaves a
    client below `at_least` rows is repaired, not repeated (with many clients no draw would ever pass): rows chosen at
    random move, one by one, from the client that is largest at that moment.
    """
    labels = _labels("dirichlet", y)
    _check_counts("dirichlet", len(labels), clients, seed)
    check.positive("dirichlet", alpha=alpha)
    check.Interval(1, whole=True).check("dirichlet", "at_least", at_least)
    needed = clients * at_least
    rule = f"{clients} clients of at_least={at_least} need {needed} rows"
    check.require(needed <= len(labels), "dirichlet", rule, len(labels))
    rng = np.random.default_rng(seed)
    groups = np.empty(len(labels), dtype=np.int64)
    _, class_of, counts = np.unique(labels, return_inverse=True, return_counts=True)
    for of_one_class in np.split(np.argsort(class_of, kind="stable"), np.cumsum(counts)[:-1]):
        members = rng.permutation(of_one_class)
        shares = rng.dirichlet(np.full(clients, min(alpha, _LARGEST_ALPHA)))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(members))
        groups[members] = np.searchsorted(cuts, np.arange(len(members)), side="right")
    return _top_up(groups, clients, at_least, rng)


def by_size(sizes: ArrayLike, seed: int) -> Integers:
    """Shuffled rows in parts of the given sizes; their sum is the number of rows."""
    counts = np.asarray(sizes)
    usable = counts.ndim == 1 and counts.size > 0 and np.issubdtype(counts.dtype, np.integer) and counts.min() >= 1
    check.require(bool(usable), "by_size", "sizes must be a list of whole numbers >= 1")
    check.whole("by_size", at_least=0, seed=seed)
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))


def lognormal_sizes(rows: int, clients: int, spread: float, seed: int) -> Integers:
    """Sizes >= 1 that add up to `rows`, proportional to exp(spread * N(0, 1)); spread 0 is equal sizes."""
    _check_counts("lognormal_sizes", rows, clients, seed)
    check.non_negative("lognormal_sizes", spread=spread)
    draws = np.random.default_rng(seed).standard_normal(clients)
    with np.errstate(over="ignore"):  # the largest weight is 1, the others may vanish
        weights = np.exp(spread * (draws - draws.max()))
    shares = (rows - clients) * weights / weights.sum()  # everyone has one row already
    sizes = np.floor(shares).astype(np.int64)
    left = rows - clients - sizes.sum()
    sizes[np.argsort(sizes - shares, kind="stable")[:left]] += 1  # largest remainders first
    return sizes + 1


def lognormal(rows: int, clients: int, spread: float, seed: int) -> Integers:
    """Shuffled rows in parts of lognormal sizes."""
    return by_size(lognormal_sizes(rows, clients, spread, seed), seed)


def by_column(values: ArrayLike) -> tuple[Integers, tuple[str, ...]]:
    """One client per distinct value, in sorted order: `groups` and the clients' names."""
    names, groups = np.unique(_labels("by_column", values), return_inverse=True)
    return groups.astype(np.int64), tuple(str(name) for name in names)


def random_cuts(rows: int, clients: int, seed: int) -> Integers:
    """Very unequal parts (FedEPM): shuffled rows, clients - 1 random cuts, parts larger than 0.01 * rows / clients.

    The paper draws again until the smallest part is large enough. That succeeds with probability near
    0.99^(clients - 1), so never for thousands of clients. Cuts accepted in this way are uniform over all admissible
    ones, and so are these, without a loop: every part gets its smallest size less one, the rest is cut at random.
    """
    _check_counts("random_cuts", rows, clients, seed)
    rng = np.random.default_rng(seed)
    reserved = rows // (100 * clients)  # exact floor of 0.01 * rows / clients: parts of reserved + 1 exceed the bound
    free = rows - clients * reserved
    cuts = np.sort(rng.choice(free - 1, size=clients - 1, replace=False)) + 1
    sizes = np.diff(cuts, prepend=0, append=free) + reserved
    return rng.permutation(np.repeat(np.arange(clients), sizes))


def make(kind: str, y: ArrayLike, clients: int, seed: int, **options: float) -> Integers:
    """The partition called `kind` (a key of `PARTITIONS`) of the rows labelled `y`; options as `kind` needs them."""
    check.one_of("partition", "kind", kind, PARTITIONS)
    parameters, labels = inspect.signature(PARTITIONS[kind]).parameters, _labels(kind, y)
    known = [name for name in parameters if name not in NO_OPTIONS]
    check.options(kind, options, known)
    for name in known:
        stated = name in options or parameters[name].default is not inspect.Parameter.empty
        check.require(stated, kind, f"needs the option {name!r}")
    rows = {"y": labels} if "y" in parameters else {"rows": len(labels)}
    return PARTITIONS[kind](**rows, clients=clients, seed=seed, **options)


PARTITIONS: dict[str, Callable[..., Integers]] = {
    "iid": iid, "dirichlet": dirichlet, "lognormal": lognormal, "random-cuts": random_cuts
}  # fmt: skip
NO_OPTIONS = ("y", "rows", "clients", "seed")  # parameters of partitions that follow from the rows and from [data]


def _top_up(groups: Integers, clients: int, at_least: int, rng: np.random.Generator) -> Integers:
    """Move rows from the largest clients until everyone has `at_least`; the caller knows that enough rows exist."""
    sizes = np.bincount(groups, minlength=clients)
    missing = np.maximum(at_least - sizes, 0)
    largest_first = [(-int(size), client) for client, size in enumerate(sizes)]
    heapq.heapify(largest_first)
    gives = np.zeros(clients, dtype=np.int64)
    for _ in range(missing.sum()):
        size, client = largest_first[0]
        gives[client] += 1
        heapq.heapreplace(largest_first, (size + 1, client))
    shuffled = rng.permutation(len(groups))
    by_owner = shuffled[np.argsort(groups[shuffled], kind="stable")]
    place = np.arange(len(groups)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # of a row within its owner's
    moved = by_owner[place < np.repeat(gives, sizes)]
    groups[rng.permutation(moved)] = np.repeat(np.arange(clients), missing)
    return groups


def _labels(who: str, y: ArrayLike) -> AnyArray:
    labels = check.any_array(who, "y", y)
    check.require(labels.ndim == 1 and labels.size > 0, who, "needs one value per row", labels.shape)
    if labels.dtype == object:  # how pandas hands over text
        kinds = sorted({type(value).__name__ for value in labels})
        check.require(kinds == ["str"], who, "needs numbers, or text in every row", ", ".join(kinds))
        labels = labels.astype(str)
    known = labels.dtype.kind != "f" or not np.isnan(labels).any()
    rule = "needs a value in every row, got NaN. Drop these rows, or fill them in without looking"
    check.require(bool(known), who, rule)
    return labels


def _check_counts(who: str, rows: int, clients: int, seed: int) -> None:
    check.whole(who, rows=rows, clients=clients)
    check.whole(who, at_least=0, seed=seed)
    check.require(clients <= rows, who, f"clients must be <= rows = {rows} so that everyone has a row", clients)
