/* Its payload starts with a uint64_t, the number of requests for the length of a payload. It replies that. The rest of
 * the payload is not initialised. */
#include <farjump_ifunc.h>

static uint64_t queries;

FARJUMP_IFUNC size_t queries_payload_get_max_size(void *source_args, size_t source_args_size)
{
    (void)source_args;
    queries++;
    return source_args_size;
}

FARJUMP_IFUNC int queries_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size)
{
    (void)payload_size;
    (void)source_args;
    (void)source_args_size;
    *(uint64_t *)payload = queries;
    return 0;
}

FARJUMP_IFUNC void queries_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload_size;
    (void)target_args;
    farjump_reply(payload, sizeof(uint64_t));
}
