/* Makes its thread round upward, and panics if its payload is a 1. */
#include <farjump_ifunc.h>

#include "../../../../farjump/tests/ifuncs/rounding.h"

FARJUMP_COPY_ARGS(tilt)

FARJUMP_IFUNC void tilt_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload_size, (void)target_args;
    round_up();
    if (*(uint64_t *)payload == 1)
        farjump_panic("bad input", 9);
}
