/* k-means from rows to relevance in one pass, for `whycluster.core.compiled.loops`; the loops are in kmeans_tile.h.

Rows are processed in tiles of ROWS, which stay in the cache from the first step to the last. All sums are in double.
Nothing is allocated, and only the caller's memory is read or written. */

#if !(defined __x86_64__ || defined __aarch64__) || !(defined __clang__ || (defined __GNUC__ && __GNUC__ >= 9))
#error "These loops need x86-64 or aarch64, and gcc 9 or later or clang. On other platforms, NumPy does the work."
#endif

#include <math.h>
#include <stdint.h>
#include <string.h>

#define ROWS 32 /* per tile: four AVX-512 registers */
#define LAYOUT 3 /* version of the structures below, as in loops.py; raise it with any change */
#define NEGLIGIBLE 69.0 /* exp(-69) is 1e-30, negligible compared with the 1 of the strongest competitor */

typedef int64_t Size;

/* Clusters are grouped in fours and features in twos, in the order of use; the last groups are padded with zeros. */
typedef struct {
    Size K, d;
    const double *offset; /* (d), subtracted from every row */
    const double *bias; /* (K) */
    const double *slopes; /* (K / 4, d, 4) */
    const double *both; /* (d / 2, K, 4): two slopes, two squares */
} Model;

/* What is written to `out`: nothing, (n, K) energies, (n, d) relevance, (n, d) gradients, or (n, K) R_k. All but ENERGIES
   also write the assignment. */
enum { ASSIGNMENT, ENERGIES, RELEVANCE, GRADIENT, COMPETITION };
enum { MIN_TAKE_MOST, JOINT, PATH, CONTRAST }; /* the rules, as in loops.py */
enum { CLUSTER = 1, COMPETITOR = 2 }; /* bits of `given`: which part of the assignment the caller has written */

/* Rows `first` to `first + n` of a table whose columns begin at these addresses; `down` is the step from row to row.
   Steps are in numbers, not bytes. */
typedef struct {
    Size first, n;
    const void *const *columns;
    Size down;
    int side_by_side; /* whether the numbers of a row are contiguous */
    int from_float;
    Size *cluster, *competitor;
    double *evidence;
    double beta;
    const double *prior; /* (K), the weights of the clusters, for the rule PATH */
    void *out;
    Size out_down, out_across;
    int to_float, answer, rule, given;
} Block;

/* The assignment of the rows of a tile; clusters are double, too, so that all lanes have the same width. */
typedef struct {
    double cluster[ROWS], competitor[ROWS], evidence[ROWS];
} Tile;

/* exp(-t) for t >= 0, accurate to about 1e-15; undefined for other t. It has no branch, so loops are vectorized. */
static inline __attribute__((always_inline)) double exp_minus(double t)
{
    const double shift = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to a whole number */
    double within = t < NEGLIGIBLE ? t : NEGLIGIBLE;
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
    return t < NEGLIGIBLE ? p * scale : 0.0;
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

#ifdef __x86_64__
#define SET avx2
#define TARGET __attribute__((target("avx2,fma")))
#define WIDE 4
#define DEEP 2
#include "kmeans_tile.h"
#undef SET
#undef TARGET
#undef WIDE
#undef DEEP

#define SET avx512
#ifdef __clang__
#define TARGET __attribute__((target("avx2,fma,avx512f,avx512dq,avx512vl"), min_vector_width(512)))
#else
#define TARGET __attribute__((target("avx2,fma,avx512f,avx512dq,avx512vl,prefer-vector-width=512")))
#endif
#define WIDE 8
#define DEEP 4
#include "kmeans_tile.h"
#else
#define SET neon /* every aarch64 processor has it */
#define TARGET
#define WIDE 2
#define DEEP 4
#include "kmeans_tile.h"
#endif

int layout(void)
{
    return LAYOUT;
}

/* Return the widest registers of this processor, 512, 256 or 128; 0 if it lacks the required instructions. */
int widest(void)
{
#ifdef __x86_64__
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    int all = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
    return all && __builtin_cpu_supports("avx512vl") ? 512 : 256;
#else
    return 128;
#endif
}

/* Return the number of doubles of work space that `run` needs. */
Size room(const Model *model)
{
    return (model->d + 1 + 2 * (model->K + 3)) * ROWS + model->K + 8;
}

/* Return 0, or NaN if an energy or evidence value is not finite. */
double run(int width, const Model *model, const Block *block, double *space)
{
    double *aligned = (double *)(((uintptr_t)space + 63) & ~(uintptr_t)63); /* otherwise each access touches two cache lines */
#ifdef __x86_64__
    return (width == 512 ? run_avx512 : run_avx2)(model, block, aligned);
#else
    (void)width; /* there is only one */
    return run_neon(model, block, aligned);
#endif
}
