/* The k-means path of `explain` for one block of rows, fused: see benchmarks/compiled.py.

Rows are C-ordered. K is padded to a multiple of WIDE clusters in `slopes_by_feature` (d, K_wide) and `bias`
(K_wide,), with zeros. */

#include <stdint.h>
#include <string.h>

#define ROWS 4 /* that share what is loaded of the centroids */
/* Numbers side by side in one register. */
#if defined __AVX512F__
#define WIDE 8
#elif defined __AVX__
#define WIDE 4
#else
#define WIDE 2
#endif
#define FAR 1e300 /* at the own cluster, so that it never competes */
#define TINY 1e-300 /* below, 1 / h may overflow */

typedef int64_t Code;
typedef double Vector __attribute__((vector_size(8 * WIDE), aligned(8)));

/* exp(-t) for t >= 0, to about 1e-15; without a branch, so that loops over it are vectorised. */
static inline double exp_minus(double t)
{
    t = t < 700.0 ? t : 700.0; /* 1e-304: nothing beside the 1 of the strongest competitor */
    const double shift = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to a whole number */
    double n = -t * 1.4426950408889634 + shift;
    int64_t bits;
    memcpy(&bits, &n, 8);
    n -= shift;
    double r = (-t - n * 0x1.62e42fefa3800p-1) - n * 0x1.ef35793c76730p-45;
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
    int64_t power = (bits + 1023) << 52; /* the lowest bits of n, as a whole number, are the exponent */
    double scale;
    memcpy(&scale, &power, 8);
    return p * scale;
}

/* The first place of a value that is there; sixteen at a time, which is vectorised. */
static inline Code place(const double *s, Code K, double value)
{
    Code k = 0;
    for (; k + 16 <= K; k += 16) {
        int found = 0;
        for (int w = 0; w < 16; w++) found |= s[k + w] == value;
        if (found) break;
    }
    while (k < K - 1 && s[k] != value) k++;
    return k;
}

/* How one row of energies stands; it becomes h. Returns the sum of the energies, to find what is not finite. */
static inline double settle_row(double *s, Code K, Code *cluster, Code *competitor, double *evidence)
{
    double least = s[0], second = FAR, sum = 0.0;
#pragma omp simd reduction(+ : sum) reduction(min : least)
    for (Code k = 0; k < K; k++) {
        sum += s[k];
        least = s[k] < least ? s[k] : least;
    }
    *cluster = place(s, K, least);
    s[*cluster] = FAR;
#pragma omp simd reduction(min : second)
    for (Code k = 0; k < K; k++) {
        s[k] -= least;
        second = s[k] < second ? s[k] : second;
    }
    *competitor = place(s, K, second);
    *evidence = second;
    return sum;
}

/* a_k = p_k f / h_k of one row, in place of h; a_c = -sum. */
static inline void weigh_row(double *h, Code K, Code own, double f, double beta)
{
    double total = 0.0, sum = 0.0;
    if (f < TINY) { /* a tie, nearly: f / h is 1 in the limit */
        for (Code k = 0; k < K; k++) {
            double p = exp_minus(beta * (h[k] - f));
            total += k == own ? 0.0 : p;
            h[k] = k == own ? 0.0 : p * (h[k] == 0.0 ? 1.0 : f / h[k]);
        }
    } else {
#pragma omp simd reduction(+ : total)
        for (Code k = 0; k < K; k++) {
            double p = exp_minus(beta * (h[k] - f));
            total += p;
            h[k] = p / h[k] * f;
        }
    }
#pragma omp simd reduction(+ : sum)
    for (Code k = 0; k < K; k++) sum += h[k];
    h[own] = -sum;
    double part = 1.0 / total;
    for (Code k = 0; k < K; k++) h[k] *= part;
}

/* Energies that lack their bias, (n, K), to h. */
double settle(double *h, Code n, Code K, const double *bias, Code *cluster, Code *competitor, double *evidence)
{
    double sum = 0.0;
    for (Code i = 0; i < n; i++) {
        double *s = h + i * K;
        for (Code k = 0; k < K; k++) s[k] += bias[k];
        sum += settle_row(s, K, cluster + i, competitor + i, evidence + i);
    }
    return sum;
}

/* h, (n, K), to weights. */
void weigh(const double *h, Code n, Code K, double beta, const Code *cluster, const double *evidence,
           double *weights)
{
    for (Code i = 0; i < n; i++) {
        memcpy(weights + i * K, h + i * K, 8 * K);
        weigh_row(weights + i * K, K, cluster[i], evidence[i], beta);
    }
}

/* From rows to h, which has rows of stride h_step, and how they stand. */
double forward(const double *x, Code n, Code d, Code K, Code K_wide,
               const double *slopes_by_feature,
               const double *bias, double *h, Code h_step, Code *cluster, Code *competitor, double *evidence)
{
    double sum = 0.0;
    for (Code i = 0; i < n; i += ROWS) {
        Code rows = n - i < ROWS ? n - i : ROWS;
        const double *row[ROWS];
        for (int r = 0; r < ROWS; r++) row[r] = x + (i + (r < rows ? r : 0)) * d;
        for (Code k0 = 0; k0 < K; k0 += WIDE) {
            Vector s0 = *(const Vector *)(bias + k0), s1 = s0, s2 = s0, s3 = s0;
            for (Code j = 0; j < d; j++) {
                Vector slope = *(const Vector *)(slopes_by_feature + j * K_wide + k0);
                s0 += row[0][j] * slope;
                s1 += row[1][j] * slope;
                s2 += row[2][j] * slope;
                s3 += row[3][j] * slope;
            }
            Code some = 8 * (K - k0 < WIDE ? K - k0 : WIDE);
            const Vector s[ROWS] = {s0, s1, s2, s3};
            for (Code r = 0; r < rows; r++) memcpy(h + (i + r) * h_step + k0, &s[r], some);
        }
        for (Code r = 0; r < rows; r++)
            sum += settle_row(h + (i + r) * h_step, K, cluster + i + r, competitor + i + r, evidence + i + r);
    }
    return sum;
}

/* From h to relevance, (n, d); h may lie where the relevance goes, row by row. */
void backward(const double *x, Code n, Code d, Code K, const double *slopes, const double *squares,
              const double *h, Code h_step, double beta, const Code *cluster, const double *evidence,
              double *out, double *weights)
{
    for (Code i = 0; i < n; i += ROWS) {
        Code rows = n - i < ROWS ? n - i : ROWS;
        for (Code r = 0; r < ROWS; r++) {
            if (r < rows) {
                memcpy(weights + r * K, h + (i + r) * h_step, 8 * K);
                weigh_row(weights + r * K, K, cluster[i + r], evidence[i + r], beta);
            } else {
                memset(weights + r * K, 0, 8 * K);
            }
        }
        Code j = 0;
        for (; j + WIDE <= d; j += WIDE) {
            Vector m0 = {0}, m1 = {0}, m2 = {0}, m3 = {0}, q0 = {0}, q1 = {0}, q2 = {0}, q3 = {0};
            for (Code k = 0; k < K; k++) {
                Vector m = *(const Vector *)(slopes + k * d + j), q = *(const Vector *)(squares + k * d + j);
                const double *a = weights + k;
                m0 += a[0] * m;
                q0 += a[0] * q;
                m1 += a[K] * m;
                q1 += a[K] * q;
                m2 += a[2 * K] * m;
                q2 += a[2 * K] * q;
                m3 += a[3 * K] * m;
                q3 += a[3 * K] * q;
            }
            const Vector m[ROWS] = {m0, m1, m2, m3}, q[ROWS] = {q0, q1, q2, q3};
            for (Code r = 0; r < rows; r++)
                *(Vector *)(out + (i + r) * d + j) = q[r] + m[r] * *(const Vector *)(x + (i + r) * d + j);
        }
        for (; j < d; j++) {
            for (Code r = 0; r < rows; r++) {
                double slope = 0.0, square = 0.0;
                for (Code k = 0; k < K; k++) {
                    slope += weights[r * K + k] * slopes[k * d + j];
                    square += weights[r * K + k] * squares[k * d + j];
                }
                out[(i + r) * d + j] = square + slope * x[(i + r) * d + j];
            }
        }
    }
}
