/* Includes TEMPLATE once per instruction set of this platform.

SET is the name of the instruction set, and TARGET the attribute of its functions. A register holds WIDE numbers. DEEP
registers of rows are processed at a time, as many as fit with four sums each. */

#ifdef __x86_64__
#define SET avx2
#define TARGET __attribute__((target("avx2,fma")))
#define WIDE 4
#define DEEP 2
#include TEMPLATE
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
#include TEMPLATE
#else
#define SET neon /* every aarch64 processor has it */
#define TARGET
#define WIDE 2
#define DEEP 4
#include TEMPLATE
#endif
