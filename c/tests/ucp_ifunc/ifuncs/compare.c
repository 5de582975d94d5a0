/* Compares its payload with the pattern of the frame that is due. */
#include "compared.h"

#ifdef IFUNC_API_THREE_CHAINS
size_t compare_payload_bound(void *source_args, size_t source_args_size)
{
    (void)source_args, (void)source_args_size;
    return MOST_WORDS * sizeof(uint64_t);
}

int compare_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size)
#else
size_t compare_payload_get_max_size(void *source_args, size_t source_args_size)
{
    (void)source_args_size;
    return ((struct wanted *)source_args)->words * sizeof(uint64_t);
}

int compare_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size)
#endif
{
    struct wanted *wanted = source_args;
    uint64_t *words = payload;
    (void)source_args_size, (void)payload_size;
    for (uint64_t word = 0; word < wanted->words; word++)
        words[word] = pattern(wanted->number, word);
#ifdef IFUNC_API_THREE_CHAINS
    *payload_size = wanted->words * sizeof(uint64_t);
#endif
    return 0;
}

void compare_main(void *payload, size_t payload_size, void *target_args)
{
    struct compared *compared = target_args;
    const uint64_t *words = payload;
    if (payload_size == 0 || payload_size % sizeof *words != 0)
        compared->wrong++;
    /* From the end: the last bytes of a torn frame come late. */
    for (size_t word = payload_size / sizeof *words; word-- > 0;)
        if (words[word] != pattern(compared->frames, word))
            compared->wrong++;
    compared->frames++;
    compared->bytes += payload_size;
}
