/* Sums up rows of the target. The payload is their keys. */
#include <farjump_ifunc.h>

uint64_t store_get(void *store, uint64_t key);
extern const uint64_t store_limit;

FARJUMP_COPY_ARGS(sum)

FARJUMP_IFUNC void sum_main(void *payload, size_t payload_size, void *target_args)
{
    const uint64_t *keys = payload;
    uint64_t total = 0;
    for (size_t i = 0; i < payload_size / sizeof *keys; i++)
        if (keys[i] < store_limit)
            total += store_get(target_args, keys[i]);
    farjump_reply(&total, sizeof total);
}
