/* Rows in and out of a tile, in double or in float; kmeans_tile.h includes this file. */

typedef double NAME(Loose) __attribute__((vector_size(8 * WIDE), aligned(4), may_alias)); /* two floats for each double */
typedef float NAME(Singles) __attribute__((vector_size(8 * WIDE), aligned(4), may_alias));
typedef int32_t NAME(Shuffled) __attribute__((vector_size(8 * WIDE)));
#define Singles NAME(Singles)
#define Shuffled NAME(Shuffled)
#define AT_SINGLE(pointer) (*(Singles *)(pointer))
#define TWICE (2 * WIDE) /* floats in a register */
#if WIDE == 8
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define FIRST 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define SECOND 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif WIDE == 4
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
#define FIRST 0, 8, 1, 9, 2, 10, 3, 11
#define SECOND 4, 12, 5, 13, 6, 14, 7, 15
#else
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#define FIRST 0, 4, 1, 5
#define SECOND 2, 6, 3, 7
#endif
#ifdef __clang__
#define PICK_SINGLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK_SINGLE(a, b, ...) __builtin_shuffle(a, b, (Shuffled){__VA_ARGS__})
#endif

/* Load rows of double into the tile, without the offset; after the last row, the first row of the tile is repeated. */
TARGET static void NAME(load_double)(const Model *model, const Block *block, Size start, Size rows, double *x)
{
    const Size d = model->d, down = block->down, first = (block->first + start) * down;
    const void *const *columns = block->columns;
    const double *offset = model->offset;
    if (down == 1 && rows == ROWS) {
        for (Size j = 0; j < d; j++) {
            const double *column = (const double *)columns[j] + first;
            for (int i = 0; i < ROWS; i++) x[j * ROWS + i] = column[i] - offset[j];
        }
        return;
    }
    const Size turned = block->side_by_side ? d / WIDE * WIDE : 0;
    for (Size i = 0; i < ROWS; i += WIDE) {
        Size row[WIDE];
        for (int r = 0; r < WIDE; r++) row[r] = first + (i + r < rows ? i + r : 0) * down;
        for (Size j = 0; j < turned; j += WIDE) {
            Vector v[WIDE];
            for (int r = 0; r < WIDE; r++) {
                const double *from = (const double *)columns[0] + row[r] + j;
                __builtin_prefetch(from + ROWS * down); /* the same part of the next tile */
                v[r] = AT(from);
            }
            NAME(turn)(v);
            for (int r = 0; r < WIDE; r++) AT(x + (j + r) * ROWS + i) = v[r] - offset[j + r];
        }
        for (Size j = turned; j < d; j++) {
            const double *column = columns[j];
            for (int r = 0; r < WIDE; r++) x[j * ROWS + i + r] = column[row[r]] - offset[j];
        }
    }
}

/* Load rows of float into the tile unchanged; the rest is as for double. */
TARGET static void NAME(load_single)(const Model *model, const Block *block, Size start, Size rows, float *raw)
{
    const Size d = model->d, down = block->down, first = (block->first + start) * down;
    const void *const *columns = block->columns;
    if (down == 1 && rows == ROWS) {
        for (Size j = 0; j < d; j++) memcpy(raw + j * ROWS, (const float *)columns[j] + first, ROWS * sizeof(float));
        return;
    }
    const Size turned = block->side_by_side ? d / TWICE * TWICE : 0;
    for (Size i = 0; i < ROWS; i += TWICE) {
        Size row[TWICE];
        for (int r = 0; r < TWICE; r++) row[r] = first + (i + r < rows ? i + r : 0) * down;
        for (Size j = 0; j < turned; j += TWICE) { /* pairs of floats are turned like doubles, then taken apart */
            Vector v[2][WIDE];
            for (int r = 0; r < TWICE; r++) {
                const float *from = (const float *)columns[0] + row[r] + j;
                __builtin_prefetch(from + ROWS * down); /* the same part of the next tile */
                v[r / WIDE][r % WIDE] = *(const NAME(Loose) *)from;
            }
            NAME(turn)(v[0]);
            NAME(turn)(v[1]);
            for (int r = 0; r < WIDE; r++) {
                const Singles low = (Singles)v[0][r], high = (Singles)v[1][r];
                float *to = raw + (j + 2 * r) * ROWS + i;
                AT_SINGLE(to) = PICK_SINGLE(low, high, EVEN);
                AT_SINGLE(to + ROWS) = PICK_SINGLE(low, high, ODD);
            }
        }
        for (Size j = turned; j < d; j++) {
            const float *column = columns[j];
            for (int r = 0; r < TWICE; r++) raw[j * ROWS + i + r] = column[row[r]];
        }
    }
}

/* Load rows into the tile x, without the offset, and rows of float into `raw` as well. */
TARGET static void NAME(load)(const Model *model, const Block *block, Size start, Size rows, float *raw, double *x)
{
    if (!block->from_float) {
        NAME(load_double)(model, block, start, rows, x);
        return;
    }
    NAME(load_single)(model, block, start, rows, raw);
    for (Size j = 0; j < model->d; j++)
        for (Size i = j * ROWS; i < (j + 1) * ROWS; i += WIDE) AT(x + i) = WIDEN(*(Short *)(raw + i)) - model->offset[j];
}

/* Store a tile to the result, which holds double by rows or by columns. Return 0, or NaN if a number is not finite. */
TARGET static double NAME(store_double)(const Block *block, Size width, Size start, Size rows, const double *x)
{
    const Size across = block->out_across, down = block->out_down;
    double *to = (double *)block->out + start * down, flaw = 0.0;
    if (down == 1) {
        double each[ROWS] = {0};
        for (Size j = 0; j < width; j++)
            for (Size i = 0; i < rows; i++) {
                to[j * across + i] = x[j * ROWS + i];
                each[i] += x[j * ROWS + i] * 0.0;
            }
        for (Size i = 0; i < rows; i++) flaw += each[i];
        return flaw;
    }
    const Size turned = width / WIDE * WIDE;
    Vector flaws = {0};
    for (Size i = 0; i < rows; i += WIDE) {
        const Size some = rows - i < WIDE ? rows - i : WIDE;
        for (Size j = 0; j < turned; j += WIDE) {
            Vector v[WIDE];
            for (int r = 0; r < WIDE; r++) v[r] = AT(x + (j + r) * ROWS + i);
            NAME(turn)(v);
            for (Size r = 0; r < some; r++) {
                AT(to + (i + r) * down + j) = v[r];
                flaws += v[r] * 0.0;
            }
        }
        for (Size j = turned; j < width; j++)
            for (Size r = 0; r < some; r++) {
                to[(i + r) * down + j] = x[j * ROWS + i + r];
                flaw += x[j * ROWS + i + r] * 0.0;
            }
    }
    for (int r = 0; r < WIDE; r++) flaw += flaws[r];
    return flaw;
}

/* The same for a tile of float and a result of float. */
TARGET static double NAME(store_single)(const Block *block, Size width, Size start, Size rows, const float *x)
{
    const Size across = block->out_across, down = block->out_down;
    float *to = (float *)block->out + start * down, flaw = 0.0f;
    if (down == 1) {
        float each[ROWS] = {0};
        for (Size j = 0; j < width; j++)
            for (Size i = 0; i < rows; i++) {
                to[j * across + i] = x[j * ROWS + i];
                each[i] += x[j * ROWS + i] * 0.0f;
            }
        for (Size i = 0; i < rows; i++) flaw += each[i];
        return (double)flaw;
    }
    const Size turned = width / TWICE * TWICE;
    Singles flaws = {0};
    for (Size i = 0; i < rows; i += TWICE) {
        const Size some = rows - i < TWICE ? rows - i : TWICE;
        for (Size j = 0; j < turned; j += TWICE) { /* as in load_single, in reverse order */
            Vector v[2][WIDE];
            for (int r = 0; r < WIDE; r++) {
                const float *from = x + (j + 2 * r) * ROWS + i;
                v[0][r] = (Vector)PICK_SINGLE(AT_SINGLE(from), AT_SINGLE(from + ROWS), FIRST);
                v[1][r] = (Vector)PICK_SINGLE(AT_SINGLE(from), AT_SINGLE(from + ROWS), SECOND);
            }
            NAME(turn)(v[0]);
            NAME(turn)(v[1]);
            for (Size r = 0; r < some; r++) {
                const Singles numbers = (Singles)v[r / WIDE][r % WIDE];
                AT_SINGLE(to + (i + r) * down + j) = numbers;
                flaws += numbers * 0.0f;
            }
        }
        for (Size j = turned; j < width; j++)
            for (Size r = 0; r < some; r++) {
                to[(i + r) * down + j] = x[j * ROWS + i + r];
                flaw += x[j * ROWS + i + r] * 0.0f;
            }
    }
    for (int r = 0; r < TWICE; r++) flaw += flaws[r];
    return (double)flaw;
}

/* Convert n numbers to float. */
TARGET static void NAME(narrow)(Size n, const double *from, float *to)
{
    for (Size i = 0; i < n; i += WIDE) *(Short *)(to + i) = NARROW(AT(from + i));
}

#undef EVEN
#undef ODD
#undef FIRST
#undef SECOND
#undef PICK_SINGLE
