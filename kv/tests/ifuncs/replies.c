/* replies - gives a reply for each character of the first argument: i, d, s and a for an integer, a double, a string and an
 * array of two; n for NaN, b for bytes besides, t for the time. I and D parse the second argument as a number, and answer with
 * its text. */
#include <farjump_ifunc.h>
#include <farjump_kv.h>

FARJUMP_COPY_ARGS(replies)

FARJUMP_IFUNC void replies_main(void *payload, size_t payload_size, void *target_args)
{
    struct farjump_kv *kv = target_args;
    struct kv_bytes steps = {"", 0}, text = {"", 0};
    char written[KV_NUMBER];
    size_t len = 0;
    int64_t integer;
    double number;
    int got = KV_OK;

    if (kv_words(kv, payload, payload_size) != KV_OK)
        kv_fail(kv);
    kv_arg(kv, 0, &steps);
    kv_arg(kv, 1, &text);
    for (size_t i = 0; i < steps.len && got == KV_OK; i++) {
        switch (((const char *)steps.data)[i]) {
        case 'i':
            got = kv_answer_integer(kv, -5);
            break;
        case 'd':
            got = kv_answer_double(kv, 0.5);
            break;
        case 's':
            got = kv_answer_string(kv, "a\r\nb", 4);
            break;
        case 'a':
            got = kv_answer_array(kv, 2);
            break;
        case 'n':
            got = kv_answer_double(kv, __builtin_nan(""));
            break;
        case 'b':
            farjump_reply("bytes", 5);
            break;
        case 't':
            got = kv_time(kv, (uint64_t *)&integer);
            kv_answer_integer(kv, integer);
            break;
        case 'I':
            got = kv_parse_integer(kv, text.data, text.len, &integer);
            if (got == KV_OK && kv_format_integer(kv, integer, written, &len) == KV_OK)
                got = kv_answer_string(kv, written, len);
            break;
        case 'D':
            got = kv_parse_double(kv, text.data, text.len, &number);
            if (got == KV_OK && kv_format_double(kv, number, written, &len) == KV_OK)
                got = kv_answer_string(kv, written, len);
            break;
        default:
            farjump_panic("no such step", 12);
        }
    }
    if (got != KV_OK)
        kv_fail(kv);
}
