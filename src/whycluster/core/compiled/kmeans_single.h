/* The loops in single precision, for rows and results in float; kmeans_tile.h includes this file.

They compute what needs no more digits: relevance from weights in double, and the assignment while a population is
measured. Every row gets a proven bound on its error. The caller computes the row in double if the bound is too large.

Terms are relative to `middle` and leave out what all clusters share, so that data far from 0 lose no digits. */

typedef double NAME(Loose) __attribute__((vector_size(8 * WIDE), aligned(4), may_alias));
typedef float NAME(Singles) __attribute__((vector_size(8 * WIDE), aligned(4), may_alias));
typedef int32_t NAME(Shuffled) __attribute__((vector_size(8 * WIDE)));
#define Singles NAME(Singles)
#define Shuffled NAME(Shuffled)
#define AT_SINGLE(pointer) (*(Singles *)(pointer))
#define TWICE (2 * WIDE) /* floats in a register */
#if WIDE == 8
#define SPAN 8 /* clusters at a time */
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#elif WIDE == 4
#define SPAN 4
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
#else
#define SPAN 4
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#endif
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
#ifdef __clang__
#define PICK_SINGLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK_SINGLE(a, b, ...) __builtin_shuffle(a, b, (Shuffled){__VA_ARGS__})
#endif

/* Load rows of float into the tile, relative to `middle`; after the last row, the first row of the tile is repeated. */
TARGET static void NAME(load_single)(const Model *model, const Block *block, Size start, Size rows, float *z)
{
    const Size d = model->d, down = block->down, first = (block->first + start) * down;
    const void *const *columns = block->columns;
    const float *middle = model->middle;
    if (down == 1 && rows == ROWS) {
        for (Size j = 0; j < d; j++) {
            const float *column = (const float *)columns[j] + first;
            for (int i = 0; i < ROWS; i++) z[j * ROWS + i] = column[i] - middle[j];
        }
        return;
    }
    const Size turned = block->side_by_side ? d / TWICE * TWICE : 0;
    for (Size i = 0; i < ROWS; i += TWICE) {
        Size row[TWICE];
        for (int r = 0; r < TWICE; r++) row[r] = first + (i + r < rows ? i + r : 0) * down;
        for (Size j = 0; j < turned; j += TWICE) { /* pairs of floats are turned like doubles, then taken apart */
            Vector v[2][WIDE];
            for (int r = 0; r < TWICE; r++) v[r / WIDE][r % WIDE] = *(const NAME(Loose) *)((const float *)columns[0] + row[r] + j);
            NAME(turn)(v[0]);
            NAME(turn)(v[1]);
            for (int r = 0; r < WIDE; r++) {
                const Singles low = (Singles)v[0][r], high = (Singles)v[1][r];
                float *to = z + (j + 2 * r) * ROWS + i;
                AT_SINGLE(to) = PICK_SINGLE(low, high, EVEN) - middle[j + 2 * r];
                AT_SINGLE(to + ROWS) = PICK_SINGLE(low, high, ODD) - middle[j + 2 * r + 1];
            }
        }
        for (Size j = turned; j < d; j++) {
            const float *column = columns[j];
            for (int r = 0; r < TWICE; r++) z[j * ROWS + i + r] = column[row[r]] - middle[j];
        }
    }
}

/* Compute s[k][row] = bias_k + sum_j slope_kj z_j. A sum over CHUNK features at a time keeps errors small. */
TARGET static void NAME(energies_single)(const Model *model, const float *z, float *s)
{
    for (Size k = 0; k < model->K; k += SPAN) {
        for (Size i = 0; i < ROWS; i += 2 * TWICE) {
            const float *slope = model->single_slopes + k / 8 * 8 * model->d + k % 8;
            float *to = s + k * ROWS + i;
            for (int c = 0; c < SPAN; c++)
                for (int v = 0; v < 2; v++) AT_SINGLE(to + c * ROWS + v * TWICE) = (Singles){0} + model->single_bias[k + c];
            for (Size j = 0; j < model->d;) {
                const Size end = j + CHUNK < model->d ? j + CHUNK : model->d;
                Singles sum[SPAN][2];
                for (int c = 0; c < SPAN; c++) sum[c][0] = sum[c][1] = (Singles){0};
                for (; j < end; j++, slope += 8)
                    for (int v = 0; v < 2; v++) {
                        const Singles value = AT_SINGLE(z + j * ROWS + i + v * TWICE);
                        for (int c = 0; c < SPAN; c++) sum[c][v] += slope[c] * value;
                    }
                for (int c = 0; c < SPAN; c++)
                    for (int v = 0; v < 2; v++) AT_SINGLE(to + c * ROWS + v * TWICE) += sum[c][v];
            }
        }
    }
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
TARGET static double NAME(assign_single)(const Model *model, const Block *block, Size start, Size rows, double *x, double *h)
{
    double bound[ROWS], total = 0.0;
    Tile tile, exact;
    NAME(load_single)(model, block, start, rows, (float *)x);
    NAME(energies_single)(model, (float *)x, (float *)h);
    NAME(compete_single)(model, (float *)x, (float *)h, &tile, bound);
    int certain = 1;
    for (int i = 0; i < ROWS; i++) certain &= tile.evidence[i] > bound[i];
    if (!certain) {
        NAME(load_float)(model, block, start, rows, x);
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

/* Write the weights in single precision. Write the sums of |a_k| times the largest |square| and |slope| of each cluster. */
TARGET static void NAME(narrow)(
    const Model *model, const double *a, const Size *some, Size n, float *single, double *squares, double *slopes)
{
    for (Size i = 0; i < ROWS; i += WIDE) {
        Vector by_square = {0}, by_slope = {0};
        for (Size m = 0; m < n; m++) {
            const Size k = some[m];
            const Vector weight = AT(a + k * ROWS + i), size = (Vector)((Lanes)weight & INT64_MAX);
            *(Short *)(single + k * ROWS + i) = NARROW(weight);
            by_square += size * model->reach[2 * k];
            by_slope += size * model->reach[2 * k + 1];
        }
        AT(squares + i) = by_square;
        AT(slopes + i) = by_slope;
    }
}

/* Write where each group of FEWER clusters ends in `some`; return the number of groups. A group begins at a multiple of
   FEWER: other rows of the tile decide which clusters are in `some`, but not the order of the sums. */
TARGET static Size NAME(groups)(const Size *some, Size n, Size *ends)
{
    Size found = 0;
    for (Size m = 1; m <= n; m++) {
        ends[found] = m;
        found += m == n || some[m] / FEWER != some[m - 1] / FEWER;
    }
    return found;
}

/* Replace x by the relevance, from sums in single precision over up to FEWER clusters at a time. Write to `fine` whether
   the error of each row is at most TOLERANCE times its largest |relevance|; return whether all are. */
TARGET static int NAME(combine_single)(
    const Model *model, const double *a, const Size *some, Size n, float *single, Size *ends, double *x, int *fine)
{
    const Size K = model->K, d = model->d, n_groups = NAME(groups)(some, n, ends);
    double squares[ROWS], slopes[ROWS], most[ROWS], far[ROWS];
    NAME(narrow)(model, a, some, n, single, squares, slopes);
    for (int i = 0; i < ROWS; i++) most[i] = far[i] = 0.0;
    for (Size j = 0; j < d; j += 2) {
        const float *both = model->single_both + j * 2 * K;
        for (Size i = 0; i < ROWS; i += 2 * TWICE) {
            Vector total[4][4];
            for (int c = 0; c < 4; c++)
                for (int v = 0; v < 4; v++) total[c][v] = (Vector){0};
            for (Size g = 0, m = 0; g < n_groups; g++) {
                const Size end = ends[g];
                Singles sum[4][2];
                for (int c = 0; c < 4; c++) sum[c][0] = sum[c][1] = (Singles){0};
                for (; m < end; m++) {
                    const float *weight = single + some[m] * ROWS + i, *of = both + some[m] * 4;
                    for (int v = 0; v < 2; v++) {
                        const Singles w = AT_SINGLE(weight + v * TWICE);
                        for (int c = 0; c < 4; c++) sum[c][v] += of[c] * w;
                    }
                }
                float flat[4][2 * TWICE]; /* a register of floats becomes two of doubles */
                for (int c = 0; c < 4; c++)
                    for (int v = 0; v < 2; v++) AT_SINGLE(flat[c] + v * TWICE) = sum[c][v];
                for (int c = 0; c < 4; c++)
                    for (int v = 0; v < 4; v++) total[c][v] += WIDEN(*(Short *)(flat[c] + v * WIDE));
            }
            for (Size c = 0; c < 2 && j + c < d; c++) {
                const double middle = (double)model->middle[j + c] - model->offset[j + c];
                for (int v = 0; v < 4; v++) {
                    double *value = x + (j + c) * ROWS + i + v * WIDE, *f = far + i + v * WIDE, *m = most + i + v * WIDE;
                    const Vector z = AT(value) - middle, relevance = total[2 + c][v] + total[c][v] * z;
                    AT(value) = relevance;
                    AT(f) = LARGER(AT(f), (Vector)((Lanes)z & INT64_MAX));
                    AT(m) = LARGER(AT(m), (Vector)((Lanes)relevance & INT64_MAX));
                }
            }
        }
    }
    int all = 1;
    for (int i = 0; i < ROWS; i++) { /* the last terms are for weights that underflow */
        const double tiny = 1e-30 * (model->reach[2 * K] + model->reach[2 * K + 1] * far[i]);
        fine[i] = (FEWER + 3) * 0x1p-24 * (squares[i] + slopes[i] * far[i] + tiny) <= TOLERANCE * most[i];
        all &= fine[i];
    }
    return all;
}

#undef Singles
#undef Shuffled
#undef AT_SINGLE
#undef TWICE
#undef SPAN
#undef EVEN
#undef ODD
#undef PICK_SINGLE
#undef IF_LESS_SINGLE
