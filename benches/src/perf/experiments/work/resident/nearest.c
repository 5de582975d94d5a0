/* nearest - finds the vector that is nearest to the payload among the target's, of 16 numbers each. The reply
 * is its number and the square of its distance. */
#include <farjump_ifunc.h>

#define LENGTH 16

FARJUMP_COPY_ARGS(nearest)

FARJUMP_IFUNC void nearest_main(void *payload, size_t payload_size, void *target_args)
{
    const struct farjump_data *data = target_args;
    const int32_t *vector = (const void *)data->bytes, *wanted = payload;
    size_t count = data->len / (LENGTH * sizeof *vector);
    uint64_t nearest[2] = {0, UINT64_MAX};

    (void)payload_size;
    for (size_t i = 0; i < count; i++, vector += LENGTH) {
        uint32_t distance = 0;
        for (int j = 0; j < LENGTH; j++)
            distance += (uint32_t)((vector[j] - wanted[j]) * (vector[j] - wanted[j]));
        if (distance < nearest[1]) {
            nearest[0] = i;
            nearest[1] = distance;
        }
    }
    farjump_reply(nearest, sizeof nearest);
}
