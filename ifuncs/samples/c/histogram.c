/* histogram - counts each byte value in the target's data (struct farjump_data). The payload is not read. The
 * reply is a struct histogram_reply. The source computes the bits per byte from it: the sum over all values
 * of counts/len * log2(len/counts). */
#include <farjump_ifunc.h>

struct histogram_reply {
    uint64_t len;         /* length of the data in bytes: the sum of the counts */
    uint64_t counts[256]; /* occurrences of each byte value */
};

FARJUMP_COPY_ARGS(histogram)

FARJUMP_IFUNC void histogram_main(void *payload, size_t payload_size, void *target_args)
{
    const struct farjump_data *data = target_args;
    const uint8_t *bytes = data->bytes;
    size_t len = data->len, i = 0;
    /* Four tables: in one, equal bytes in a row would wait for the store of each other's count. */
    uint64_t counts[4][256];
    struct histogram_reply reply;

    (void)payload;
    (void)payload_size;
    for (int value = 0; value < 256; value++)
        counts[0][value] = counts[1][value] = counts[2][value] = counts[3][value] = 0;
    for (; len - i >= 4; i += 4) {
        counts[0][bytes[i]]++;
        counts[1][bytes[i + 1]]++;
        counts[2][bytes[i + 2]]++;
        counts[3][bytes[i + 3]]++;
    }
    for (; i < len; i++)
        counts[0][bytes[i]]++;
    reply.len = len;
    for (int value = 0; value < 256; value++)
        reply.counts[value] = counts[0][value] + counts[1][value] + counts[2][value] + counts[3][value];
    farjump_reply(&reply, sizeof reply);
}
