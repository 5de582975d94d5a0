/* Makes an object with the bytes of another one in reverse order. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(reversed_at)

FARJUMP_IFUNC void reversed_at_main(void *payload, size_t payload_size, void *target_args)
{
    struct farjump_at at;
    void *made;
    (void)target_args;
    if (farjump_open_at(payload, payload_size, &at) != 0)
        farjump_panic("no object", 9);
    if (farjump_new_object(at.size, &made) != 0)
        farjump_panic("no memory", 9);
    for (size_t i = 0; i < at.size; i++)
        ((uint8_t *)made)[i] = ((const uint8_t *)at.data)[at.size - 1 - i];
}
