/* k-means from rows to relevance in one pass, for `whycluster.core.compiled.loops`; the loops are in kmeans_tile.h.

Rows are processed in tiles of ROWS, which stay in the cache from the first step to the last. Sums are in double,
except for those in kmeans_single.h. Nothing is allocated, and only the caller's memory is read or written. */

#define ROWS 32 /* per tile: four AVX-512 registers */
#define LAYOUT 5 /* version of the structures below, as in loops.py; raise it with any change */
#define NEGLIGIBLE 69.0 /* exp(-69) is 1e-30, negligible compared with the 1 of the strongest competitor */
#define NEGLIGIBLE_SINGLE 42.0 /* exp(-42) is 1e-18, negligible if the results are float */

/* Single precision: a sum over CHUNK features, or over FEWER or a few more clusters, loses few digits. */
#define CHUNK 32
#define FEWER 16
#define TOLERANCE 1e-4 /* the largest proven error of a relevance score, relative to the largest one of the row */

#include "registers.h"

/* Clusters are grouped in fours and features in twos, in the order of use; the last groups are padded with zeros. */
typedef struct {
    Size K, d;
    const double *offset; /* (d), subtracted from every row */
    const double *bias; /* (K) */
    const double *slopes; /* (K / 4, d, 4) */
    const double *both; /* (d / 2, K, 4): two slopes, two squares */
    /* The same in single precision, relative to `middle` and without what all clusters share; NULL if that loses too much. */
    const float *middle; /* (d), subtracted from every row */
    const float *single_bias; /* (K) */
    const float *single_slopes; /* (K / 8, d, 8) */
    const float *single_both; /* (d / 4, K, 8): four slopes, four squares */
    const double *reach; /* (K + 1, 2): the largest |square| and |slope| of each cluster, then of all */
    double most_bias, most_slope; /* the largest |bias_k| and |slope_k|, the Euclidean norm */
} Model;

/* The contents of `out`: nothing, (n, K) energies, (n, d) relevance, (n, d) gradients, or (n, K) R_k. All but ENERGIES
   also write the assignment; ROUGH, which writes nothing to `out`, writes no competitors, and evidence from single sums. */
enum { ASSIGNMENT, ENERGIES, RELEVANCE, GRADIENT, COMPETITION, ROUGH };
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

#define TEMPLATE "kmeans_tile.h"
#include "each_set.h"

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
    const Size K = model->K, d = model->d, most = K > d ? K : d;
    return (d + 1 + 2 * (model->K + 3)) * ROWS + (d + most) * ROWS / 2 + 2 * K + 8;
}

/* Return 0, or NaN if an energy, evidence value or result is not finite. For ROUGH, return a bound on the sum of all errors of the
   evidence instead of 0. */
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
