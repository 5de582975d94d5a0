/* length - replies with the length of the target's data, a uint64_t. With a payload it also forwards itself, without a
 * payload, to the destination that the payload names. Its own reply comes first. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(length)

FARJUMP_IFUNC void length_main(void *payload, size_t payload_size, void *target_args)
{
    const struct farjump_data *data = target_args;
    uint64_t length = data->len;
    farjump_reply(&length, sizeof length);
    if (payload_size != 0 && farjump_forward(payload, payload_size, payload, 0) != 0)
        farjump_panic("no such destination", 19);
}
