/* Counts its calls at target_args, and replies its payload. Only the honest link calls it. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(honest)

FARJUMP_IFUNC void honest_main(void *payload, size_t payload_size, void *target_args)
{
    ++*(uint64_t *)target_args;
    farjump_reply(payload, payload_size);
}
