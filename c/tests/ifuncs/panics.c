/* Panics with its payload as the message. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(panics)

FARJUMP_IFUNC void panics_main(void *payload, size_t payload_size, void *target_args)
{
    (void)target_args;
    farjump_panic(payload, payload_size);
}
