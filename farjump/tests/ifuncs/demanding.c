/* Its payload routines follow their commands, right or wrong. Replies the payload's size as a uint64_t. */
#include <farjump_ifunc.h>
#include "wish.h"

FARJUMP_IFUNC size_t demanding_payload_get_max_size(void *source_args, size_t source_args_size)
{
    (void)source_args_size;
    return ((struct wish *)source_args)->max;
}

FARJUMP_IFUNC int demanding_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size)
{
    struct wish *wish = source_args;

    (void)payload_size;
    (void)source_args_size;
    for (uint64_t at = 0; at < wish->written; at++)
        ((volatile uint8_t *)payload)[at] = 0xab;
    return (int)wish->result;
}

FARJUMP_IFUNC void demanding_main(void *payload, size_t payload_size, void *target_args)
{
    uint64_t size = payload_size;

    (void)target_args;
    for (uint64_t at = 0; at < size; at++)
        if (((uint8_t *)payload)[at] != 0xab)
            farjump_panic("the payload came over damaged", 29);
    farjump_reply(&size, sizeof size);
}
