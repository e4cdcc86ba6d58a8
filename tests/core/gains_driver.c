/* Answers calls of `gains` for driver.c. A request is the sizes, then all arrays; each is in memory of its own, so that
sanitizers see what is read beside it. The answer is the gains. */

#include "sequential.c"

#include <stdio.h>
#include <stdlib.h>

typedef struct {
    Size width, P, d, K, n, has_centers;
    double beta;
} Request;

static void *get(Size numbers)
{
    void *found = malloc((size_t)numbers * 8);
    if (!found || fread(found, (size_t)numbers * 8, 1, stdin) != 1) exit(2);
    return found;
}

void answer_gains(void)
{
    Request r;
    if (!fread(&r, sizeof r, 1, stdin)) exit(2);
    const Size D = padded(r.d + 1);
    double *log_weight = get(r.P), *centers = NULL, *scale = NULL;
    Size *begins = get(r.K + 1);
    if (r.has_centers) {
        centers = get(r.P * D);
        scale = get(D);
    }
    Size *cluster = get(r.n);
    double *from = get(r.n * r.d * (r.has_centers ? 1 : r.P));
    Parts parts = {r.P, r.d, r.K, log_weight, begins, r.beta, centers, scale};
    double *space = malloc((size_t)gains_room(&parts) * 8), *gain = malloc((size_t)(r.n * r.d) * 8);
    if (!space || !gain) exit(2);
    gains((int)r.width, &parts, r.n, cluster, from, gain, space);
    if (fwrite(gain, (size_t)(r.n * r.d) * 8, 1, stdout) != 1 || fflush(stdout)) exit(2);
    void *all[] = {log_weight, begins, centers, scale, cluster, from, space, gain};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}
