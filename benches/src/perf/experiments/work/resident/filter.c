/* filter - counts the numbers of the target's column from the payload's first number to below its second. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(filter)

FARJUMP_IFUNC void filter_main(void *payload, size_t payload_size, void *target_args)
{
    const struct farjump_data *data = target_args;
    const uint64_t *column = (const void *)data->bytes, *bounds = payload;
    uint64_t low = bounds[0], high = bounds[1], found = 0;
    size_t count = data->len / sizeof *column;

    (void)payload_size;
    for (size_t i = 0; i < count; i++)
        found += column[i] >= low && column[i] < high;
    farjump_reply(&found, sizeof found);
}
