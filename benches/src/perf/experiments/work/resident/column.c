/* column - adds up the target's column of 64-bit numbers. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(column)

FARJUMP_IFUNC void column_main(void *payload, size_t payload_size, void *target_args)
{
    const struct farjump_data *data = target_args;
    const uint64_t *column = (const void *)data->bytes;
    size_t count = data->len / sizeof *column;
    uint64_t total = 0;

    (void)payload;
    (void)payload_size;
    for (size_t i = 0; i < count; i++)
        total += column[i];
    farjump_reply(&total, sizeof total);
}
