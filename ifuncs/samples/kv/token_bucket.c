/* token_bucket - takes tokens from a bucket that fills up again.
 *
 * The key is the bucket, a hash. The arguments are its capacity in tokens, the tokens that come in a second, the tokens
 * wanted, and the time in microseconds. Without a time the server's clock counts. The answer is an array: 1 if the tokens
 * were taken, otherwise 0, and the tokens left. token_bucket.lua does the same. */
#include <farjump_ifunc.h>
#include <farjump_kv.h>

#define WORD(text) {text, sizeof text - 1}

FARJUMP_COPY_ARGS(token_bucket)

static double argument(struct farjump_kv *kv, size_t index)
{
    struct kv_bytes text = {"", 0};
    double value = 0;

    kv_arg(kv, index, &text);
    if (kv_parse_double(kv, text.data, text.len, &value) != KV_OK)
        kv_fail(kv);
    return value;
}

/* Returns a field of the bucket, or `otherwise` if the field is missing. */
static double saved(struct farjump_kv *kv, struct kv_bytes key, const char *field, size_t field_len, double otherwise)
{
    struct kv_bytes text;
    double value = otherwise;
    int got = kv_hget(kv, key.data, key.len, field, field_len, &text);

    if (got < 0 || (got == KV_OK && kv_parse_double(kv, text.data, text.len, &value) != KV_OK))
        kv_fail(kv);
    return value;
}

FARJUMP_IFUNC void token_bucket_main(void *payload, size_t payload_size, void *target_args)
{
    struct farjump_kv *kv = target_args;
    struct kv_bytes key;
    char left[KV_NUMBER], time[KV_NUMBER];
    size_t left_len, time_len;
    uint64_t clock;

    if (kv_words(kv, payload, payload_size) != KV_OK)
        kv_fail(kv);
    if (kv_key(kv, 0, &key) != KV_OK)
        farjump_panic("token_bucket needs a key", 24);
    double most = argument(kv, 0), rate = argument(kv, 1), wanted = argument(kv, 2);
    kv_time(kv, &clock);
    double now = kv_args(kv) > 3 ? argument(kv, 3) : (double)clock;

    double tokens = saved(kv, key, "tokens", 6, most);
    double before = saved(kv, key, "time", 4, now);
    tokens += (now > before ? now - before : 0) * rate / 1000000;
    if (tokens > most)
        tokens = most;
    int taken = tokens >= wanted;
    if (taken)
        tokens -= wanted;

    if (kv_format_double(kv, tokens, left, &left_len) != KV_OK)
        kv_fail(kv);
    kv_format_integer(kv, (int64_t)now, time, &time_len);
    struct kv_bytes set[] = {WORD("HSET"), key, WORD("tokens"), {left, left_len}, WORD("time"), {time, time_len}};
    if (kv_command(kv, set, 6, NULL) != KV_OK || kv_expire(kv, key.data, key.len, (int64_t)(most / rate * 1000) + 1) < 0)
        kv_fail(kv);
    kv_answer_array(kv, 2);
    kv_answer_integer(kv, taken);
    kv_answer_string(kv, left, left_len);
}
