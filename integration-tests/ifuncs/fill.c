/* fill - replies bytes of a stream's pattern, in pieces of uneven length. The payload is three words: the
 * length, and the seed and the number of the frame with that pattern. */
#include <farjump_ifunc.h>

#include "pattern.h"

FARJUMP_COPY_ARGS(fill)

FARJUMP_IFUNC void fill_main(void *payload, size_t payload_size, void *target_args)
{
    const uint64_t *asked = payload;
    uint64_t piece[97], at = 0;

    (void)target_args;
    if (payload_size != 3 * sizeof *asked)
        farjump_panic("fill takes three words", 22);
    for (uint64_t len = asked[0], words = 1; len != 0; words = words % 97 + 1) {
        uint64_t bytes = words * sizeof *piece < len ? words * sizeof *piece : len;
        for (uint64_t i = 0; i * sizeof *piece < bytes; i++)
            piece[i] = pattern_word(asked[1], asked[2], at + i);
        if (farjump_reply(piece, bytes) != 0)
            return;
        at += words;
        len -= bytes;
    }
}
