/* Does its work by calling a library. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

uint64_t besides_digest(const void *bytes, size_t length);

#ifdef IFUNC_API_THREE_CHAINS
size_t errand_payload_bound(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return source_args_size;
}

int errand_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size)
{
    memcpy(payload, source_args, source_args_size);
    *payload_size = source_args_size;
    return 0;
}
#else
size_t errand_payload_get_max_size(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return source_args_size;
}

int errand_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size)
{
    (void)source_args_size;
    memcpy(payload, source_args, payload_size);
    return 0;
}
#endif

void errand_main(void *payload, size_t payload_size, void *target_args)
{
    *(uint64_t *)target_args = besides_digest(payload, payload_size);
}
