/* The payload is the length of a name, a byte, the name of a destination, and the payload to forward. Replies
 * the code of a failed forward. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(onward)

FARJUMP_IFUNC void onward_main(void *payload, size_t payload_size, void *target_args)
{
    const unsigned char *bytes = payload;
    size_t len;
    int code;

    (void)target_args;
    if (payload_size == 0)
        return;
    len = bytes[0];
    if (len == 0 || len > payload_size - 1) {
        farjump_reply(payload, payload_size);
        return;
    }
    code = farjump_forward((const char *)bytes + 1, len, bytes + 1 + len, payload_size - 1 - len);
    if (code != 0) {
        unsigned char digit = (unsigned char)('0' + (code & 15));
        farjump_reply(&digit, 1);
    }
}
