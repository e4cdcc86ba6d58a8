/* Answers calls of `run` and `gains` until its input ends. So the loops can run in an emulator, or with sanitizers.

A request begins with 1 for `gains`, which gains_driver.c answers, or with 0. For `run`, it is followed by gaps and by an arena. The arena holds all that the call reads and writes; pointers are offsets
into it. Gaps are pairs of offset and length between these pieces of memory. The answer is what `run` returns, and the
arena. */

#include "kmeans.c"

#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    Size width, gaps, bytes;
    Model model;
    Block block;
} Request;

static void *get(size_t bytes)
{
    void *found = malloc(bytes);
    if (!found || fread(found, bytes, 1, stdin) != 1) exit(2);
    return found;
}

static void move(const void *pointer, const char *arena)
{
    uintptr_t *at = (uintptr_t *)pointer;
    *at = *at ? *at + (uintptr_t)arena : 0; /* nothing begins at 0 */
}

static double answer(Request *request, char *arena)
{
    Model *model = &request->model;
    Block *block = &request->block;
    const void *all[] = {&model->offset, &model->bias, &model->slopes, &model->both, &model->middle, &model->single_bias,
                         &model->single_slopes, &model->single_both, &model->reach, &block->columns,
                         &block->cluster, &block->competitor, &block->evidence, &block->prior, &block->out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) move(all[i], arena);
    for (Size j = 0; j < model->d; j++) ((uintptr_t *)block->columns)[j] += (uintptr_t)arena;
    double *space = malloc((size_t)room(model) * sizeof(double));
    if (!space) exit(2);
    double result = run((int)request->width, model, block, space);
    free(space);
    return result;
}

void answer_gains(void);

int main(void)
{
    Request request;
    Size is_gains;
    while (fread(&is_gains, sizeof is_gains, 1, stdin)) {
        if (is_gains) {
            answer_gains();
            continue;
        }
        if (!fread(&request, sizeof request, 1, stdin)) return 2;
        Size *gaps = get((size_t)request.gaps * 2 * sizeof(Size));
        char *arena = get((size_t)request.bytes);
        for (Size i = 0; i < request.gaps; i++) ASAN_POISON_MEMORY_REGION(arena + gaps[2 * i], (size_t)gaps[2 * i + 1]);
        double result = answer(&request, arena);
        ASAN_UNPOISON_MEMORY_REGION(arena, (size_t)request.bytes);
        if (fwrite(&result, sizeof result, 1, stdout) != 1) return 2;
        if (fwrite(arena, (size_t)request.bytes, 1, stdout) != 1 || fflush(stdout)) return 2;
        free(arena);
        free(gaps);
    }
    return 0;
}
