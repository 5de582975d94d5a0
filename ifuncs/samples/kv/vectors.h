/* vectors.h - float32 vectors in one string of the server's, for the samples nearest and topk. */
#ifndef VECTORS_H
#define VECTORS_H

#include <farjump_ifunc.h>
#include <farjump_kv.h>

/* A value of a string of the server's, which may lie at any address. */
typedef float loose __attribute__((aligned(1), may_alias));

/* Vectors of a string, and the query that they are compared with. */
struct vectors {
    const uint8_t *bytes; /* the vectors; NULL if there is no such key */
    size_t count;
    const float *query;
    size_t dims; /* values of a vector */
};

/* Returns the square of the distance of two vectors. Eight sums, so that a compiler can keep them in vector registers. */
static inline float distance(const loose *a, const float *b, size_t dims)
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

/* Finds the query in the payload, and the vectors of its key. The key is the first one of FJ.CALL. By a link the payload begins
 * with the key's name and a zero. The query follows at the next multiple of 4 bytes. Ends the call for another payload. */
static inline struct vectors open_vectors(struct farjump_kv *kv, const uint8_t *payload, size_t payload_size)
{
    static const char bad[] = "the payload is no query: KEY, a zero, and float32 values from a multiple of 4 bytes on";
    static const char odd[] = "the string's length is no multiple of the query's: give as many values as a vector has";
    static const char full[] = "the server has no memory for a copy of the query";
    struct kv_bytes key, found = {0, 0};
    size_t query_len = payload_size;

    if (kv_key(kv, 0, &key) != KV_OK) {
        size_t len = 0;
        while (len < payload_size && payload[len] != 0)
            len++;
        if (len == payload_size)
            farjump_panic(bad, sizeof bad - 1);
        key.data = payload;
        key.len = len;
        len = (len + 4) & ~(size_t)3;
        query_len = len < payload_size ? payload_size - len : 0;
        payload += len;
    }
    if (query_len == 0 || query_len % sizeof(float) != 0)
        farjump_panic(bad, sizeof bad - 1);
    /* The source may write to the payload meanwhile. */
    const float *query = farjump_private_copy(payload, query_len, 64);
    if (query == 0)
        farjump_panic(full, sizeof full - 1);
    int got = kv_get(kv, key.data, key.len, &found);
    if (got < 0)
        kv_fail(kv);
    if (found.len % query_len != 0)
        farjump_panic(odd, sizeof odd - 1);
    return (struct vectors){found.data, found.len / query_len, query, query_len / sizeof(float)};
}

/* Returns the vector with this index. */
static inline const loose *vector_at(const struct vectors *vectors, size_t index)
{
    return (const loose *)(vectors->bytes + index * vectors->dims * sizeof(float));
}

#endif
