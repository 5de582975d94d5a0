/* Replies the path and the bytes of the target's data (struct farjump_data), with a zero byte between them. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(contents)

__attribute__((noinline)) static size_t append(uint8_t *reply, size_t at, const void *bytes, size_t len)
{
    __builtin_memcpy(reply + at, bytes, len);
    return at + len;
}

FARJUMP_IFUNC void contents_main(void *payload, size_t payload_size, void *target_args)
{
    const struct farjump_data *data = target_args;
    static uint8_t reply[1 << 16];
    size_t len = 0;
    (void)payload, (void)payload_size;
    while (len < 4096 && data->path[len] != 0) {
        reply[len] = (uint8_t)data->path[len];
        len++;
    }
    reply[len++] = 0;
    if (data->size >= sizeof *data && data->len <= sizeof reply - len)
        farjump_reply(reply, append(reply, len, data->bytes, data->len));
}
