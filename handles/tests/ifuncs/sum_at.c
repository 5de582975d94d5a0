/* Replies the sum of the object's bytes, times the first byte of the arguments. */
#include <farjump_ifunc.h>
#include <stdint.h>

FARJUMP_COPY_ARGS(sum_at)

FARJUMP_IFUNC void sum_at_main(void *payload, size_t payload_size, void *target_args)
{
    struct farjump_at at;
    (void)target_args;
    int failed = farjump_open_at(payload, payload_size, &at);
    if (failed) {
        char text[] = "no object: -0";
        text[sizeof text - 2] = (char)('0' - failed);
        farjump_panic(text, sizeof text - 1);
    }
    uint64_t sum = 0;
    for (size_t index = 0; index < at.size; index++)
        sum += ((const uint8_t *)at.data)[index];
    sum *= at.args_size ? *(uint8_t *)at.args : 1;
    farjump_reply(&sum, sizeof sum);
}
