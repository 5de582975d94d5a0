/* Reads the target's part of a simulation: the number of cells warmer than the argument, and the warmest. */
#include <farjump_ifunc.h>

enum { CELLS = 1024 };

struct slab {
    uint64_t step; /* of the simulation */
    double cells[CELLS];
};

struct answer {
    uint64_t step;
    uint64_t warmer;
    double hottest;
};

FARJUMP_COPY_ARGS(hottest)

FARJUMP_IFUNC void hottest_main(void *payload, size_t payload_size, void *target_args)
{
    const struct slab *slab = target_args;
    struct answer answer = {slab->step, 0, slab->cells[0]};
    double limit;
    if (payload_size != sizeof limit) {
        static const char wrong[] = "the limit is one double";
        farjump_panic(wrong, sizeof wrong - 1);
    }
    __builtin_memcpy(&limit, payload, sizeof limit);
    for (size_t i = 0; i < CELLS; i++) {
        answer.warmer += slab->cells[i] > limit;
        if (slab->cells[i] > answer.hottest)
            answer.hottest = slab->cells[i];
    }
    farjump_reply(&answer, sizeof answer);
}
