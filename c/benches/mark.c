/* Counts its calls: the function of the library's measurement, and of replies. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(mark)

FARJUMP_IFUNC void mark_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload, (void)payload_size;
    ++*(uint64_t *)target_args;
}
