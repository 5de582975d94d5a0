/* The payload is two uint64_t: the number of bytes to reply, and the number of bytes of each piece. Replies the bytes,
 * then the last return value of farjump_reply as a byte. Panics with the rest of the payload, if there is any. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(speech)

FARJUMP_IFUNC void speech_main(void *payload, size_t payload_size, void *target_args)
{
    const uint64_t *wish = payload;
    uint8_t piece[256];
    int result = 0;

    (void)target_args;
    for (unsigned at = 0; at < sizeof piece; at++)
        piece[at] = (uint8_t)at;
    for (uint64_t left = wish[0]; left > 0;) {
        uint64_t len = wish[1] < left ? wish[1] : left;
        result = farjump_reply(piece, len);
        left -= len;
    }
    if (payload_size > 16)
        farjump_panic((const char *)payload + 16, payload_size - 16);
    uint8_t byte = (uint8_t)result;
    farjump_reply(&byte, 1);
}
