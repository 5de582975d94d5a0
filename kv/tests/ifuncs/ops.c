/* ops - runs the operations in the payload. Operations end with 0x1e, their words with 0x1f. For each, the reply has the
 * results of the function, its return value, and a newline. The operation `panic` ends the call. `again` runs the operations
 * behind it later. */
#include <farjump_ifunc.h>
#include <farjump_kv.h>
#include "../../../farjump/tests/ifuncs/rounding.h"

#define WORDS 8

FARJUMP_COPY_ARGS(ops)

static void put(const void *bytes, size_t len)
{
    farjump_reply(bytes, len);
}

static void put_number(int64_t number)
{
    char digits[24];
    size_t at = sizeof digits;
    uint64_t rest = number < 0 ? (uint64_t)-number : (uint64_t)number;
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest != 0);
    if (number < 0)
        digits[--at] = '-';
    put(digits + at, sizeof digits - at);
}

static void put_bytes(struct kv_bytes bytes)
{
    put(" ", 1);
    put(bytes.data, bytes.len);
}

/* Whether a word equals a string literal. */
#define is(word, text) ((word).len == sizeof(text) - 1 && __builtin_memcmp((word).data, text, sizeof(text) - 1) == 0)

static int64_t number(struct kv_bytes word)
{
    const char *digits = word.data;
    int64_t value = 0;
    size_t at = word.len != 0 && digits[0] == '-';
    for (; at < word.len; at++)
        value = 10 * value + (digits[at] - '0');
    return word.len != 0 && digits[0] == '-' ? -value : value;
}

static uint64_t cursor, position, answer;

/* A function of its own, so that its return address is on top of the stack. Redis 7.0 looks there for the caller of unknown
 * code. Its report ends there if that is no address of memory. */
static __attribute__((noinline, noreturn)) void crash(void)
{
    __builtin_trap();
}

static int run(struct farjump_kv *kv, const struct kv_bytes *w, size_t words)
{
    struct kv_bytes a = {0, 0}, b = {0, 0};
    struct kv_stream_id id = {0, 0};
    struct kv_part part;
    double score = 0;
    size_t len = 0;
    int got;

#define KEY w[1].data, w[1].len
    if (is(w[0], "type"))
        return kv_type(kv, KEY);
    if (is(w[0], "len")) {
        if ((got = kv_len(kv, KEY, &len)) == KV_OK)
            put_number((int64_t)len);
        return got;
    }
    if (is(w[0], "get")) {
        if ((got = kv_get(kv, KEY, &a)) == KV_OK)
            put_bytes(a);
        return got;
    }
    if (is(w[0], "hget")) {
        if ((got = kv_hget(kv, KEY, w[2].data, w[2].len, &a)) == KV_OK)
            put_bytes(a);
        return got;
    }
    if (is(w[0], "lindex")) {
        if ((got = kv_lindex(kv, KEY, number(w[2]), &a)) == KV_OK)
            put_bytes(a);
        return got;
    }
    if (is(w[0], "zscore")) {
        if ((got = kv_zscore(kv, KEY, w[2].data, w[2].len, &score)) == KV_OK)
            put_number((int64_t)score);
        return got;
    }
    if (is(w[0], "zrange"))
        return kv_zrange(kv, KEY, (double)number(w[2]), (double)number(w[3]), (int)number(w[4]), &cursor);
    if (is(w[0], "znext")) {
        if ((got = kv_zset_next(kv, cursor, &a, &score)) == KV_OK) {
            put_bytes(a);
            put(" ", 1);
            put_number((int64_t)score);
        }
        return got;
    }
    if (is(w[0], "xrange"))
        return kv_xrange(kv, KEY, 0, 0, (int)number(w[2]), &cursor);
    if (is(w[0], "xnext")) {
        if ((got = kv_stream_next(kv, cursor, &id, &len)) == KV_OK) {
            put(" ", 1);
            put_number((int64_t)id.ms);
            put(" ", 1);
            put_number((int64_t)len);
        }
        return got;
    }
    if (is(w[0], "fields"))
        return kv_fields(kv, KEY, &cursor);
    if (is(w[0], "members"))
        return kv_members(kv, KEY, &cursor);
    if (is(w[0], "pair")) {
        if ((got = kv_pair_next(kv, cursor, &a, &b)) == KV_OK) {
            put_bytes(a);
            put_bytes(b);
        }
        return got;
    }
    if (is(w[0], "name")) {
        if ((got = kv_name_next(kv, cursor, &a)) == KV_OK)
            put_bytes(a);
        return got;
    }
    if (is(w[0], "count")) {
        while ((got = kv_name_next(kv, cursor, &a)) == KV_OK)
            len++;
        put_number((int64_t)len);
        return got;
    }
    if (is(w[0], "scan")) {
        position = 0;
        return kv_scan(kv, KEY, (size_t)number(w[2]), &position, &cursor);
    }
    if (is(w[0], "close"))
        return kv_close(kv, cursor);
    if (is(w[0], "set"))
        return kv_set(kv, KEY, w[2].data, w[2].len);
    if (is(w[0], "del"))
        return kv_del(kv, KEY);
    if (is(w[0], "expire"))
        return kv_expire(kv, KEY, number(w[2]));
    if (is(w[0], "hset"))
        return kv_hset(kv, KEY, w[2].data, w[2].len, w[3].data, w[3].len);
    if (is(w[0], "zadd"))
        return kv_zadd(kv, KEY, w[2].data, w[2].len, (double)number(w[3]));
    if (is(w[0], "command")) {
        if ((got = kv_command(kv, w + 1, words - 1, &answer)) == KV_OK && kv_reply(kv, answer, 0, 0, &part) == KV_OK) {
            put_number(part.type);
            put(" ", 1);
            if (part.type == KV_REPLY_INTEGER)
                put_number(part.integer);
            put(part.bytes.data, part.bytes.len);
        }
        return got;
    }
    if (is(w[0], "element")) {
        len = (size_t)number(w[1]);
        if ((got = kv_reply(kv, answer, &len, 1, &part)) == KV_OK)
            put_bytes(part.bytes);
        return got;
    }
    if (is(w[0], "keys"))
        return kv_keys(kv);
    if (is(w[0], "key")) {
        if ((got = kv_key(kv, (size_t)number(w[1]), &a)) == KV_OK)
            put_bytes(a);
        return got;
    }
    if (is(w[0], "args"))
        return kv_args(kv);
    if (is(w[0], "error")) {
        got = kv_error(kv, &a);
        put_bytes(a);
        return got;
    }
    if (is(w[0], "spin")) {
        volatile int64_t rounds = number(w[1]) * 1000000;
        while (rounds > 0)
            rounds--;
        return 0;
    }
    if (is(w[0], "panic"))
        farjump_panic("asked to", 8);
    if (is(w[0], "round-up")) {
        round_up();
        return 0;
    }
    if (is(w[0], "fail"))
        kv_fail(kv);
    if (is(w[0], "crash"))
        crash();
    return -1000;
#undef KEY
}

FARJUMP_IFUNC void ops_main(void *payload, size_t payload_size, void *target_args)
{
    const char *text = payload;
    struct kv_bytes words[WORDS] = {{text, 0}};
    size_t count = 1, start = 0;

    for (size_t at = 0; at < payload_size; at++) {
        if (text[at] != 0x1e && text[at] != 0x1f)
            continue;
        words[count - 1].data = text + start;
        words[count - 1].len = at - start;
        start = at + 1;
        if (text[at] == 0x1f) {
            if (count == WORDS)
                farjump_panic("too many words", 14);
            count++;
            continue;
        }
        if (is(words[0], "again")) {
            put_number(farjump_again(text + start, payload_size - start));
            put("\n", 1);
            return;
        }
        put_number(run(target_args, words, count));
        put("\n", 1);
        count = 1;
    }
}
