/* More than 64 KiB of code and constants, all of which count. */
#include <stddef.h>
#include <stdint.h>

#ifdef IFUNC_API_THREE_CHAINS
size_t bulky_payload_bound(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return source_args_size;
}

int bulky_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size)
{
    (void)source_args, (void)source_args_size, (void)payload, (void)payload_size;
    return 0;
}
#else
size_t bulky_payload_get_max_size(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return source_args_size;
}

int bulky_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size)
{
    (void)payload, (void)payload_size, (void)source_args, (void)source_args_size;
    return 0;
}
#endif

static const unsigned char ones[100000] = { [0 ... 99999] = 1 };

void bulky_main(void *payload, size_t payload_size, void *target_args)
{
    uint64_t *sum = target_args;
    (void)payload, (void)payload_size;
    for (size_t at = 0; at < sizeof ones; at++)
        *sum += ((const volatile unsigned char *)ones)[at];
}
