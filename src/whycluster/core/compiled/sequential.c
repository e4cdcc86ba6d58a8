/* The gains of the sequential rule, row by row, for `whycluster.models.gains`; the loops are in sequential_row.h.

Weights of parts are multiplied by exp(-nats) of each feature that is taken. They only ever decrease, so a weight that
has become 0 is still negligible as long as the sum of all weights is above LOW; below it, the weights are computed again
from their logs. A row in which a sum of weights is below LEAST is left to NumPy, which computes in logs. */

#define NEGLIGIBLE 690.0 /* exp(-690) is 1e-300, 1e-20 times LEAST */
#define LOW 1e-30
#define LEAST 1e-280
#define LANES 8 /* parts are padded to a multiple of this */
#define FEW 32 /* numbers that are sorted by comparing each with each */
#define SINGLE 3 /* features that are taken one by one before several are taken at once, as in sequential.py */
#define HARD 1e6 /* nats; larger values make no difference */

#include "registers.h"

/* The parts, ordered by cluster. With `centers`, the terms are scale * (x - center)^2. */
typedef struct {
    Size P, d, K;
    const double *log_weight; /* (P) */
    const Size *begins; /* (K + 1), the first part of each cluster, then P */
    double beta;
    const double *centers, *scale; /* (P, D) and (D), padded with zeros; or NULL */
} Parts;

/* The work space for a row. P, d and d + 1, padded to a multiple of LANES, are Q, W and D. */
typedef struct {
    Size P, d, Q, W, D;
    Size begin, end; /* the parts of the row's cluster */
    double *nats, *factor; /* (Q, D), the terms in nats and exp(-nats) */
    double *turned; /* (D, Q), the factors by features */
    double *left, *own, *others; /* (Q): the log weights, and the weights of the cluster's and of all other parts */
    double *ratio; /* (D), the weight of the others over that of the cluster, before and after each feature */
    double *x, *odds, *best; /* (D): the row, the odds of the cluster after each free feature, and the best of them */
    Size *is_free; /* (D), -1 for free features, else 0 */
    Size *taken; /* (D), features in the order in which they were taken */
    Size *place, *order, *spare; /* (D), to sort the best odds */
} Row;

/* log(1 + r) for r >= 0, accurate to about 1e-15; it has no branch, so loops are vectorized. */
static inline __attribute__((always_inline)) double log_one_plus(double r)
{
    double u = 1.0 + r, lost = (r - (u - 1.0)) / u, mantissa, power;
    uint64_t bits, high, low;
    memcpy(&bits, &u, 8);
    high = (bits >> 52) | 0x4330000000000000u; /* 2^52 plus the exponent */
    low = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&power, &high, 8);
    memcpy(&mantissa, &low, 8);
    power -= 4503599627370496.0 + 1023.0;
    const int large = mantissa > 1.4142135623730951;
    mantissa = large ? 0.5 * mantissa : mantissa;
    power = large ? power + 1.0 : power;
    double s = (mantissa - 1.0) / (mantissa + 1.0), z = s * s, p = 1.0 / 23;
    p = p * z + 1.0 / 21;
    p = p * z + 1.0 / 19;
    p = p * z + 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    p = p * z + 1.0;
    return power * 0x1.62e42fefa3800p-1 + (2.0 * s * p + (power * 0x1.ef35793c76730p-45 + lost));
}

/* Merge positions begin..middle and middle..end of `from`, each in descending order of their values, into `to`. */
static void merge(const double *value, const Size *from, Size begin, Size middle, Size end, Size *to)
{
    Size i = begin, j = middle, k = begin;
    while (i < middle && j < end) {
        const int first = value[from[i]] >= value[from[j]];
        to[k++] = first ? from[i] : from[j];
        i += first;
        j += !first;
    }
    memcpy(to + k, from + i, (size_t)(middle - i) * sizeof(Size));
    memcpy(to + k + middle - i, from + j, (size_t)(end - j) * sizeof(Size));
}

#define TEMPLATE "sequential_row.h"
#include "each_set.h"

static Size padded(Size n)
{
    return (n + LANES - 1) / LANES * LANES;
}

/* Return the number of doubles of work space that `gains` needs. */
Size gains_room(const Parts *parts)
{
    const Size Q = padded(parts->P), D = padded(parts->d + 1);
    return (3 * D + 3) * Q + 9 * D + LANES;
}

static Row laid_out(const Parts *parts, double *space)
{
    Row row = {.P = parts->P, .d = parts->d, .Q = padded(parts->P), .W = padded(parts->d), .D = padded(parts->d + 1)};
    const Size large = row.Q * row.D;
    double *at = (double *)(((uintptr_t)space + 63) & ~(uintptr_t)63); /* otherwise each access touches two cache lines */
    row.nats = at;
    row.factor = at + large;
    row.turned = at + 2 * large;
    row.left = at + 3 * large;
    row.own = row.left + row.Q;
    row.others = row.own + row.Q;
    row.ratio = row.others + row.Q;
    row.x = row.ratio + row.D;
    row.odds = row.x + row.D;
    row.best = row.odds + row.D;
    row.is_free = (Size *)(row.best + row.D);
    row.taken = row.is_free + row.D;
    row.place = row.taken + row.D;
    row.order = row.place + row.D;
    row.spare = row.order + row.D;
    memset(at, 0, (size_t)gains_room(parts) * sizeof(double) - LANES * sizeof(double));
    return row;
}

/* Write the gains of n rows, (n, d), to `gain`. `from` are the rows, (n, d), or without centers the terms, (n, P, d).
   The first gain of a row that is left to NumPy is NaN. */
void gains(int width, const Parts *parts, Size n, const Size *cluster, const double *from, double *gain, double *space)
{
    Row row = laid_out(parts, space);
    for (Size r = 0; r < n; r++) {
        row.begin = parts->begins[cluster[r]];
        row.end = parts->begins[cluster[r] + 1];
#ifdef __x86_64__
        (width == 512 ? gains_of_row_avx512 : gains_of_row_avx2)(parts, from, gain, &row);
#else
        (void)width; /* there is only one */
        gains_of_row_neon(parts, from, gain, &row);
#endif
        from += parts->centers ? row.d : row.P * row.d;
        gain += row.d;
    }
}
