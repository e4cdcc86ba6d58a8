/* The loops over the parts and features of a row; included once per instruction set by each_set.h. */

#include "vectors.h"

#define LANES_AT(pointer) (*(Lanes *)(pointer))
#define AT_ONCE (2 * DEEP) /* registers for which sums are computed at a time */

/* Write the sum of a register, and that of another, to two numbers. */
TARGET static inline void NAME(sum_both)(Vector a, Vector b, double *of_a, double *of_b)
{
#if WIDE == 8
    Vector s = PICK(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + PICK(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
    s += PICK(s, s, 2, 3, 0, 1, 6, 7, 4, 5);
    s += PICK(s, s, 1, 0, 3, 2, 5, 4, 7, 6);
#elif WIDE == 4
    Vector s = PICK(a, b, 0, 1, 4, 5) + PICK(a, b, 2, 3, 6, 7);
    s += PICK(s, s, 1, 0, 3, 2);
#else
    Vector s = PICK(a, b, 0, 2) + PICK(a, b, 1, 3);
#endif
    *of_a = s[0];
    *of_b = s[WIDE / 2];
}

TARGET static inline Vector NAME(choose)(Lanes which, Vector yes, Vector no)
{
    return (Vector)((which & (Lanes)yes) | (~which & (Lanes)no));
}

/* Write the terms in nats, after subtracting the least one of each feature; return whether all are below HARD. */
TARGET static int NAME(load)(const Parts *parts, const double *restrict from, Row *restrict row)
{
    const Size P = row->P, d = row->d, W = row->W, D = row->D;
    double *nats = row->nats;
    Lanes small = ~(Lanes){0};
    if (parts->centers) memcpy(row->x, from, (size_t)d * sizeof(double));
    else
        for (Size k = 0; k < P; k++) memcpy(nats + k * D, from + k * d, (size_t)d * sizeof(double));
    const double *centers = parts->centers, beta = parts->beta;
    for (Size i = 0; i < W; i += WIDE) {
        Vector least = (Vector){0} + HUGE_VAL;
        if (centers) {
            const Vector x = AT(row->x + i), scale = AT(parts->scale + i);
            for (Size k = 0; k < P; k++) {
                const Vector apart = x - AT(centers + k * D + i), term = apart * apart * scale;
                AT(nats + k * D + i) = term;
                least = SMALLER(term, least);
            }
        } else
            for (Size k = 0; k < P; k++) least = SMALLER(AT(nats + k * D + i), least);
        for (Size k = 0; k < P; k++) {
            const Vector shifted = (AT(nats + k * D + i) - least) * beta;
            AT(nats + k * D + i) = shifted;
            small &= shifted < HARD;
        }
    }
    return !ANY(~small);
}

/* Compute exp(-nats), by parts and by features. */
TARGET static void NAME(exponentiate)(Row *row)
{
    const double *restrict nats = row->nats;
    double *restrict factor = row->factor;
    for (Size k = 0; k < row->P * row->D; k += row->D)
        for (Size j = k; j < k + row->W; j++) factor[j] = exp_minus(nats[j]);
    for (Size k = 0; k < row->Q; k += WIDE)
        for (Size i = 0; i < row->W; i += WIDE) {
            Vector v[WIDE];
            for (int r = 0; r < WIDE; r++) v[r] = AT(factor + (k + r) * row->D + i);
            NAME(turn)(v);
            for (int r = 0; r < WIDE; r++) AT(row->turned + (i + r) * row->Q + k) = v[r];
        }
}

/* Update the log weights by the features since the last update, and compute the weights relative to the largest one. */
TARGET static void NAME(rebuild)(Row *row, Size from, Size to)
{
    double most = -HUGE_VAL;
    for (Size k = 0; k < row->P; k++) {
        for (Size t = from; t < to; t++) row->left[k] -= row->nats[k * row->D + row->taken[t]];
        most = row->left[k] > most ? row->left[k] : most;
    }
    for (Size k = 0; k < row->P; k++) {
        const double weight = exp_minus(most - row->left[k]);
        const int own = row->begin <= k && k < row->end;
        row->own[k] = own ? weight : 0.0;
        row->others[k] = own ? 0.0 : weight;
    }
}

/* Write the sums of the weights of the cluster and of the others; return whether both are above LEAST. */
TARGET static int NAME(add_up)(const Row *row, double *own, double *others)
{
    Vector a = {0}, b = {0};
    for (Size k = 0; k < row->Q; k += WIDE) b += AT(row->others + k);
    for (Size k = row->begin / WIDE * WIDE; k < row->end; k += WIDE) a += AT(row->own + k);
    NAME(sum_both)(a, b, own, others);
    return *own > LEAST && *others > LEAST;
}

/* Multiply the weights by the factors of a feature, then do the same. */
TARGET static int NAME(take)(const Row *row, Size feature, double *own, double *others)
{
    const double *factor = row->turned + feature * row->Q;
    Vector a = {0}, b = {0};
    for (Size k = 0; k < row->Q; k += WIDE) {
        const Vector weight = AT(row->others + k) * AT(factor + k);
        AT(row->others + k) = weight;
        b += weight;
    }
    for (Size k = row->begin / WIDE * WIDE; k < row->end; k += WIDE) {
        const Vector weight = AT(row->own + k) * AT(factor + k);
        AT(row->own + k) = weight;
        a += weight;
    }
    NAME(sum_both)(a, b, own, others);
    return *own > LEAST && *others > LEAST;
}

/* Write the odds of the cluster after each free feature, and -1 for the others, for n registers from feature i on. Return
   where sums are above LEAST or do not count. */
TARGET static inline __attribute__((always_inline)) Lanes NAME(score_some)(const Row *row, Size i, const int n)
{
    const Size P = row->P, D = row->D;
    const double *factor = row->factor + i, *own = row->own, *others = row->others;
    Vector a[AT_ONCE], b[AT_ONCE];
    Lanes fine = ~(Lanes){0};
    for (int v = 0; v < n; v++) a[v] = b[v] = (Vector){0};
    for (Size k = row->begin; k < row->end; k++)
        for (int v = 0; v < n; v++) a[v] += own[k] * AT(factor + k * D + v * WIDE);
    for (Size k = 0; k < P; k++)
        for (int v = 0; v < n; v++) b[v] += others[k] * AT(factor + k * D + v * WIDE);
    for (int v = 0; v < n; v++) {
        const Lanes is_free = LANES_AT(row->is_free + i + v * WIDE);
        fine &= ((a[v] > LEAST) & (b[v] > LEAST)) | ~is_free;
        AT(row->odds + i + v * WIDE) = NAME(choose)(is_free, a[v] / b[v], (Vector){0} - 1.0);
    }
    return fine;
}

/* Write the odds for all features; return whether all sums are above LEAST. */
TARGET static int NAME(score)(const Row *row)
{
    Lanes fine = ~(Lanes){0};
    Size i = 0;
    for (; i + AT_ONCE * WIDE <= row->W; i += AT_ONCE * WIDE) fine &= NAME(score_some)(row, i, AT_ONCE);
    for (; i + 2 * WIDE <= row->W; i += 2 * WIDE) fine &= NAME(score_some)(row, i, 2);
    for (; i < row->W; i += WIDE) fine &= NAME(score_some)(row, i, 1);
    return !ANY(~fine);
}

/* Write the positions of n values to `order` or `spare` in descending order, earlier ones first on a tie; return which. */
TARGET static Size *NAME(sort)(const double *value, Size n, Size *order, Size *spare)
{
    for (Size begin = 0; begin < n; begin += FEW) {
        const Size end = begin + FEW < n ? begin + FEW : n;
        for (Size m = begin; m < end; m++) order[m] = -1;
        for (Size m = begin; m < end; m += WIDE) {
            const Vector of = AT(value + m);
            Lanes above = {0};
            for (Size j = begin; j < end; j++) above -= (Vector){0} + value[j] > of;
            for (Size r = 0; r < WIDE && m + r < end; r++) {
                Size rank = begin + above[r];
                while (order[rank] >= 0) rank++; /* a tie */
                order[rank] = m + r;
            }
        }
    }
    for (Size size = FEW; size < n; size *= 2) {
        for (Size begin = 0; begin < n; begin += 2 * size) {
            const Size middle = begin + size < n ? begin + size : n, end = middle + size < n ? middle + size : n;
            merge(value, order, begin, middle, end, spare);
        }
        Size *swapped = order;
        order = spare;
        spare = swapped;
    }
    return order;
}

/* Return how many of n values are at least a limit. */
TARGET static inline Size NAME(count)(const double *value, Size n, double limit)
{
    Lanes found = {0};
    for (Size m = 0; m < n; m += WIDE) found -= AT(value + m) >= limit;
    Size total = 0;
    for (int r = 0; r < WIDE; r++) total += found[r];
    return total;
}

/* Return a number that at least `size`, and if possible not many more, of n values are not below. Only the `rest` of the
   values are not negative, and only these count. The bits of positive numbers are in the order of the numbers. */
TARGET static double NAME(limit)(const double *value, Size n, Size rest, Size size)
{
    int64_t low, high, middle;
    Vector lowest = (Vector){0} + HUGE_VAL, highest = {0};
    for (Size m = 0; m < n; m += WIDE) {
        const Vector v = AT(value + m);
        lowest = NAME(choose)((v >= 0.0) & (v < lowest), v, lowest);
        highest = LARGER(v, highest);
    }
    double least = lowest[0], most = highest[0], limit;
    for (int r = 1; r < WIDE; r++) {
        least = lowest[r] < least ? lowest[r] : least;
        most = highest[r] > most ? highest[r] : most;
    }
    memcpy(&low, &least, 8);
    memcpy(&high, &most, 8);
    Size from_low = rest, from_high = 0; /* how many values there are from low and from high on */
    high++;
    for (int step = 0; high - low > 1; step++) { /* interpolate and halve by turns */
        const double part = step & 1 ? 0.5 : ((double)(from_low - size) + 0.5) / (double)(from_low - from_high);
        middle = low + (int64_t)((double)(high - low) * part);
        middle = middle <= low ? low + 1 : middle >= high ? high - 1 : middle;
        memcpy(&limit, &middle, 8);
        const Size found = NAME(count)(value, n, limit);
        if (size <= found && found <= size + FEW / 4 + size / 4) return limit;
        if (found > size) {
            low = middle;
            from_low = found;
        } else {
            high = middle;
            from_high = found;
        }
    }
    memcpy(&limit, &low, 8);
    return limit;
}

/* Write the best `size` of n free features to `taken`, the best first. */
TARGET static void NAME(take_best)(const Row *row, Size n, Size size, Size *taken)
{
    const double *odds = row->odds, limit = n <= FEW || size == n ? 0.0 : NAME(limit)(odds, row->W, n, size);
    Size found = 0; /* at least `size` */
    for (Size i = 0; i < row->d; i++) {
        row->best[found] = odds[i];
        row->place[found] = i;
        found += odds[i] >= limit;
    }
    const Size *order = NAME(sort)(row->best, found, row->order, row->spare);
    for (Size t = 0; t < size; t++) taken[t] = row->place[order[t]];
}

/* Write the best feature, the first on a tie, to `taken`. */
TARGET static void NAME(take_one)(const Row *row, Size *taken)
{
    Vector most = AT(row->odds);
    for (Size i = WIDE; i < row->W; i += WIDE) most = LARGER(AT(row->odds + i), most);
    double best = most[0];
    for (int r = 1; r < WIDE; r++) best = most[r] > best ? most[r] : best;
    for (*taken = 0; row->odds[*taken] != best; ++*taken) continue;
}

/* Find the order of the features of a row and the ratio after each of them; return whether all sums are above LEAST. */
TARGET static int NAME(order)(const Parts *parts, Row *row)
{
    const Size d = row->d;
    Size built = 0; /* the number of features in the log weights */
    double own, others;
    memcpy(row->left, parts->log_weight, (size_t)row->P * sizeof(double));
    for (Size i = 0; i < d; i++) row->is_free[i] = -1;
    NAME(rebuild)(row, 0, 0);
    if (!NAME(add_up)(row, &own, &others)) return 0;
    row->ratio[0] = others / own;
    for (Size done = 0, size; done < d; done += size) {
        size = done < SINGLE ? 1 : (done + 1) / 2;
        size = size < d - done ? size : d - done;
        if (!NAME(score)(row)) return 0;
        if (size == 1) NAME(take_one)(row, row->taken + done);
        else NAME(take_best)(row, d - done, size, row->taken + done);
        for (Size t = done; t < done + size; t++) {
            row->is_free[row->taken[t]] = 0;
            int enough = NAME(take)(row, row->taken[t], &own, &others);
            if (own + others < LOW) {
                NAME(rebuild)(row, built, t + 1);
                built = t + 1;
                enough = NAME(add_up)(row, &own, &others);
            }
            if (!enough) return 0;
            row->ratio[t + 1] = others / own;
        }
    }
    return 1;
}

TARGET static void NAME(gains_of_row)(const Parts *parts, const double *from, double *gain, Row *row)
{
    double *ratio = row->ratio;
    int found = NAME(load)(parts, from, row);
    if (found) {
        NAME(exponentiate)(row);
        found = NAME(order)(parts, row);
    }
    gain[0] = NAN;
    if (!found) return;
    for (Size t = 0; t < row->D; t++) ratio[t] = log_one_plus(ratio[t]);
    for (Size t = 0; t < row->d; t++) gain[row->taken[t]] = ratio[t] - ratio[t + 1];
}

#undef Vector
#undef Lanes
#undef AT
#undef LARGER
#undef SMALLER
#undef IF_LESS
#undef ANY
#undef LANES_AT
#undef AT_ONCE
