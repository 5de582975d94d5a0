/* downsample - means of a stream's values over spans of time.
 *
 * The key is the stream. The arguments are the field with the values, and the span in milliseconds. The answer is an array with
 * an element for each span that has values, up to 1024: its start in milliseconds, the number of values, and their mean.
 * downsample.lua does the same. */
#include <string.h>

#include <farjump_ifunc.h>
#include <farjump_kv.h>

#define MOST 1024

struct span {
    uint64_t start;
    uint64_t count;
    double sum;
};

FARJUMP_COPY_ARGS(downsample)

FARJUMP_IFUNC void downsample_main(void *payload, size_t payload_size, void *target_args)
{
    struct farjump_kv *kv = target_args;
    struct kv_bytes key, field = {"", 0}, text = {"", 0}, name, number;
    struct kv_stream_id id;
    struct span spans[MOST];
    size_t count = 0;
    int64_t span = 0;
    uint64_t cursor;
    double value;

    if (kv_words(kv, payload, payload_size) != KV_OK)
        kv_fail(kv);
    kv_arg(kv, 0, &field);
    kv_arg(kv, 1, &text);
    if (kv_key(kv, 0, &key) != KV_OK)
        farjump_panic("downsample needs a key", 22);
    if (kv_parse_integer(kv, text.data, text.len, &span) != KV_OK || span < 1)
        farjump_panic("downsample needs a span of 1 ms or more", 39);

    int got = kv_xrange(kv, key.data, key.len, NULL, NULL, 0, &cursor);
    while (got == KV_OK && (got = kv_stream_next(kv, cursor, &id, NULL)) == KV_OK) {
        uint64_t start = id.ms - id.ms % (uint64_t)span;
        while ((got = kv_pair_next(kv, cursor, &name, &number)) == KV_OK) {
            if (name.len != field.len || memcmp(name.data, field.data, field.len) != 0
                || kv_parse_double(kv, number.data, number.len, &value) != KV_OK)
                continue;
            if (count == 0 || spans[count - 1].start != start) {
                if (count == MOST)
                    farjump_panic("downsample answers with up to 1024 spans: take longer ones", 58);
                spans[count++] = (struct span){start, 0, 0};
            }
            spans[count - 1].count++;
            spans[count - 1].sum += value;
        }
        if (got == KV_ABSENT)
            got = KV_OK;
    }
    if (got < 0)
        kv_fail(kv);
    kv_answer_array(kv, count);
    for (size_t i = 0; i < count; i++) {
        kv_answer_array(kv, 3);
        kv_answer_integer(kv, (int64_t)spans[i].start);
        kv_answer_integer(kv, (int64_t)spans[i].count);
        kv_answer_double(kv, spans[i].sum / (double)spans[i].count);
    }
}
