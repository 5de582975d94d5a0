/* witness - panics unless it is called with consecutive numbers from 0, each with exactly its bytes. The
 * payload is number, seed, and the pattern from word 2 on. *(uint64_t *)target_args is the expected number. */
#include <farjump_ifunc.h>

#include "pattern.h"

FARJUMP_COPY_ARGS(witness)

FARJUMP_IFUNC void witness_main(void *payload, size_t payload_size, void *target_args)
{
    const uint64_t *words = payload;
    const uint8_t *bytes = payload;
    uint64_t *due = target_args;
    size_t at = 2 * sizeof *words;

    if (payload_size < at)
        farjump_panic("witness takes two words at least", 32);
    if (words[0] != *due)
        farjump_panic("a call came out of order", 24);
    for (uint64_t index = 2; at < payload_size; index++) {
        uint64_t word = pattern_word(words[1], words[0], index);
        for (int byte = 0; byte < 8 && at < payload_size; byte++, at++)
            if (bytes[at] != (uint8_t)(word >> 8 * byte))
                farjump_panic("a byte of the payload is wrong", 30);
    }
    ++*due;
}
