/* sum - adds up the payload, an array of 32-bit floats, in double precision. The order of the additions is
 * not that of the array. target_args is not used. The reply is a double. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(sum)

FARJUMP_IFUNC void sum_main(void *payload, size_t payload_size, void *target_args)
{
    static const char ragged[] = "the payload is no array of 32-bit floats: its length is no multiple of 4 bytes";
    const float *values = payload;
    size_t count = payload_size / sizeof *values, i = 0;
    /* Four sums: in one, each addition would wait for the one before it. */
    double sums[4] = { 0, 0, 0, 0 }, total;

    (void)target_args;
    if (payload_size % sizeof *values != 0)
        farjump_panic(ragged, sizeof ragged - 1);
    for (; count - i >= 4; i += 4) {
        sums[0] += values[i];
        sums[1] += values[i + 1];
        sums[2] += values[i + 2];
        sums[3] += values[i + 3];
    }
    for (; i < count; i++)
        sums[0] += values[i];
    total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    farjump_reply(&total, sizeof total);
}
