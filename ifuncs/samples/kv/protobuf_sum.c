/* protobuf_sum - adds up a field of protobuf messages.
 *
 * The key is a string of messages, each with its length in front as a varint. The argument is the number of the field. Its
 * values are varints. The answer is the sum, modulo 2^64. The messages are read in the server's memory.
 * protobuf_sum.lua does the same. */
#include <farjump_ifunc.h>
#include <farjump_kv.h>

struct reader {
    const uint8_t *at;
    const uint8_t *end;
};

FARJUMP_COPY_ARGS(protobuf_sum)

static uint64_t varint(struct reader *reader)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && reader->at < reader->end; shift += 7) {
        uint8_t part = *reader->at++;
        value |= (uint64_t)(part & 127) << shift;
        if (part < 128)
            return value;
    }
    farjump_panic("a message is cut", 16);
}

static void skip(struct reader *reader, uint64_t len)
{
    if (len > (uint64_t)(reader->end - reader->at))
        farjump_panic("a message is cut", 16);
    reader->at += len;
}

FARJUMP_IFUNC void protobuf_sum_main(void *payload, size_t payload_size, void *target_args)
{
    struct farjump_kv *kv = target_args;
    struct kv_bytes key, text = {"", 0}, data = {NULL, 0};
    int64_t field = 0;
    uint64_t sum = 0;

    if (kv_words(kv, payload, payload_size) != KV_OK)
        kv_fail(kv);
    kv_arg(kv, 0, &text);
    if (kv_key(kv, 0, &key) != KV_OK)
        farjump_panic("protobuf_sum needs a key", 24);
    if (kv_parse_integer(kv, text.data, text.len, &field) != KV_OK || kv_get(kv, key.data, key.len, &data) < 0)
        kv_fail(kv);

    struct reader all = {data.data, (const uint8_t *)data.data + data.len};
    while (all.at < all.end) {
        uint64_t len = varint(&all);
        struct reader message = {all.at, all.at};
        skip(&all, len);
        message.end = all.at;
        while (message.at < message.end) {
            uint64_t tag = varint(&message);
            switch (tag & 7) {
            case 0: {
                uint64_t value = varint(&message);
                if (tag >> 3 == (uint64_t)field)
                    sum += value;
                break;
            }
            case 1:
                skip(&message, 8);
                break;
            case 2:
                skip(&message, varint(&message));
                break;
            case 5:
                skip(&message, 4);
                break;
            default:
                farjump_panic("a message has a field of an unknown kind", 40);
            }
        }
    }
    kv_answer_integer(kv, (int64_t)sum);
}
