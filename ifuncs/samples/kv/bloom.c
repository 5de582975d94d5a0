/* bloom - a Bloom filter in a string of the server's: 65,536 bits, of which each item sets seven.
 *
 * The payload is `+` and an item, to add it, or `?` and an item, to look for it. The filter is the first key of FJ.CALL. By
 * a link it is the key `bloom`. The reply is one byte: 1 if the item may have been in the filter, 0 if it was not. With
 * 8,000 items, the filter reports two in a hundred absent items as present. */
#include <farjump_ifunc.h>
#include <farjump_kv.h>

#define BITS 65536u
#define HASHES 7

FARJUMP_COPY_ARGS(bloom)

/* Returns the FNV-1a hash, mixed once more, so that both halves serve as hashes. */
static uint64_t hash(const uint8_t *bytes, size_t len)
{
    uint64_t value = 0xcbf29ce484222325u;
    for (size_t i = 0; i < len; i++)
        value = (value ^ bytes[i]) * 0x100000001b3u;
    value ^= value >> 33;
    value *= 0xff51afd7ed558ccdu;
    return value ^ value >> 33;
}

/* Sets a bit. As for SETBIT, the first bit of a byte is the highest one. */
static void set_bit(struct farjump_kv *kv, struct kv_bytes key, uint32_t bit)
{
    char digits[10];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + bit % 10);
        bit /= 10;
    } while (bit != 0);
    struct kv_bytes words[] = {{"setbit", 6}, key, {digits + at, sizeof digits - at}, {"1", 1}};
    if (kv_command(kv, words, 4, 0) != KV_OK)
        kv_fail(kv);
}

FARJUMP_IFUNC void bloom_main(void *payload, size_t payload_size, void *target_args)
{
    static const char bad[] = "the payload is neither + nor ?, with an item behind it";
    struct farjump_kv *kv = target_args;
    const uint8_t *text = payload;
    uint8_t operation = payload_size != 0 ? text[0] : 0;
    struct kv_bytes key = {"bloom", 5}, filter = {0, 0};

    if (operation != '+' && operation != '?')
        farjump_panic(bad, sizeof bad - 1);
    kv_key(kv, 0, &key);
    if (kv_get(kv, key.data, key.len, &filter) < 0)
        kv_fail(kv);
    uint64_t hashed = hash(text + 1, payload_size - 1);
    uint32_t first = (uint32_t)hashed, step = (uint32_t)(hashed >> 32) | 1;
    uint32_t missing[HASHES];
    size_t count = 0;
    const uint8_t *bits = filter.data;
    for (uint32_t i = 0; i < HASHES; i++) {
        uint32_t bit = (first + i * step) % BITS;
        if (bit / 8 >= filter.len || (bits[bit / 8] & 0x80u >> bit % 8) == 0)
            missing[count++] = bit;
    }
    /* The filter's bytes are not used after the first write. */
    for (size_t i = 0; operation == '+' && i < count; i++)
        set_bit(kv, key, missing[i]);
    uint8_t found = count == 0;
    farjump_reply(&found, 1);
}
