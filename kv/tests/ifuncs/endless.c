/* endless - runs itself again on this server, without end. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(endless)

FARJUMP_IFUNC void endless_main(void *payload, size_t payload_size, void *target_args)
{
    (void)target_args;
    farjump_again(payload, payload_size);
}
