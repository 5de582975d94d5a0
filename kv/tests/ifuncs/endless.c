/* endless - sends itself on to this server, for ever. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(endless)

FARJUMP_IFUNC void endless_main(void *payload, size_t payload_size, void *target_args)
{
    (void)target_args;
    farjump_again(payload, payload_size);
}
