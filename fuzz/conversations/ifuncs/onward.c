/* The payload is the length of a name, a byte, the name of a destination, and the payload to forward. With 128 added to
 * the length, a second byte follows it: how often to forward, and 64 to run again here as well, and 128 to forward to code
 * that is made of the payload instead. Replies the code of what failed. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(onward)

static void check(int code)
{
    unsigned char digit = (unsigned char)('0' + (code & 15));

    if (code != 0)
        farjump_reply(&digit, 1);
}

FARJUMP_IFUNC void onward_main(void *payload, size_t payload_size, void *target_args)
{
    const unsigned char *bytes = payload;
    size_t len, head = 1;
    unsigned how = 1;
    uint8_t id[16] = {0};

    (void)target_args;
    if (payload_size < 2)
        return;
    len = bytes[0];
    if (len & 128) {
        len &= 127;
        how = bytes[1];
        head = 2;
    }
    if (len == 0 || len > payload_size - head) {
        farjump_reply(payload, payload_size);
        return;
    }
    const char *name = (const char *)bytes + head;
    const void *rest = bytes + head + len;
    size_t left = payload_size - head - len;
    if (how & 128)
        check(farjump_make(rest, left, id));
    for (unsigned i = 0; i < (how & 7); i++)
        check(how & 128 ? farjump_inject(id, name, len, "made", 4) : farjump_forward(name, len, rest, left));
    if (how & 64)
        check(how & 128 ? farjump_inject(id, 0, 0, "made", 4) : farjump_again(rest, left));
}
