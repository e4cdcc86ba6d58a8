/* The loops over the rows of a block, tile by tile; included once per instruction set.

A tile is stored by features, x[j][row], and by clusters, h[k][row]: every step is the same for all rows, and nothing
is summed across a register. */

#include "vectors.h"

typedef float NAME(Short) __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));
#define Short NAME(Short)
#define STEP (WIDE * DEEP)

/* Convert a register of doubles from or to floats. gcc makes several instructions of __builtin_convertvector. */
#if WIDE == 8
#define WIDEN(v) ((Vector)_mm512_cvtps_pd((__m256)(v)))
#define NARROW(v) ((Short)_mm512_cvtpd_ps((__m512d)(v)))
#elif WIDE == 4
#define WIDEN(v) ((Vector)_mm256_cvtps_pd((__m128)(v)))
#define NARROW(v) ((Short)_mm256_cvtpd_ps((__m256d)(v)))
#else
#define WIDEN(v) __builtin_convertvector(v, Vector)
#define NARROW(v) __builtin_convertvector(v, Short)
#endif

#include "kmeans_rows.h"

/* Compute s[k][row] = bias_k + sum_j slope_kj x_j, four clusters at a time. */
TARGET static void NAME(energies)(const Model *model, const double *x, double *s)
{
    for (Size k = 0; k < model->K; k += 4) {
        for (Size i = 0; i < ROWS; i += STEP) {
            const double *slope = model->slopes + k * model->d;
            Vector sum[4][DEEP];
            for (int c = 0; c < 4; c++)
                for (int v = 0; v < DEEP; v++) sum[c][v] = (Vector){0} + model->bias[k + c];
            for (Size j = 0; j < model->d; j++, slope += 4)
                for (int v = 0; v < DEEP; v++) {
                    Vector value = AT(x + j * ROWS + i + v * WIDE);
                    for (int c = 0; c < 4; c++) sum[c][v] += slope[c] * value;
                }
            for (int c = 0; c < 4; c++)
                for (int v = 0; v < DEEP; v++) AT(s + (k + c) * ROWS + i + v * WIDE) = sum[c][v];
        }
    }
}

/* Find the two least energies of each row and their clusters, the first on a tie (Prop. 1). Energies become h. */
TARGET static double NAME(compete)(Size K, double *restrict h, Tile *restrict tile)
{
    double total = 0.0; /* NaN if an energy or the difference of two is not finite */
    for (Size i = 0; i < ROWS; i += STEP) {
        Vector least[DEEP], next[DEEP], cluster[DEEP], competitor[DEEP], flaw = {0};
        for (int v = 0; v < DEEP; v++) {
            least[v] = next[v] = (Vector){0} + HUGE_VAL;
            cluster[v] = competitor[v] = (Vector){0};
        }
        for (Size k = 0; k < K; k++) {
            const Vector number = (Vector){0} + (double)k;
            for (int v = 0; v < DEEP; v++) {
                const Vector value = AT(h + k * ROWS + i + v * WIDE);
                const Vector second = IF_LESS(value, least[v], least[v], value);
                const Vector whose = IF_LESS(value, least[v], cluster[v], number);
                competitor[v] = IF_LESS(value, next[v], whose, competitor[v]);
                next[v] = IF_LESS(value, next[v], second, next[v]);
                cluster[v] = IF_LESS(value, least[v], number, cluster[v]);
                least[v] = IF_LESS(value, least[v], value, least[v]);
                flaw += value * 0.0;
            }
        }
        for (int v = 0; v < DEEP; v++) {
            AT(tile->cluster + i + v * WIDE) = cluster[v];
            AT(tile->competitor + i + v * WIDE) = competitor[v];
            AT(tile->evidence + i + v * WIDE) = next[v] - least[v];
            flaw += (next[v] - least[v]) * 0.0;
            for (Size k = 0; k < K; k++) AT(h + k * ROWS + i + v * WIDE) -= least[v];
        }
        for (int r = 0; r < WIDE; r++) total += flaw[r];
    }
    return total;
}

/* Do the same for given clusters and, if `against` is set, given competitors, which `tile` holds. */
TARGET static double NAME(compete_given)(Size K, int against, double *restrict h, Tile *restrict tile)
{
    double own[ROWS], next[ROWS], flaw[ROWS], total = 0.0;
    for (int i = 0; i < ROWS; i++) {
        own[i] = h[(Size)tile->cluster[i] * ROWS + i];
        next[i] = against ? h[(Size)tile->competitor[i] * ROWS + i] : HUGE_VAL;
        flaw[i] = 0.0;
    }
    for (Size k = 0; k < K; k++) {
        double *s = h + k * ROWS, number = (double)k;
        for (int i = 0; i < ROWS; i++) {
            int less = !against && s[i] < next[i] && tile->cluster[i] != number;
            tile->competitor[i] = less ? number : tile->competitor[i];
            next[i] = less ? s[i] : next[i];
            flaw[i] += s[i] * 0.0;
            s[i] -= own[i];
        }
    }
    for (int i = 0; i < ROWS; i++) {
        tile->evidence[i] = tile->cluster[i] == tile->competitor[i] ? 0.0 : next[i] - own[i];
        total += flaw[i] + tile->evidence[i] * 0.0;
    }
    return total;
}

/* Write exp(-beta (h_k - f)) to p, 0 where the exponent is at least `limit`, and 0 for the row's own cluster. Clusters for
   which this is 0 in all rows are left out before it is computed, unless `all` is set: the others are written to `some`.
   Return their number. */
TARGET static Size NAME(soft_min)(
    Size K, int all, double beta, double limit, const double *restrict h, const Tile *restrict tile, double *restrict p,
    Size *restrict some)
{
    Size n = 0;
    for (Size k = 0; k < K; k++) {
        const double *of = h + k * ROWS, number = (double)k;
        Lanes near = {0};
        for (int i = 0; i < ROWS; i += WIDE) near |= beta * (AT(of + i) - AT(tile->evidence + i)) < limit;
        if (!(all || ANY(near))) continue;
        some[n++] = k;
        double *to = p + k * ROWS;
        for (int i = 0; i < ROWS; i++) {
            double share = exp_below(beta * (of[i] - tile->evidence[i]), limit);
            to[i] = tile->cluster[i] == number ? 0.0 : share; /* h_c - f is negative, so its exponential is undefined */
        }
    }
    return n;
}

/* Write a_k = p_k f / h_k (Eqs. 2 and 4). */
TARGET static Size NAME(min_take_most)(
    Size K, const Block *block, const double *restrict h, const Tile *restrict tile, double *restrict a, Size *restrict some,
    double *restrict sum, double *restrict scale)
{
    const Size n = NAME(soft_min)(K, block->given, block->beta, block->to_float ? NEGLIGIBLE_SINGLE : NEGLIGIBLE, h, tile, a, some);
    double total[ROWS];
    for (int i = 0; i < ROWS; i++) total[i] = sum[i] = 0.0;
    for (Size m = 0; m < n; m++) {
        const double *of = h + some[m] * ROWS;
        double *to = a + some[m] * ROWS;
        for (int i = 0; i < ROWS; i++) {
            double f = tile->evidence[i], ratio = of[i] > f ? f / of[i] : 1.0; /* on a tie both are 0, and 1 is the limit */
            total[i] += to[i];
            to[i] *= ratio;
            sum[i] += to[i];
        }
    }
    for (int i = 0; i < ROWS; i++) scale[i] = 1.0 / total[i];
    return n;
}

/* Write a_k = p_k f / sum_j p_j h_j. The last sum is divided by K, so that it does not overflow. */
TARGET static Size NAME(joint)(
    Size K, const Block *block, const double *restrict h, const Tile *restrict tile, double *restrict a, Size *restrict some,
    double *restrict sum, double *restrict scale)
{
    const Size n = NAME(soft_min)(K, block->given, block->beta, block->to_float ? NEGLIGIBLE_SINGLE : NEGLIGIBLE, h, tile, a, some);
    const double part = 1.0 / (double)K;
    double below[ROWS];
    for (int i = 0; i < ROWS; i++) below[i] = sum[i] = 0.0;
    for (Size m = 0; m < n; m++) {
        const double *of = h + some[m] * ROWS, *to = a + some[m] * ROWS;
        for (int i = 0; i < ROWS; i++) {
            sum[i] += to[i];
            below[i] += to[i] * (of[i] * part);
        }
    }
    for (int i = 0; i < ROWS; i++)
        scale[i] = below[i] > 0.0 ? tile->evidence[i] / below[i] * part : 1.0 / sum[i];
    return n;
}

/* The powers 5, 11 and 15 of y; below 1e-20, where they are negligible, 0 instead of numbers too small for a double. */
TARGET static inline void NAME(powers)(Vector y, Vector *fifth, Vector *eleventh, Vector *fifteenth)
{
    y = (Vector)((Lanes)y & (y >= 1e-20));
    Vector fourth = y * y * (y * y);
    *fifth = fourth * y;
    *eleventh = *fifth * *fifth * y;
    *fifteenth = *eleventh * fourth;
}

/* Write the weights of the path rule, `_path` in rules.py: averages of the probabilities of the competitors at 1, 5, 11
   and 15 sixteenths of the path, all of which are powers of y = exp(-beta (h_k - f) / 16). */
TARGET static Size NAME(path)(
    Size K, const Block *block, const double *restrict h, const Tile *restrict tile, double *restrict a, Size *restrict some,
    double *restrict sum, double *restrict scale)
{
    const double *prior = block->prior, beta = block->beta / 16.0, part = 1.0 / (double)K;
    const Size n = NAME(soft_min)(K, block->given, beta, NEGLIGIBLE, h, tile, a, some);
    double own[ROWS], shared[ROWS];
    for (int i = 0; i < ROWS; i++) own[i] = prior[(Size)tile->cluster[i]];
    for (int i = 0; i < ROWS; i++) shared[i] = exp_minus(beta * tile->evidence[i]);
    for (int i = 0; i < ROWS; i += WIDE) {
        Vector odds[4] = {{0}}, below[4] = {{0}}, y[4];
        for (Size m = 0; m < n; m++) {
            const Size k = some[m];
            const Vector h_k = AT(h + k * ROWS + i) * (part * prior[k]);
            y[0] = AT(a + k * ROWS + i);
            NAME(powers)(y[0], y + 1, y + 2, y + 3);
            for (int t = 0; t < 4; t++) {
                odds[t] += prior[k] * y[t];
                below[t] += h_k * y[t];
            }
        }
        Vector g[4], node[4], all = {0}, last = {0};
        const Vector of_own = AT(own + i);
        g[0] = AT(shared + i);
        NAME(powers)(g[0], g + 1, g + 2, g + 3);
        const Vector square = g[0] * g[0], fourth = square * square, tenth = fourth * fourth * square;
        node[0] = 37.0 / 240 / (of_own + g[0] * odds[0]);
        node[1] = 83.0 / 240 * fourth / (of_own + g[1] * odds[1]);
        node[2] = 83.0 / 240 * tenth / (of_own + g[2] * odds[2]);
        node[3] = 37.0 / 240 * tenth * fourth / (of_own + g[3] * odds[3]);
        for (int t = 0; t < 4; t++) {
            all += node[t] * odds[t];
            last += node[t] * below[t];
        }
        const Vector f = AT(tile->evidence + i), none = {0};
        AT(sum + i) = all;
        AT(scale + i) = IF_LESS(none, last, f / last * part, 1.0 / all);
        for (Size m = 0; m < n; m++) {
            double *to = a + some[m] * ROWS + i;
            y[0] = AT(to);
            NAME(powers)(y[0], y + 1, y + 2, y + 3);
            AT(to) = prior[some[m]] * (node[0] * y[0] + node[1] * y[1] + node[2] * y[2] + node[3] * y[3]);
        }
    }
    return n;
}

/* Add the contrast of a row, 1 for its strongest competitor and -1 for its cluster, to its weights. */
static inline void NAME(contrast)(const Tile *tile, int i, double *a)
{
    a[(Size)tile->competitor[i] * ROWS + i] += 1.0;
    a[(Size)tile->cluster[i] * ROWS + i] -= 1.0;
}

/* Write the contrasts of all rows. */
TARGET static Size NAME(contrasts)(Size K, const Tile *tile, double *a, Size *some, Size *is_in)
{
    Size n = 0;
    for (Size k = 0; k < K; k++) is_in[k] = 0;
    for (int i = 0; i < ROWS; i++) is_in[(Size)tile->cluster[i]] = is_in[(Size)tile->competitor[i]] = 1;
    for (Size k = 0; k < K; k++) {
        if (!is_in[k]) continue;
        some[n++] = k;
        memset(a + k * ROWS, 0, ROWS * sizeof(double));
    }
    for (int i = 0; i < ROWS; i++) NAME(contrast)(tile, i, a);
    return n;
}

/* Write the weights a_k of a rule and a_c = -sum. Rows with negative evidence ("why not this cluster?") get a contrast.
   Write the clusters that may have a weight to `some`, return their number. */
TARGET static Size NAME(weigh)(
    Size K, const Block *block, const double *restrict h, const Tile *restrict tile, double *restrict a, Size *restrict some,
    Size *restrict spare)
{
    double sum[ROWS], scale[ROWS];
    if (block->rule == CONTRAST) return NAME(contrasts)(K, tile, a, some, spare);
    const Size n = (block->rule == PATH ? NAME(path) : block->rule == JOINT ? NAME(joint) : NAME(min_take_most))(
        K, block, h, tile, a, some, sum, scale);
    for (Size m = 0; m < n; m++) {
        double *to = a + some[m] * ROWS, number = (double)some[m];
        for (int i = 0; i < ROWS; i++) to[i] = (tile->cluster[i] == number ? -sum[i] : to[i]) * scale[i];
    }
    for (int i = 0; block->given && i < ROWS; i++) {
        if (tile->evidence[i] >= 0.0) continue;
        for (Size m = 0; m < n; m++) a[some[m] * ROWS + i] = 0.0;
        NAME(contrast)(tile, i, a);
    }
    return n;
}

/* Replace x by the relevance, sum_k a_k square_kj + x_j sum_k a_k slope_kj, or by the gradient, sum_k a_k slope_kj, two
   features at a time. */
TARGET static void NAME(combine)(const Model *model, int gradient, const double *a, const Size *some, Size n, double *x)
{
    for (Size j = 0; j < model->d; j += 2) {
        const double *both = model->both + j * 2 * model->K;
        for (Size i = 0; i < ROWS; i += STEP) {
            Vector sum[4][DEEP];
            for (int c = 0; c < 4; c++)
                for (int v = 0; v < DEEP; v++) sum[c][v] = (Vector){0};
            for (Size m = 0; m < n; m++) {
                const double *weight = a + some[m] * ROWS + i, *of = both + some[m] * 4;
                for (int v = 0; v < DEEP; v++) {
                    Vector w = AT(weight + v * WIDE);
                    for (int c = 0; c < 4; c++) sum[c][v] += of[c] * w;
                }
            }
            for (int c = 0; c < 2; c++)
                for (int v = 0; v < DEEP; v++) {
                    double *value = x + (j + c) * ROWS + i + v * WIDE;
                    if (gradient) AT(value) = sum[c][v];
                    else AT(value) = sum[2 + c][v] + sum[c][v] * AT(value);
                }
        }
    }
}

/* Replace h by R_k = a_k h_k, each competitor's share of the evidence. */
TARGET static void NAME(share)(Size K, const double *a, const Size *some, Size n, const Tile *tile, double *h)
{
    for (Size k = 0, m = 0; k < K; k++) {
        const int left = m < n && some[m] == k;
        for (int i = 0; i < ROWS; i++)
            h[k * ROWS + i] = left && tile->cluster[i] != (double)k ? a[k * ROWS + i] * h[k * ROWS + i] : 0.0;
        m += left;
    }
}

/* Find the assignment of a tile, or complete it if a part of it is given. */
TARGET static double NAME(assign)(const Block *block, Size K, Size start, Size rows, double *h, Tile *tile)
{
    if (!block->given) return NAME(compete)(K, h, tile);
    for (int i = 0; i < ROWS; i++) {
        const Size row = start + (i < rows ? i : 0);
        tile->competitor[i] = block->given & COMPETITOR ? (double)block->competitor[row] : 0.0;
        tile->cluster[i] = block->given & CLUSTER ? (double)block->cluster[row] : 0.0;
    }
    if (!(block->given & CLUSTER)) {
        double least[ROWS];
        for (int i = 0; i < ROWS; i++) least[i] = HUGE_VAL;
        for (Size k = 0; k < K; k++)
            for (int i = 0; i < ROWS; i++) {
                tile->cluster[i] = h[k * ROWS + i] < least[i] ? (double)k : tile->cluster[i];
                least[i] = h[k * ROWS + i] < least[i] ? h[k * ROWS + i] : least[i];
            }
    }
    return NAME(compete_given)(K, block->given & COMPETITOR, h, tile);
}

#include "kmeans_single.h"

/* Replace x by the relevance or the gradient, or h by the competition, and store it; return 0, or NaN for a flaw. */
TARGET static double NAME(answer)(
    const Model *model, const Block *block, Size start, Size rows, double *x, double *h, const double *a, const Size *some, Size n,
    const Tile *tile, float *narrow)
{
    const int wide = block->answer == COMPETITION;
    const Size width = wide ? model->K : model->d;
    if (wide) NAME(share)(model->K, a, some, n, tile, h);
    else NAME(combine)(model, block->answer == GRADIENT, a, some, n, x);
    if (!block->to_float) return NAME(store_double)(block, width, start, rows, wide ? h : x);
    NAME(narrow)(width * ROWS, wide ? h : x, narrow);
    return NAME(store_single)(block, width, start, rows, narrow);
}

TARGET static double NAME(run)(const Model *model, const Block *block, double *space)
{
    const Size K = model->K, d = model->d, most = K > d ? K : d;
    const int single = model->middle && block->from_float && block->to_float && block->answer == RELEVANCE;
    double *x = space, *h = x + (d + 1) * ROWS, *a = h + (K + 3) * ROWS, flaws = 0.0;
    float *raw = (float *)(a + (K + 3) * ROWS), *narrow = raw + d * ROWS;
    Size *some = (Size *)(narrow + most * ROWS), *spare = some + K;
    Tile tile;
    memset(x + d * ROWS, 0, ROWS * sizeof(double)); /* padding of the last two features */
    for (Size start = 0; start < block->n; start += ROWS) {
        const Size rows = block->n - start < ROWS ? block->n - start : ROWS;
        if (block->answer == ROUGH) {
            flaws += NAME(assign_single)(model, block, start, rows, raw, (float *)a, x, h);
            continue;
        }
        NAME(load)(model, block, start, rows, raw, x);
        NAME(energies)(model, x, h);
        if (block->answer == ENERGIES) {
            flaws += NAME(store_double)(block, K, start, rows, h);
            continue;
        }
        flaws += NAME(assign)(block, K, start, rows, h, &tile);
        for (Size i = 0; i < rows; i++) {
            block->cluster[start + i] = (Size)tile.cluster[i];
            block->competitor[start + i] = (Size)tile.competitor[i];
            block->evidence[start + i] = tile.evidence[i];
        }
        if (block->answer == ASSIGNMENT) continue;
        const Size n = NAME(weigh)(K, block, h, &tile, a, some, spare);
        if (!single) {
            flaws += NAME(answer)(model, block, start, rows, x, h, a, some, n, &tile, narrow);
            continue;
        }
        int fine[ROWS];
        if (!NAME(combine_single)(model, a, some, n, narrow, spare, raw, fine)) NAME(combine_rest)(model, a, some, n, fine, h, x, raw);
        flaws += NAME(store_single)(block, d, start, rows, raw);
    }
    return flaws;
}

#undef Vector
#undef Short
#undef Lanes
#undef Singles
#undef Shuffled
#undef AT
#undef AT_SINGLE
#undef STEP
#undef TWICE
#undef LARGER
#undef SMALLER
#undef IF_LESS
#undef ANY
#undef WIDEN
#undef NARROW
