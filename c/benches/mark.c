/* Counts its calls: what the library is measured with, and what an answer does. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(mark)

FARJUMP_IFUNC void mark_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload, (void)payload_size;
    ++*(uint64_t *)target_args;
}
