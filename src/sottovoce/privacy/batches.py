"""Random batches: how many records each client draws, and which."""

import numpy as np


def batch_rates(batch: float, sizes: np.ndarray, whole: bool) -> np.ndarray:
    """The share of its records each client draws for a batch of `batch` records (or that share of them, if < 1)."""
    if batch == 0:
        return np.broadcast_to(1.0, np.shape(sizes))
    drawn = np.minimum(batch * sizes if batch < 1 else np.full(np.shape(sizes), float(batch)), sizes)
    return (np.maximum(np.rint(drawn), 1) if whole else drawn) / sizes


def smallest_of_each(draws: np.ndarray, sizes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Whether a draw is among the `counts` smallest of its client: sampling without replacement."""
    if (sizes == sizes[0]).all() and (counts == counts[0]).all():
        table = draws.reshape(*draws.shape[:-1], len(sizes), int(sizes[0]))
        last = np.partition(table, int(counts[0]) - 1, axis=-1)[..., int(counts[0]) - 1, None]
        keep = table <= last
        if keep.sum() == counts[0] * last.size:  # else two draws were equal: sort them as below
            return keep.reshape(draws.shape)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    order = np.lexsort((draws, np.broadcast_to(owner, draws.shape)), axis=-1)
    chosen = np.arange(len(owner)) - starts < np.repeat(counts, sizes)  # places within each client, best first
    keep = np.empty(draws.shape, dtype=bool)
    np.put_along_axis(keep, order, np.broadcast_to(chosen, draws.shape), axis=-1)
    return keep
