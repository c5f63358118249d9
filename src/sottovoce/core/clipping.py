"""The one way to bound a vector: scale it down. What a guarantee rests on, so it holds whatever the vector."""

import numpy as np


def clip_rows(vectors: np.ndarray, clip: float, norm: int = 2) -> np.ndarray:
    """Each vector (last axis) scaled to a norm (1 or 2) <= clip; one that is not finite becomes 0.

    The bound is a promise whatever the vector, so norms are taken relative to the largest entry: neither tiny nor
    huge entries are squared.
    """
    top = np.abs(vectors).max(axis=-1, keepdims=True, initial=0.0)
    finite = top < np.inf  # False for NaN too
    scaled = np.where(finite, vectors, 0.0) / np.where(finite & (top > 0), top, 1.0)
    if norm == 1:
        norms = np.abs(scaled).sum(axis=-1, keepdims=True)
    else:
        norms = np.sqrt(np.square(scaled).sum(axis=-1, keepdims=True))
    return scaled * np.minimum(np.where(finite, top, 0.0), clip / np.maximum(norms, 1.0))
