/* leaders - the members with the highest scores among those that pass a filter.
 *
 * The keys are a sorted set, and a hash with a field for each member. The arguments are the number of members wanted, up to
 * 128, and the value of their field. The answer is an array of members and scores in turn. leaders.lua does the same. */
#include <string.h>

#include <farjump_ifunc.h>
#include <farjump_kv.h>

#define MOST 128

FARJUMP_COPY_ARGS(leaders)

FARJUMP_IFUNC void leaders_main(void *payload, size_t payload_size, void *target_args)
{
    struct farjump_kv *kv = target_args;
    struct kv_bytes scores, fields, text = {"", 0}, value = {"", 0}, members[MOST];
    double of[MOST];
    int64_t wanted = 0;
    int64_t count = 0;
    uint64_t cursor;

    if (kv_words(kv, payload, payload_size) != KV_OK)
        kv_fail(kv);
    kv_arg(kv, 0, &text);
    kv_arg(kv, 1, &value);
    if (kv_key(kv, 0, &scores) != KV_OK || kv_key(kv, 1, &fields) != KV_OK)
        farjump_panic("leaders needs two keys", 22);
    if (kv_parse_integer(kv, text.data, text.len, &wanted) != KV_OK || wanted < 1 || wanted > MOST)
        farjump_panic("leaders finds from 1 to 128 members", 35);

    int got = kv_zrange(kv, scores.data, scores.len, -__builtin_inf(), __builtin_inf(), 1, &cursor);
    while (got == KV_OK && count < wanted) {
        got = kv_zset_next(kv, cursor, &members[count], &of[count]);
        if (got != KV_OK)
            break;
        got = kv_hget(kv, fields.data, fields.len, members[count].data, members[count].len, &text);
        if (got == KV_OK && text.len == value.len && memcmp(text.data, value.data, value.len) == 0)
            count++;
        if (got == KV_ABSENT)
            got = KV_OK;
    }
    if (got < 0)
        kv_fail(kv);
    kv_answer_array(kv, 2 * (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        kv_answer_string(kv, members[i].data, members[i].len);
        kv_answer_double(kv, of[i]);
    }
}
