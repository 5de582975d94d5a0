/* Like entry.c, in an image of 900 KiB that takes long to travel. */
#include "entry.h"

FARJUMP_COPY_ARGS(entry)

static const uint8_t ballast[900 * 1024] = {1, 2, 3};

FARJUMP_IFUNC void entry_main(void *payload, size_t payload_size, void *target_args)
{
    if (((const volatile uint8_t *)ballast)[payload_size % sizeof ballast] <= 3)
        write_down(target_args, payload, payload_size / sizeof(uint64_t));
}
