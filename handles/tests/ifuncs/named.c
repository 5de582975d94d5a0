/* Replies the sum of the bytes of the object whose handle the arguments are, or the number of the store's refusal. */
#include <farjump_ifunc.h>
#include <stdint.h>

FARJUMP_COPY_ARGS(named)

FARJUMP_IFUNC void named_main(void *payload, size_t payload_size, void *target_args)
{
    struct farjump_at at;
    const void *data;
    size_t size;
    int64_t total;
    (void)target_args;
    if (farjump_open_at(payload, payload_size, &at) != 0)
        farjump_panic("no object", 9);
    total = farjump_object(at.args, at.args_size, &data, &size);
    if (total == 0)
        for (size_t i = 0; i < size; i++)
            total += ((const uint8_t *)data)[i];
    farjump_reply(&total, sizeof total);
}
