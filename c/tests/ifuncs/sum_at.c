/* Sums up the bytes of an object, times the argument. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(sum_at)

FARJUMP_IFUNC void sum_at_main(void *payload, size_t payload_size, void *target_args)
{
    struct farjump_at at;
    uint64_t total = 0;
    (void)target_args;
    if (farjump_open_at(payload, payload_size, &at) != 0 || at.args_size != sizeof total)
        farjump_panic("no object", 9);
    for (size_t i = 0; i < at.size; i++)
        total += ((const uint8_t *)at.data)[i];
    total *= *(const uint64_t *)at.args;
    farjump_reply(&total, sizeof total);
}
