/* counter - adds one to the 64-bit word at target_args: the function of the papers' measurements. The
 * payload, any bytes, travels and is not read. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(counter)

FARJUMP_IFUNC void counter_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload;
    (void)payload_size;
    ++*(uint64_t *)target_args;
}
