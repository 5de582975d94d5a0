/* Counts its calls, and on demand replies to each from inside, as a program of the papers does. */
#include <farjump_ifunc.h>

#include "measured.h"

FARJUMP_COPY_ARGS(bounce)

FARJUMP_IFUNC void bounce_main(void *payload, size_t payload_size, void *target_args)
{
    struct measured *measured = target_args;
    (void)payload, (void)payload_size;
    measured->calls++;
    if (measured->answers)
        ucp_ifunc_send_nbix(measured->ep, measured->answer, measured->remote, measured->rkey);
}
