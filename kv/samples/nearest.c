/* nearest - the vector that is nearest to a query, by the square of the Euclidean distance.
 *
 * The vectors are float32 values one after the other, as many for each vector as the query has, in one string. The string is
 * the first key of FJ.CALL, and the payload the query. By a link, the payload begins with the key's name and a zero; the
 * query follows, at the next multiple of 4 bytes from the payload's start.
 *
 * The reply is a uint64_t, the index of the vector, and a float, the distance. There is none if there are no vectors.
 * Fast code needs vector instructions: farjump build nearest.c --cflag -O3 --cflag -ffast-math -o libnearest.so */
#include <farjump_ifunc.h>
#include <farjump_kv.h>

FARJUMP_COPY_ARGS(nearest)

/* A value of a string of the server's, which may lie at any address. */
typedef float loose __attribute__((aligned(1), may_alias));

/* Returns the square of the distance of two vectors. Eight sums, so that a compiler can keep them in vector registers. */
static float distance(const loose *a, const float *b, size_t dims)
{
    float sums[8] = {0};
    float rest = 0;
    size_t i = 0;

    for (; i + 8 <= dims; i += 8)
        for (size_t lane = 0; lane < 8; lane++) {
            float d = a[i + lane] - b[i + lane];
            sums[lane] += d * d;
        }
    for (; i < dims; i++)
        rest += (a[i] - b[i]) * (a[i] - b[i]);
    for (size_t lane = 0; lane < 8; lane++)
        rest += sums[lane];
    return rest;
}

FARJUMP_IFUNC void nearest_main(void *payload, size_t payload_size, void *target_args)
{
    static const char bad[] = "the payload is no query: KEY, a zero, and float32 values from a multiple of 4 bytes on";
    static const char odd[] = "the string's length is no multiple of the query's: give as many values as a vector has";
    struct farjump_kv *kv = target_args;
    struct kv_bytes key, vectors;
    const uint8_t *query = payload;
    size_t query_len = payload_size;

    if (kv_key(kv, 0, &key) != KV_OK) {
        size_t len = 0;
        while (len < payload_size && query[len] != 0)
            len++;
        if (len == payload_size)
            farjump_panic(bad, sizeof bad - 1);
        key.data = payload;
        key.len = len;
        len = (len + 4) & ~(size_t)3;
        query_len = len < payload_size ? payload_size - len : 0;
        query += len;
    }
    size_t dims = query_len / sizeof(float);
    if (dims == 0 || query_len % sizeof(float) != 0)
        farjump_panic(bad, sizeof bad - 1);
    /* The source may write to the payload meanwhile, and an argument of FJ.CALL lies anywhere. */
    const float *wanted = farjump_private_copy(query, query_len, 64);
    int got = kv_get(kv, key.data, key.len, &vectors);
    if (got < 0 || wanted == 0)
        kv_fail(kv);
    if (got == KV_ABSENT)
        return;
    if (vectors.len % query_len != 0)
        farjump_panic(odd, sizeof odd - 1);

    struct {
        uint64_t index;
        float distance;
    } best = {0, __builtin_inff()};
    const uint8_t *vector = vectors.data;
    for (size_t i = 0; i < vectors.len / query_len; i++, vector += query_len) {
        float d = distance((const loose *)vector, wanted, dims);
        if (d < best.distance) {
            best.distance = d;
            best.index = i;
        }
    }
    if (vectors.len != 0) {
        farjump_reply(&best.index, sizeof best.index);
        farjump_reply(&best.distance, sizeof best.distance);
    }
}
