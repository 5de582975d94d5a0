/* crc32 - the CRC-32 of the target's data (struct farjump_data), as in IEEE 802.3, zlib and `cksum -a
 * crc32b`. The payload is not read. The reply is a uint32_t.
 *
 * It takes eight bytes a step, by eight tables on the target's stack. Each call computes them in some
 * microseconds, so that 8 KiB of tables need not travel. */
#include <farjump_ifunc.h>

#define POLYNOMIAL 0xedb88320u /* reflected: the lowest bit is the highest power */

FARJUMP_COPY_ARGS(crc32)

FARJUMP_IFUNC void crc32_main(void *payload, size_t payload_size, void *target_args)
{
    const struct farjump_data *data = target_args;
    const uint8_t *bytes = data->bytes;
    size_t len = data->len;
    uint32_t table[8][256], crc = ~0u;

    (void)payload;
    (void)payload_size;
    /* table[0][value] is the remainder of one byte; table[k][value] that of the byte and k zero bytes. */
    for (uint32_t value = 0; value < 256; value++) {
        uint32_t rest = value;
        for (int bit = 0; bit < 8; bit++)
            rest = rest >> 1 ^ (rest & 1 ? POLYNOMIAL : 0);
        table[0][value] = rest;
    }
    for (int zeroes = 1; zeroes < 8; zeroes++)
        for (int value = 0; value < 256; value++) {
            uint32_t rest = table[zeroes - 1][value];
            table[zeroes][value] = rest >> 8 ^ table[0][rest & 255];
        }
    for (; len >= 8; bytes += 8, len -= 8) {
        uint64_t word;
        __builtin_memcpy(&word, bytes, sizeof word); /* little-endian: the first byte is the lowest */
        word ^= crc;
        crc = table[7][word & 255] ^ table[6][word >> 8 & 255] ^ table[5][word >> 16 & 255]
              ^ table[4][word >> 24 & 255] ^ table[3][word >> 32 & 255] ^ table[2][word >> 40 & 255]
              ^ table[1][word >> 48 & 255] ^ table[0][word >> 56];
    }
    for (; len != 0; bytes++, len--)
        crc = crc >> 8 ^ table[0][(crc ^ *bytes) & 255];
    crc = ~crc;
    farjump_reply(&crc, sizeof crc);
}
