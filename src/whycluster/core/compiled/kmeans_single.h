/* The loops in single precision, for rows and results in float; kmeans_tile.h includes this file.

They compute what needs no more digits: relevance from weights in double, and the assignment while a population is
measured. Every row gets a proven bound on its error. The caller computes the row in double if the bound is too large.

Terms are relative to `middle` and leave out what all clusters share, so that data far from 0 lose no digits. */

#if WIDE == 8
#define SPAN 8 /* clusters at a time */
#else
#define SPAN 4
#endif
#define ACROSS (WIDE == 4 ? 1 : 2) /* registers of rows at a time; eight sums each must fit */
/* `yes` where a < b, else `no`. */
#if WIDE == 8
#define IF_LESS_SINGLE(a, b, yes, no) \
    ((Singles)_mm512_mask_blend_ps(_mm512_cmp_ps_mask((__m512)(a), (__m512)(b), _CMP_LT_OQ), (__m512)(no), (__m512)(yes)))
#elif WIDE == 4
#define IF_LESS_SINGLE(a, b, yes, no) \
    ((Singles)_mm256_blendv_ps((__m256)(no), (__m256)(yes), _mm256_cmp_ps((__m256)(a), (__m256)(b), _CMP_LT_OQ)))
#else
#define IF_LESS_SINGLE(a, b, yes, no) \
    ((Singles)vbslq_f32(vcltq_f32((float32x4_t)(a), (float32x4_t)(b)), (float32x4_t)(yes), (float32x4_t)(no)))
#endif
#define LARGER_SINGLE(a, b) IF_LESS_SINGLE(a, b, b, a)
#define ABSOLUTE_SINGLE(a) ((Singles)((Shuffled)(a) & INT32_MAX))

/* Compute s[k][row] = bias_k + sum_j slope_kj z_j for `span` clusters. A sum over CHUNK features at a time keeps errors
   small. */
TARGET static inline __attribute__((always_inline)) void NAME(energies_of)(
    const Model *model, const float *z, Size k, const int span, float *s)
{
    for (Size i = 0; i < ROWS; i += 2 * TWICE) {
        const float *slope = model->single_slopes + k / 8 * 8 * model->d + k % 8;
        float *to = s + k * ROWS + i;
        for (int c = 0; c < span; c++)
            for (int v = 0; v < 2; v++) AT_SINGLE(to + c * ROWS + v * TWICE) = (Singles){0} + model->single_bias[k + c];
        for (Size j = 0; j < model->d;) {
            const Size end = j + CHUNK < model->d ? j + CHUNK : model->d;
            Singles sum[SPAN][2];
            for (int c = 0; c < span; c++) sum[c][0] = sum[c][1] = (Singles){0};
            for (; j < end; j++, slope += 8)
                for (int v = 0; v < 2; v++) {
                    const Singles value = AT_SINGLE(z + j * ROWS + i + v * TWICE);
                    for (int c = 0; c < span; c++) sum[c][v] += slope[c] * value;
                }
            for (int c = 0; c < span; c++)
                for (int v = 0; v < 2; v++) AT_SINGLE(to + c * ROWS + v * TWICE) += sum[c][v];
        }
    }
}

/* Do so for all clusters. */
TARGET static void NAME(energies_single)(const Model *model, const float *z, float *s)
{
    Size k = 0;
    for (; k + 4 < model->K; k += SPAN) NAME(energies_of)(model, z, k, SPAN, s);
    if (k < model->K) NAME(energies_of)(model, z, k, 4, s);
}

/* Find the cluster and the evidence of each row, and a bound on the error of the evidence, which is larger than the
   evidence or NaN if the cluster is not certain. */
TARGET static void NAME(compete_single)(
    const Model *model, const float *restrict z, const float *restrict s, Tile *restrict tile, double *restrict bound)
{
    float least[ROWS], next[ROWS], square[ROWS];
    for (Size i = 0; i < ROWS; i += 2 * TWICE) {
        Singles first[2], second[2], cluster[2], squares[2];
        for (int v = 0; v < 2; v++) {
            first[v] = second[v] = (Singles){0} + HUGE_VALF;
            cluster[v] = squares[v] = (Singles){0};
        }
        for (Size k = 0; k < model->K; k++) {
            const Singles number = (Singles){0} + (float)k;
            for (int v = 0; v < 2; v++) {
                const Singles value = AT_SINGLE(s + k * ROWS + i + v * TWICE);
                const Singles below = IF_LESS_SINGLE(value, first[v], first[v], value);
                second[v] = IF_LESS_SINGLE(below, second[v], below, second[v]);
                cluster[v] = IF_LESS_SINGLE(value, first[v], number, cluster[v]);
                first[v] = IF_LESS_SINGLE(value, first[v], value, first[v]);
            }
        }
        for (Size j = 0; j < model->d; j++)
            for (int v = 0; v < 2; v++) {
                const Singles value = AT_SINGLE(z + j * ROWS + i + v * TWICE);
                squares[v] += value * value;
            }
        for (int v = 0; v < 2; v++) {
            AT_SINGLE(least + i + v * TWICE) = first[v];
            AT_SINGLE(next + i + v * TWICE) = second[v];
            AT_SINGLE(square + i + v * TWICE) = squares[v];
            for (int r = 0; r < TWICE; r++) tile->cluster[i + v * TWICE + r] = (double)cluster[v][r];
        }
    }
    /* Every term of s is rounded at most CHUNK + d / CHUNK + 4 times. The factor 2.1 is for two energies. The constants are
       for squares and products that underflow. */
    const double often = (double)(CHUNK + model->d / CHUNK + 5) * 0x1p-24 * 2.1;
    for (int i = 0; i < ROWS; i++) {
        tile->evidence[i] = (double)next[i] - (double)least[i];
        bound[i] = often * (model->most_bias + model->most_slope * (sqrt((double)square[i]) + 1e-18)) + 1e-40;
    }
}

/* Write the cluster of each row, which is exact, and the approximate evidence. Return the sum of the bounds on its errors,
   or NaN if an energy or evidence value is not finite. */
TARGET static double NAME(assign_single)(
    const Model *model, const Block *block, Size start, Size rows, float *z, float *s, double *x, double *h)
{
    double bound[ROWS], total = 0.0;
    Tile tile, exact;
    NAME(load_single)(model, block, start, rows, z);
    for (Size j = 0; j < model->d; j++)
        for (Size i = j * ROWS; i < (j + 1) * ROWS; i += TWICE) AT_SINGLE(z + i) -= model->middle[j];
    NAME(energies_single)(model, z, s);
    NAME(compete_single)(model, z, s, &tile, bound);
    int certain = 1;
    for (int i = 0; i < ROWS; i++) certain &= tile.evidence[i] > bound[i];
    if (!certain) {
        NAME(load)(model, block, start, rows, z, x);
        NAME(energies)(model, x, h);
        total = NAME(compete)(model->K, h, &exact);
    }
    for (Size i = 0; i < rows; i++) {
        const int ok = tile.evidence[i] > bound[i];
        block->cluster[start + i] = (Size)(ok ? &tile : &exact)->cluster[i];
        block->evidence[start + i] = (ok ? &tile : &exact)->evidence[i];
        total += ok ? bound[i] : 0.0;
    }
    return total;
}

/* Write the weights of n clusters in single precision. Write the sums of |a_k| times the largest |square| and |slope| of each
   cluster. */
TARGET static void NAME(narrow_weights)(
    const Model *model, const double *a, const Size *some, Size n, float *single, double *squares, double *slopes)
{
    for (Size i = 0; i < ROWS; i += WIDE) {
        Vector by_square = {0}, by_slope = {0};
        for (Size m = 0; m < n; m++) {
            const Size k = some[m];
            const Vector weight = AT(a + k * ROWS + i), size = (Vector)((Lanes)weight & INT64_MAX);
            *(Short *)(single + m * ROWS + i) = NARROW(weight);
            by_square += size * model->reach[2 * k];
            by_slope += size * model->reach[2 * k + 1];
        }
        AT(squares + i) = by_square;
        AT(slopes + i) = by_slope;
    }
}

/* Write where each group of up to `few` clusters ends in `some`; return the number of groups. A group begins at a multiple
   of `few`: other rows of the tile decide which clusters are in `some`, but not the order of the sums. */
TARGET static Size NAME(groups)(const Size *some, Size n, Size few, Size *ends)
{
    Size found = 0;
    ends[0] = 0;
    for (Size m = 1; m <= n; m++) {
        ends[found] = m;
        found += m == n || (some[m] ^ some[m - 1]) >= few; /* few is a power of two */
    }
    return found;
}

/* Write the sums over clusters m to end of `some`: four slopes and four squares. */
TARGET static inline __attribute__((always_inline)) void NAME(add_group)(
    const float *single, const float *both, const Size *some, Size m, Size end, Singles sum[8][ACROSS])
{
    for (int c = 0; c < 8; c++)
        for (int v = 0; v < ACROSS; v++) sum[c][v] = (Singles){0};
    for (; m < end; m++)
        for (int v = 0; v < ACROSS; v++) {
            const Singles w = AT_SINGLE(single + m * ROWS + v * TWICE);
            for (int c = 0; c < 8; c++) sum[c][v] += both[some[m] * 8 + c] * w;
        }
}

/* Replace the rows by the relevance, from sums in single precision, within groups of clusters and then over the groups.
   Write to `fine` whether the error of each row is at most TOLERANCE times its largest |relevance|; return whether all are. */
TARGET static int NAME(combine_single)(
    const Model *model, const double *a, const Size *some, Size n, float *single, Size *ends, float *raw, int *fine)
{
    const Size K = model->K, d = model->d;
    Size few = FEWER;
    while (few * few < K) few *= 2;
    const Size n_groups = NAME(groups)(some, n, few, ends);
    double squares[ROWS], slopes[ROWS];
    float most[ROWS], far[ROWS];
    NAME(narrow_weights)(model, a, some, n, single, squares, slopes);
    for (int i = 0; i < ROWS; i++) most[i] = far[i] = 0.0f;
    for (Size j = 0; j < d; j += 4) {
        const float *both = model->single_both + j * 2 * K;
        for (Size i = 0; i < ROWS; i += ACROSS * TWICE) {
            Singles total[8][ACROSS], sum[8][ACROSS];
            NAME(add_group)(single + i, both, some, 0, ends[0], total);
            for (Size g = 1; g < n_groups; g++) {
                NAME(add_group)(single + i, both, some, ends[g - 1], ends[g], sum);
                for (int c = 0; c < 8; c++)
                    for (int v = 0; v < ACROSS; v++) total[c][v] += sum[c][v];
            }
            for (Size c = 0; c < 4 && j + c < d; c++)
                for (int v = 0; v < ACROSS; v++) {
                    float *value = raw + (j + c) * ROWS + i + v * TWICE, *f = far + i + v * TWICE, *m = most + i + v * TWICE;
                    const Singles z = AT_SINGLE(value) - model->middle[j + c], relevance = total[4 + c][v] + total[c][v] * z;
                    AT_SINGLE(value) = relevance;
                    AT_SINGLE(f) = LARGER_SINGLE(AT_SINGLE(f), ABSOLUTE_SINGLE(z));
                    AT_SINGLE(m) = LARGER_SINGLE(AT_SINGLE(m), ABSOLUTE_SINGLE(relevance));
                }
        }
    }
    /* Every term is rounded at most this often. The last constants are for weights and terms that underflow. */
    const double often = (double)(few + (K + few - 1) / few + 6) * 0x1p-24;
    int all = 1;
    for (int i = 0; i < ROWS; i++) {
        const double tiny = 1e-30 * (model->reach[2 * K] + model->reach[2 * K + 1] * far[i]);
        fine[i] = often * (squares[i] + slopes[i] * far[i] + tiny) + 1e-40 <= TOLERANCE * most[i] && most[i] < 1e38f;
        all &= fine[i];
    }
    return all;
}

typedef double NAME(Four) __attribute__((vector_size(32), aligned(8), may_alias));

/* Write the relevance of features j to j + 2 pairs of row i. `column` holds the weights of the row. */
TARGET static inline __attribute__((always_inline)) void NAME(combine_pairs)(
    const Model *model, const double *column, const Size *some, Size n, Size j, const int pairs, int i, const double *x,
    float *relevance)
{
    const double *both = model->both + j * 2 * model->K;
    NAME(Four) sum[4] = {{0}}; /* several pairs at a time, since each sum has to wait for its last addition */
    for (Size m = 0; m < n; m++)
        for (int p = 0; p < pairs; p++) sum[p] += *(const NAME(Four) *)(both + (p * model->K + some[m]) * 4) * column[m];
    for (int p = 0; p < pairs; p++)
        for (Size c = 0; c < 2 && j + 2 * p + c < model->d; c++) {
            const Size at = (j + 2 * p + c) * ROWS + i;
            relevance[at] = (float)(sum[p][2 + c] + sum[p][c] * x[at]);
        }
}

/* Compute the relevance of the rows that are not fine in double precision, from x, the tile in double. A row by itself costs
   a few times as much as its part of a tile. `column` is work space for n numbers. */
TARGET static void NAME(combine_rest)(
    const Model *model, const double *a, const Size *some, Size n, const int *fine, double *column, double *x, float *relevance)
{
    int left = 0;
    for (int i = 0; i < ROWS; i++) left += !fine[i];
    if (left > ROWS / 4) NAME(combine)(model, 0, a, some, n, x);
    for (int i = 0; i < ROWS; i++) {
        if (fine[i]) continue;
        Size j = 0;
        if (left > ROWS / 4)
            for (; j < model->d; j++) relevance[j * ROWS + i] = (float)x[j * ROWS + i];
        for (Size m = 0; m < n; m++) column[m] = a[some[m] * ROWS + i];
        for (; j + 8 <= model->d; j += 8) NAME(combine_pairs)(model, column, some, n, j, 4, i, x, relevance);
        for (; j < model->d; j += 2) NAME(combine_pairs)(model, column, some, n, j, 1, i, x, relevance);
    }
}

#undef SPAN
#undef ACROSS
#undef IF_LESS_SINGLE
#undef LARGER_SINGLE
#undef ABSOLUTE_SINGLE
