/* echo - replies with the unchanged payload. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(echo)

FARJUMP_IFUNC void echo_main(void *payload, size_t payload_size, void *target_args)
{
    (void)target_args;
    farjump_reply(payload, payload_size);
}
