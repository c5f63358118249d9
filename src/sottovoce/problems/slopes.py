"""Derivatives of losses and how they are cut off, for single rows: for the compiled kernels alone."""
# Numba infers the types inside compiled functions.
# pyright: basic

import math

import numpy as np
from numba import njit

LEAST_SQUARE = 2.0**-900  # a sum of squares above this has lost nothing that counts to underflow
LOGISTIC_32 = -1  # the code of the logistic loss of float32 numbers, in kernels alone

_LOG2_HIGH, _LOG2_LOW = 6.93145751953125e-1, 1.42860682030941723212e-6  # together log 2; k times the first is exact
_TAYLOR = tuple(1.0 / math.factorial(k) for k in range(13, -1, -1))
_TAYLOR_32, _ONE_32 = tuple(np.float32(number) for number in _TAYLOR[-8:]), np.float32(1.0)
_CONSTANTS_32 = tuple(map(np.float32, (88, -87, 1.5 * 2.0**23, 1 / math.log(2), 0.693359375, -2.12194440e-4)))

# The flags that assume no NaN and no infinity stay off: the clamp must notice a margin that has overflowed. Every
# function states its flags: one that does not may be compiled with those of its first caller.
FAST = {"reassoc", "contract", "nsz", "arcp", "afn"}


@njit(fastmath={"contract"}, error_model="numpy")
def _exp(x):
    """e^x to all digits but the last. With a call to the C library a loop could not work on several numbers at once.

    x = k log 2 + r with a whole k, which adding 3·2^51 leaves in the last digits; then a Taylor polynomial of r, and k
    is added to the exponent. Below -708 and above 709 it is that of these two; NaN stays NaN.
    """
    if x > 709.0:
        x = 709.0
    if x < -708.0:
        x = -708.0
    rounded = x * (1 / math.log(2)) + 1.5 * 2.0**52
    k = rounded - 1.5 * 2.0**52
    r = (x - k * _LOG2_HIGH) - k * _LOG2_LOW
    a, b, c, d, e, f, g, h, i, j, m, n, o, p = _TAYLOR
    e_r = ((((((a * r + b) * r + c) * r + d) * r + e) * r + f) * r + g) * r + h
    e_r = (((((e_r * r + i) * r + j) * r + m) * r + n) * r + o) * r + p
    return e_r * np.int64((np.float64(rounded).view(np.int64) + np.int64(1023)) << np.int64(52)).view(np.float64)


@njit(fastmath={"contract"}, error_model="numpy")
def _exp_in_float32(x):
    """The same in float32: twice as many numbers at once, in half as many steps."""
    a, b, c, d, e, f, g, h = _TAYLOR_32
    top, bottom, magic, over_log2, high, low = _CONSTANTS_32
    if x > top:
        x = top
    if x < bottom:
        x = bottom
    rounded = x * over_log2 + magic
    k = rounded - magic
    r = (x - k * high) - k * low
    e_r = ((((((a * r + b) * r + c) * r + d) * r + e) * r + f) * r + g) * r + h
    return e_r * np.int32((np.float32(rounded).view(np.int32) + np.int32(127)) << np.int32(23)).view(np.float32)


@njit(fastmath={"contract"}, error_model="numpy", inline="always")
def slope_of(code, parameter, label, margin):
    """Derivative of a loss of one margin (`Loss.code`)."""
    if code == 0:  # logistic
        slope = -label / (1.0 + _exp(label * margin))
    elif code == LOGISTIC_32:
        slope = -label / (_ONE_32 + _exp_in_float32(label * margin))
    elif code == 2:  # squared
        slope = margin - label
    elif code == 3:  # Huber
        slope = min(max(margin - label, -parameter), parameter)
    elif code == 5:  # linear, of audits
        slope = -parameter * np.sign(label)
    else:  # smoothed hinge
        slope = -label * min(max((1.0 - label * margin) / parameter, 0.0), 1.0)
    return slope


@njit(fastmath=FAST, error_model="numpy")
def softmax_slopes(label, margin, which):
    """Turn the margins margin[which] of a row into the derivatives of its loss, in place."""
    top = margin[which, 0]
    for c in range(1, margin.shape[1]):
        top = max(top, margin[which, c])
    rivals = 0.0  # summed apart from the label's own, so that a small 1 - p_label keeps its digits
    for c in range(margin.shape[1]):
        margin[which, c] = math.exp(margin[which, c] - top)
        if c != label:
            rivals += margin[which, c]
    total = rivals + margin[which, label]
    for c in range(margin.shape[1]):
        margin[which, c] /= total
    margin[which, label] = -rivals / total


@njit(fastmath={"contract"}, error_model="numpy")
def clamped(slope, cap, zero):
    """`slope` cut off at ±cap, and 0 if it is NaN: by comparisons, since min and max would let NaN through."""
    low = slope if slope <= cap else cap
    both = low if low >= -cap else -cap
    return both if slope == slope else zero


@njit(fastmath={"contract", "reassoc"}, error_model="numpy")
def clip_softmax(slope, which, cap, norm, room):
    """The slopes of a row scaled down so that their norm is at most `cap`, and 0 if one is NaN.

    Sums may be taken in any order, but no flag allows another formula: `room` covers the rounding of this one.
    """
    size = 0.0
    if norm == 1:
        for c in range(slope.shape[1]):
            size += abs(slope[which, c])
    else:
        for c in range(slope.shape[1]):
            size += slope[which, c] * slope[which, c]
        size = math.sqrt(size) if size > LEAST_SQUARE else _small_norm(slope, which, size)
    if size <= cap * (1.0 - room):
        return
    factor = cap / size * (1.0 - room) if size < math.inf else 0.0
    for c in range(slope.shape[1]):
        slope[which, c] = slope[which, c] * factor if factor > 0.0 else 0.0


@njit(fastmath={"contract"}, error_model="numpy")
def _small_norm(slope, which, size):
    """The norm of slopes so small that a square may underflow; NaN stays NaN."""
    top, square = 0.0, 0.0
    for c in range(slope.shape[1]):
        top = max(top, abs(slope[which, c]))
    for c in range(slope.shape[1]):
        square += (slope[which, c] / top) ** 2 if top > 0.0 else 0.0
    return top * math.sqrt(square) if size == size else size
