/* The payload starts with a uint64_t: the expected number of earlier calls. Replies two: the true number, and
 * the number of calls for which the two differed. An empty payload only queries. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(sequence)

static struct { uint64_t calls, wrong; } seen;

FARJUMP_IFUNC void sequence_main(void *payload, size_t payload_size, void *target_args)
{
    (void)target_args;
    if (payload_size >= sizeof(uint64_t)) {
        seen.wrong += *(uint64_t *)payload != seen.calls;
        seen.calls++;
    }
    farjump_reply(&seen, sizeof seen);
}
