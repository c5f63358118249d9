/* The reference: what a careful C programmer would write, one fused pass over each client's rows, in pairs. */
#include <math.h>

#define DEFINE(NAME, REAL)                                                                                             \
    /* One plain read of the data: its sum. */                                                                         \
    double read_##NAME(const REAL *restrict x, long count) {                                                           \
        REAL total = 0;                                                                                                \
        for (long i = 0; i < count; i++) total += x[i];                                                                \
        return (double)total;                                                                                          \
    }                                                                                                                  \
    /* out[i] = mean over the rows of client i of the gradient of log(1 + exp(-y <x, w[i]>)); clip by row norms. */    \
    void gradients_##NAME(const REAL *restrict X, const double *restrict y, const double *restrict norms,              \
                          const long *restrict offsets, long n, long d, const REAL *restrict w, double clip,           \
                          REAL *restrict out) {                                                                        \
        for (long i = 0; i < n; i++) {                                                                                 \
            const REAL *restrict point = w + i * d;                                                                    \
            REAL *restrict sum = out + i * d;                                                                          \
            for (long k = 0; k < d; k++) sum[k] = 0;                                                                   \
            for (long row = offsets[i]; row < offsets[i + 1]; row += 2) {                                              \
                long other = row + 1 < offsets[i + 1] ? row + 1 : row;                                                 \
                const REAL *restrict a = X + row * d, *restrict b = X + other * d;                                     \
                REAL u = 0, v = 0;                                                                                     \
                for (long k = 0; k < d; k++) { u += a[k] * point[k]; v += b[k] * point[k]; }                           \
                double p = -y[row] / (1 + exp(y[row] * u)), q = -y[other] / (1 + exp(y[other] * v));                   \
                if (clip > 0) {                                                                                        \
                    double s = fabs(p) * norms[row], t = fabs(q) * norms[other];                                       \
                    if (s > clip) p *= clip / s;                                                                       \
                    if (t > clip) q *= clip / t;                                                                       \
                }                                                                                                      \
                REAL f = p, g = other > row ? q : 0;                                                                   \
                for (long k = 0; k < d; k++) sum[k] += f * a[k] + g * b[k];                                            \
            }                                                                                                          \
            REAL weight = 1.0 / (offsets[i + 1] - offsets[i]);                                                         \
            for (long k = 0; k < d; k++) sum[k] *= weight;                                                             \
        }                                                                                                              \
    }

DEFINE(float64, double)
DEFINE(float32, float)
