/* Counts its calls in a static, and replies how many there were. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(tally)

static uint64_t calls;

FARJUMP_IFUNC void tally_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload;
    (void)payload_size;
    (void)target_args;
    calls++;
    farjump_reply(&calls, sizeof calls);
}
