/* hash_sum - adds up the fields of a hash that are whole numbers. */
#include <farjump_ifunc.h>
#include <farjump_kv.h>

FARJUMP_COPY_ARGS(hash_sum)

FARJUMP_IFUNC void hash_sum_main(void *payload, size_t payload_size, void *target_args)
{
    struct farjump_kv *kv = target_args;
    struct kv_bytes key, text;
    uint64_t cursor;
    int64_t sum = 0, value;

    if (kv_words(kv, payload, payload_size) != KV_OK || kv_key(kv, 0, &key) != KV_OK)
        kv_fail(kv);
    int got = kv_fields(kv, key.data, key.len, &cursor);
    while (got == KV_OK && (got = kv_pair_next(kv, cursor, NULL, &text)) == KV_OK)
        if (kv_parse_integer(kv, text.data, text.len, &value) == KV_OK)
            sum += value;
    if (got < 0)
        kv_fail(kv);
    kv_answer_integer(kv, sum);
}
