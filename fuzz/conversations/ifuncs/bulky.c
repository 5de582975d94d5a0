/* Has statics that take much of the arena. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(bulky)

static uint8_t held[200 * 1024];

FARJUMP_IFUNC void bulky_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload;
    (void)target_args;
    ((volatile uint8_t *)held)[payload_size % sizeof held] = 1;
}
