#include <farjump_ifunc.h>

struct store;
uint64_t store_get(struct store *store, uint64_t key); /* the target has it */

FARJUMP_COPY_ARGS(sum) /* the arguments travel as they are */

FARJUMP_IFUNC void sum_main(void *payload, size_t payload_size, void *target_args)
{
    const uint64_t *keys = payload;
    uint64_t total = 0;
    for (size_t i = 0; i < payload_size / sizeof *keys; i++)
        total += store_get(target_args, keys[i]);
    farjump_reply(&total, sizeof total);
}
