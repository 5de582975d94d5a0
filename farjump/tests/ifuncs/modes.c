/* Leaves another rounding mode behind: by a return (u), by a panic (p), by a return after a request to run again (a).
   Replies a third of 1, as its target rounds it. */
#include <farjump_ifunc.h>
#include "rounding.h"

FARJUMP_COPY_ARGS(modes)

FARJUMP_IFUNC void modes_main(void *payload, size_t payload_size, void *target_args)
{
    const char *how = payload;
    volatile double one = 1, three = 3;
    double third = one / three;

    (void)target_args;
    farjump_reply(&third, sizeof third);
    if (payload_size == 0)
        return;
    if (*how == 'a')
        farjump_again("u", 1);
    round_up();
    if (*how == 'p')
        farjump_panic("bad input", 9);
}
