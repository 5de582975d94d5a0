/* Counts its calls, and adds up its payloads' numbers. It prints multiples of 1000. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef IFUNC_API_THREE_CHAINS
size_t tally_payload_bound(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return source_args_size + 100; /* more than it needs */
}

int tally_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size)
{
    memcpy(payload, source_args, source_args_size);
    *payload_size = source_args_size;
    return 0;
}
#else
size_t tally_payload_get_max_size(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return source_args_size;
}

int tally_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size)
{
    (void)source_args_size;
    memcpy(payload, source_args, payload_size);
    return 0;
}
#endif

void tally_main(void *payload, size_t payload_size, void *target_args)
{
    uint64_t *counted = target_args, number;
    if (payload_size != sizeof number)
        return;
    memcpy(&number, payload, sizeof number);
    if (number % 1000 == 0)
        printf("number %llu\n", (unsigned long long)number);
    counted[0]++;
    counted[1] += number;
}
