/* empty - replies nothing: what a call costs by itself. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(empty)

FARJUMP_IFUNC void empty_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload;
    (void)payload_size;
    (void)target_args;
}
