/* The loops over the rows of a block, tile by tile; included once per instruction set.

SET is the name of the instruction set, and TARGET the attribute of its functions. A register holds WIDE numbers. DEEP
registers of rows are processed at a time, as many as fit with four sums each.

A tile is stored by features, x[j][row], and by clusters, h[k][row]: every step is the same for all rows, and nothing
is summed across a register. */

typedef double NAME(Vector) __attribute__((vector_size(8 * WIDE), aligned(8), may_alias));
typedef float NAME(Short) __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));
typedef int64_t NAME(Lanes) __attribute__((vector_size(8 * WIDE)));
#define Vector NAME(Vector)
#define Short NAME(Short)
#define Lanes NAME(Lanes)
#define AT(pointer) (*(Vector *)(pointer))
#define STEP (WIDE * DEEP)

/* Transpose WIDE x WIDE numbers. */
TARGET static inline void NAME(turn)(Vector v[WIDE])
{
    Vector w[WIDE];
#if WIDE == 8
    for (int i = 0; i < 8; i += 2) {
        w[i] = PICK(v[i], v[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        w[i + 1] = PICK(v[i], v[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    for (int i = 0; i < 8; i++) {
        if (i & 2) continue;
        v[i] = PICK(w[i], w[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        v[i + 2] = PICK(w[i], w[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    for (int i = 0; i < 4; i++) {
        w[i] = PICK(v[i], v[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        w[i + 4] = PICK(v[i], v[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
    for (int i = 0; i < 8; i++) v[i] = w[i];
#elif WIDE == 4
    for (int i = 0; i < 4; i += 2) {
        w[i] = PICK(v[i], v[i + 1], 0, 4, 2, 6);
        w[i + 1] = PICK(v[i], v[i + 1], 1, 5, 3, 7);
    }
    for (int i = 0; i < 2; i++) {
        v[i] = PICK(w[i], w[i + 2], 0, 1, 4, 5);
        v[i + 2] = PICK(w[i], w[i + 2], 2, 3, 6, 7);
    }
#else
    w[0] = v[0];
    v[0] = PICK(w[0], v[1], 0, 2);
    v[1] = PICK(w[0], v[1], 1, 3);
#endif
}

/* Load rows of Number into the tile; after the last row, the first row of the tile is repeated. */
#define LOAD(name, Number, Numbers)                                                                           \
    TARGET static void NAME(name)(const Model *model, const Block *block, Size start, Size rows, double *x)   \
    {                                                                                                         \
        const Size d = model->d, down = block->down, first = (block->first + start) * down;                   \
        const void *const *columns = block->columns;                                                          \
        const double *offset = model->offset;                                                                 \
        if (down == 1 && rows == ROWS) {                                                                      \
            for (Size j = 0; j < d; j++) {                                                                    \
                const Number *column = (const Number *)columns[j] + first;                                    \
                for (int i = 0; i < ROWS; i++) x[j * ROWS + i] = (double)column[i] - offset[j];               \
            }                                                                                                 \
            return;                                                                                           \
        }                                                                                                     \
        const Size turned = block->side_by_side ? d / WIDE * WIDE : 0;                                        \
        for (Size i = 0; i < ROWS; i += WIDE) {                                                               \
            Size row[WIDE];                                                                                   \
            for (int r = 0; r < WIDE; r++) row[r] = first + (i + r < rows ? i + r : 0) * down;                \
            for (Size j = 0; j < turned; j += WIDE) {                                                         \
                Vector v[WIDE];                                                                               \
                for (int r = 0; r < WIDE; r++) {                                                              \
                    const Number *at = (const Number *)columns[0] + row[r] + j;                               \
                    v[r] = __builtin_convertvector(*(const Numbers *)at, Vector);                             \
                }                                                                                             \
                NAME(turn)(v);                                                                                \
                for (int r = 0; r < WIDE; r++) AT(x + (j + r) * ROWS + i) = v[r] - offset[j + r];             \
            }                                                                                                 \
            for (Size j = turned; j < d; j++) {                                                               \
                const Number *column = columns[j];                                                            \
                for (int r = 0; r < WIDE; r++) x[j * ROWS + i + r] = (double)column[row[r]] - offset[j];      \
            }                                                                                                 \
        }                                                                                                     \
    }
LOAD(load_double, double, Vector)
LOAD(load_float, float, Short)

/* Store the tile to the result, which holds Number by rows or by columns; Numbers is a register of these. */
#define STORE(name, Number, Numbers)                                                                          \
    TARGET static void NAME(name)(const Block *block, Size width, Size start, Size rows, const double *x)     \
    {                                                                                                         \
        const Size across = block->out_across, down = block->out_down;                                        \
        Number *to = (Number *)block->out + start * down;                                                     \
        if (down == 1) {                                                                                      \
            for (Size j = 0; j < width; j++)                                                                  \
                for (Size i = 0; i < rows; i++) to[j * across + i] = (Number)x[j * ROWS + i];                 \
            return;                                                                                           \
        }                                                                                                     \
        const Size turned = width / WIDE * WIDE;                                                              \
        for (Size i = 0; i < rows; i += WIDE) {                                                               \
            const Size some = rows - i < WIDE ? rows - i : WIDE;                                              \
            for (Size j = 0; j < turned; j += WIDE) {                                                         \
                Vector v[WIDE];                                                                               \
                for (int r = 0; r < WIDE; r++) v[r] = AT(x + (j + r) * ROWS + i);                             \
                NAME(turn)(v);                                                                                \
                for (Size r = 0; r < some; r++)                                                               \
                    *(Numbers *)(to + (i + r) * down + j) = __builtin_convertvector(v[r], Numbers);           \
            }                                                                                                 \
            for (Size j = turned; j < width; j++)                                                             \
                for (Size r = 0; r < some; r++) to[(i + r) * down + j] = (Number)x[j * ROWS + i + r];         \
        }                                                                                                     \
    }
STORE(store_double, double, Vector)
STORE(store_float, float, Short)

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
    double least[ROWS], next[ROWS], cluster[ROWS], competitor[ROWS], flaw[ROWS];
    for (int i = 0; i < ROWS; i++) {
        least[i] = next[i] = HUGE_VAL;
        cluster[i] = competitor[i] = flaw[i] = 0.0;
    }
    for (Size k = 0; k < K; k++) {
        const double *s = h + k * ROWS, number = (double)k;
        for (int i = 0; i < ROWS; i++) {
            double value = s[i], below = value < least[i] ? least[i] : value;
            double whose = value < least[i] ? cluster[i] : number;
            competitor[i] = value < next[i] ? whose : competitor[i];
            next[i] = value < next[i] ? below : next[i];
            cluster[i] = value < least[i] ? number : cluster[i];
            least[i] = value < least[i] ? value : least[i];
            flaw[i] += value * 0.0;
        }
    }
    double total = 0.0; /* NaN if an energy or the difference of two is not finite */
    for (int i = 0; i < ROWS; i++) {
        tile->cluster[i] = cluster[i];
        tile->competitor[i] = competitor[i];
        tile->evidence[i] = next[i] - least[i];
        total += flaw[i] + tile->evidence[i] * 0.0;
    }
    for (Size k = 0; k < K; k++)
        for (int i = 0; i < ROWS; i++) h[k * ROWS + i] -= least[i];
    return total;
}

/* Replace h by a_k = p_k f / h_k (Eqs. 2 and 4) and a_c = -sum. Write the clusters that have a weight in any row to
   `some` and return their number. */
TARGET static Size NAME(weigh)(Size K, double beta, double *restrict h, const Tile *restrict tile, Size *restrict some)
{
    double total[ROWS], sum[ROWS];
    for (int i = 0; i < ROWS; i++) total[i] = sum[i] = 0.0;
    for (Size k = 0; k < K; k++) {
        double *a = h + k * ROWS, number = (double)k;
        for (int i = 0; i < ROWS; i++) {
            double f = tile->evidence[i], p = exp_minus(beta * (a[i] - f));
            double ratio = a[i] > f ? f / a[i] : 1.0; /* on a tie both are 0, and 1 is the limit */
            p = tile->cluster[i] == number ? 0.0 : p; /* h_c - f is negative, so p_c is undefined */
            total[i] += p;
            a[i] = p * ratio;
            sum[i] += a[i];
        }
    }
    for (int i = 0; i < ROWS; i++) total[i] = 1.0 / total[i];
    Size n = 0;
    for (Size k = 0; k < K; k++) {
        double *a = h + k * ROWS, number = (double)k, any = 0.0;
        for (int i = 0; i < ROWS; i++) {
            a[i] = (tile->cluster[i] == number ? -sum[i] : a[i]) * total[i];
            any += a[i] * a[i];
        }
        some[n] = k;
        n += any != 0.0;
    }
    return n;
}

/* Replace x by the relevance, sum_k a_k square_kj + x_j sum_k a_k slope_kj, two features at a time. */
TARGET static void NAME(combine)(const Model *model, const double *a, const Size *some, Size n, double *x)
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
                    AT(value) = sum[2 + c][v] + sum[c][v] * AT(value);
                }
        }
    }
}

TARGET static double NAME(run)(const Model *model, const Block *block, double *space)
{
    const Size K = model->K, d = model->d;
    double *x = space, *h = x + (d + 1) * ROWS, flaws = 0.0;
    Size *some = (Size *)(h + (K + 3) * ROWS);
    Tile tile;
    memset(x + d * ROWS, 0, ROWS * sizeof(double)); /* padding of the last two features */
    for (Size start = 0; start < block->n; start += ROWS) {
        const Size rows = block->n - start < ROWS ? block->n - start : ROWS;
        (block->from_float ? NAME(load_float) : NAME(load_double))(model, block, start, rows, x);
        NAME(energies)(model, x, h);
        if (block->only_energies) {
            NAME(store_double)(block, K, start, rows, h);
            continue;
        }
        flaws += NAME(compete)(K, h, &tile);
        for (Size i = 0; i < rows; i++) {
            block->cluster[start + i] = (Size)tile.cluster[i];
            block->competitor[start + i] = (Size)tile.competitor[i];
            block->evidence[start + i] = tile.evidence[i];
        }
        if (!block->out) continue;
        const Size n = NAME(weigh)(K, block->beta, h, &tile, some);
        NAME(combine)(model, h, some, n, x);
        (block->to_float ? NAME(store_float) : NAME(store_double))(block, d, start, rows, x);
    }
    return flaws;
}

#undef Vector
#undef Short
#undef Lanes
#undef AT
#undef STEP
#undef LOAD
#undef STORE
