/* Registers of one instruction set; the files that each_set.h includes begin with this one and undefine its macros. */

typedef double NAME(Vector) __attribute__((vector_size(8 * WIDE), aligned(8), may_alias));
typedef int64_t NAME(Lanes) __attribute__((vector_size(8 * WIDE), aligned(8), may_alias));
#define Vector NAME(Vector)
#define Lanes NAME(Lanes)
#define AT(pointer) (*(Vector *)(pointer))

/* The larger or the smaller numbers of two registers, and `yes` where a < b, else `no`. From portable code, gcc makes
   several instructions for each. */
#if WIDE == 8
#define LARGER(a, b) ((Vector)_mm512_max_pd((__m512d)(a), (__m512d)(b)))
#define SMALLER(a, b) ((Vector)_mm512_min_pd((__m512d)(a), (__m512d)(b)))
#define IF_LESS(a, b, yes, no) \
    ((Vector)_mm512_mask_blend_pd(_mm512_cmp_pd_mask((__m512d)(a), (__m512d)(b), _CMP_LT_OQ), (__m512d)(no), (__m512d)(yes)))
#elif WIDE == 4
#define LARGER(a, b) ((Vector)_mm256_max_pd((__m256d)(a), (__m256d)(b)))
#define SMALLER(a, b) ((Vector)_mm256_min_pd((__m256d)(a), (__m256d)(b)))
#define IF_LESS(a, b, yes, no) \
    ((Vector)_mm256_blendv_pd((__m256d)(no), (__m256d)(yes), _mm256_cmp_pd((__m256d)(a), (__m256d)(b), _CMP_LT_OQ)))
#else
#define LARGER(a, b) ((Vector)vmaxq_f64((float64x2_t)(a), (float64x2_t)(b)))
#define SMALLER(a, b) ((Vector)vminq_f64((float64x2_t)(a), (float64x2_t)(b)))
#define IF_LESS(a, b, yes, no) \
    ((Vector)vbslq_f64(vcltq_f64((float64x2_t)(a), (float64x2_t)(b)), (float64x2_t)(yes), (float64x2_t)(no)))
#endif

/* Whether any lane of the result of a comparison is set. */
#if WIDE == 8
#define ANY(lanes) (_mm512_test_epi64_mask((__m512i)(lanes), (__m512i)(lanes)) != 0)
#elif WIDE == 4
#define ANY(lanes) (!_mm256_testz_si256((__m256i)(lanes), (__m256i)(lanes)))
#else
#define ANY(lanes) (((lanes)[0] | (lanes)[1]) != 0)
#endif

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
