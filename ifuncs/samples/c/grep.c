/* grep - counts the occurrences of the payload, as literal bytes, in the target's data (struct farjump_data).
 * Overlapping occurrences all count: `aa` is in `aaaa` three times. An empty payload occurs nowhere. The
 * reply is a uint64_t. */
#include <farjump_ifunc.h>

#define EACH_BYTE(value) ((uint64_t)(value) * 0x0101010101010101u)

FARJUMP_COPY_ARGS(grep)

static uint64_t load(const uint8_t *at)
{
    uint64_t word;
    __builtin_memcpy(&word, at, sizeof word);
    return word;
}

/* Returns the highest bit of each byte of `word` that is zero. Exact: no carry crosses bytes. */
static uint64_t zero_bytes(uint64_t word)
{
    uint64_t low = EACH_BYTE(0x7f);
    return ~(((word & low) + low) | word | low);
}

/* Returns whether all of the `len` bytes but the first and the last are equal. */
static int equal_between(const uint8_t *a, const uint8_t *b, size_t len)
{
    for (size_t i = 1; i + 1 < len; i++)
        if (a[i] != b[i])
            return 0;
    return 1;
}

FARJUMP_IFUNC void grep_main(void *payload, size_t payload_size, void *target_args)
{
    const struct farjump_data *data = target_args;
    const uint8_t *literal = payload, *bytes = data->bytes;
    size_t len = payload_size;
    uint64_t found = 0;

    if (len != 0 && len <= data->len) {
        size_t starts = data->len - len + 1, at = 0;
        uint64_t first = EACH_BYTE(literal[0]), last = EACH_BYTE(literal[len - 1]);

        /* Eight starts at a time. If the first and the last byte are equal, the bytes between are
         * compared. */
        for (; starts - at >= 8; at += 8) {
            uint64_t wrong = (load(bytes + at) ^ first) | (load(bytes + at + len - 1) ^ last);
            for (uint64_t hits = zero_bytes(wrong); hits != 0; hits &= hits - 1)
                found += equal_between(bytes + at + __builtin_ctzll(hits) / 8, literal, len);
        }
        for (; at < starts; at++)
            found += bytes[at] == literal[0] && bytes[at + len - 1] == literal[len - 1]
                     && equal_between(bytes + at, literal, len);
    }
    farjump_reply(&found, sizeof found);
}
