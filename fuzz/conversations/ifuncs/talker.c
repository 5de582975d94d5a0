/* The payload's first word is the number of bytes to reply, the second that of each piece; both are reduced to
 * small numbers. Panics with the rest, if there is one. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(talker)

FARJUMP_IFUNC void talker_main(void *payload, size_t payload_size, void *target_args)
{
    uint8_t piece[256];
    uint64_t wish[2];

    (void)target_args;
    if (payload_size < sizeof wish)
        return;
    __builtin_memcpy(wish, payload, sizeof wish);
    for (unsigned at = 0; at < sizeof piece; at++)
        piece[at] = (uint8_t)(0x40 + at % 32);
    for (uint64_t left = wish[0] % 20000; left > 0;) {
        uint64_t len = 1 + wish[1] % sizeof piece;
        if (len > left)
            len = left;
        farjump_reply(piece, len);
        left -= len;
    }
    if (payload_size > 16)
        farjump_panic((const char *)payload + 16, payload_size - 16);
}
