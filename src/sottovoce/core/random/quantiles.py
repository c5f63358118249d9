"""The uniform number of 64 random bits, and the normal quantile, from additions, products, quotients and roots alone.

These operations give the same number in a compiled loop and in NumPy; a library's logarithm would not. So the functions
here are both called on arrays and compiled as they stand, for single numbers. Their polynomials are written out, so
that a processor works on several numbers at once.

Wichura (1988), algorithm AS 241: the normal quantile of 0.5 + q, for |q| <= 0.425, is q A(r)/B(r), r = 0.425² − q²;
that of p <= 0.075 is −C(r)/D(r), r = sqrt(−log p) − 1.6, down to p = e^-25, where it is −6.66; and below, which one
number in 4e10 is, −E(r)/F(r), r = sqrt(−log p) − 5.
"""

import math
from typing import Any

import numpy as np

Number = Any  # an array; one number where it is compiled

A = (
    *(2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4),
    *(1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
)
B = (
    *(5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4),
    *(5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)
C = (
    *(7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0),
    *(3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
)
D = (
    *(1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1),
    *(6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)
E = (
    *(2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2),
    *(2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
)
F = (
    *(2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4),
    *(1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)
FAR = 5.0  # sqrt(−log p) from which on the last formula holds
LOG_2, ROOT_2 = math.log(2), math.sqrt(2)
LOG_SERIES = tuple(2 / n for n in range(21, 0, -2))  # log((1 + s)/(1 − s)) = 2s + 2s³/3 + 2s⁵/5 + …


def to_unit(bits: Number) -> Number:
    """A uniform number strictly inside (0, 1), of 52 bits and a half step.

    With 53 bits the largest value would round to 1, where the normal quantile is infinite. The bits are used as the
    digits of a number in [1, 2), from which 1 is subtracted: no conversion is needed, and it is exact.
    """
    return np.uint64((bits >> np.uint64(12)) | np.uint64(0x3FF << 52)).view(np.float64) - (1 - 2.0**-53)


def middle_quantile(q: Number) -> Number:
    """The normal quantile of 0.5 + q, for |q| <= 0.425."""
    a, b, r = A, B, 0.180625 - q * q
    above = ((((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * r + a[6]) * r + a[7]
    below = ((((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + b[5]) * r + b[6]) * r + b[7]
    return q * above / below


def tail_root(q: Number) -> Number:
    """sqrt(−log p) of the smaller tail p = 0.5 − |q|."""
    p = 0.5 - np.abs(q)  # exact, because q is
    digits = np.float64(p).view(np.uint64)
    # p = leading · 2^exponent; the exponent becomes a real number as the last digits of 2^52.
    exponent = np.uint64((digits >> np.uint64(52)) | np.uint64(0x433 << 52)).view(np.float64) - (2.0**52 + 1023)
    leading = np.uint64((digits & np.uint64((1 << 52) - 1)) | np.uint64(0x3FF << 52)).view(np.float64)
    s = (leading - ROOT_2) / (leading + ROOT_2)
    e, t = LOG_SERIES, s * s
    series = (((((e[0] * t + e[1]) * t + e[2]) * t + e[3]) * t + e[4]) * t + e[5]) * t + e[6]
    series = (((series * t + e[7]) * t + e[8]) * t + e[9]) * t + e[10]
    return np.sqrt(-((exponent + 0.5) * LOG_2 + s * series))


def tail_quantile(q: Number, root: Number) -> Number:
    """The normal quantile of 0.5 + q, for |q| > 0.425 and a `tail_root` of at most `FAR`."""
    c, d, r = C, D, root - 1.6
    above = ((((((c[0] * r + c[1]) * r + c[2]) * r + c[3]) * r + c[4]) * r + c[5]) * r + c[6]) * r + c[7]
    below = ((((((d[0] * r + d[1]) * r + d[2]) * r + d[3]) * r + d[4]) * r + d[5]) * r + d[6]) * r + d[7]
    return np.copysign(above / below, q)


def far_quantile(q: Number, root: Number) -> Number:
    """The same for a larger `tail_root`."""
    e, f, r = E, F, root - FAR
    above = ((((((e[0] * r + e[1]) * r + e[2]) * r + e[3]) * r + e[4]) * r + e[5]) * r + e[6]) * r + e[7]
    below = ((((((f[0] * r + f[1]) * r + f[2]) * r + f[3]) * r + f[4]) * r + f[5]) * r + f[6]) * r + f[7]
    return np.copysign(above / below, q)
