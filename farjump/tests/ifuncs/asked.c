/* Its payload starts with the number of times that it was asked for the length of one, as a uint64_t, which it
 * replies. The rest is whatever was there. */
#include <farjump_ifunc.h>

static uint64_t asked;

FARJUMP_IFUNC size_t asked_payload_get_max_size(void *source_args, size_t source_args_size)
{
    (void)source_args;
    asked++;
    return source_args_size;
}

FARJUMP_IFUNC int asked_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size)
{
    (void)payload_size;
    (void)source_args;
    (void)source_args_size;
    *(uint64_t *)payload = asked;
    return 0;
}

FARJUMP_IFUNC void asked_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload_size;
    (void)target_args;
    farjump_reply(payload, sizeof(uint64_t));
}
