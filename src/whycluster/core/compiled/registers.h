/* What the loops have in common, for all instruction sets. A file defines NEGLIGIBLE before it includes this one. */

#if !(defined __x86_64__ || defined __aarch64__) || !(defined __clang__ || (defined __GNUC__ && __GNUC__ >= 9))
#error "These loops need x86-64 or aarch64, and gcc 9 or later or clang. On other platforms, NumPy does the work."
#endif

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#else
#include <arm_neon.h>
#endif

typedef int64_t Size;

/* exp(-t) for t >= 0, accurate to about 1e-15, and 0 from `limit` on, at most 690; undefined for other t. It has no branch,
   so loops are vectorized. */
static inline __attribute__((always_inline)) double exp_below(double t, double limit)
{
    const double shift = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to a whole number */
    double within = t < limit ? t : limit;
    double n = within * -1.4426950408889634 + shift; /* 1 / log 2 */
    int64_t bits;
    memcpy(&bits, &n, 8);
    n -= shift;
    double r = (-within - n * 0x1.62e42fefa3800p-1) - n * 0x1.ef35793c76730p-45; /* log 2 in two parts */
    double p = 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    int64_t power = (int64_t)((uint64_t)(bits + 1023) << 52); /* the lowest bits of n are the exponent */
    double scale;
    memcpy(&scale, &power, 8);
    return t < limit ? p * scale : 0.0;
}

static inline __attribute__((always_inline)) double exp_minus(double t)
{
    return exp_below(t, NEGLIGIBLE);
}

/* Select lanes of two registers by number. */
#ifdef __clang__
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK(a, b, ...) __builtin_shuffle(a, b, (Lanes){__VA_ARGS__})
#endif

#define JOINED(name, set) name##_##set
#define JOIN(name, set) JOINED(name, set)
#define NAME(name) JOIN(name, SET)
