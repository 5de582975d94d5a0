/* topk - the vectors that are nearest to a query, by the square of the Euclidean distance.
 *
 * The payload is a uint32_t, the number of vectors wanted (128 at most), and then the payload of nearest (nearest.c). The reply
 * has for each vector a uint64_t, its index, and a float, its distance. The nearest one is first. If the string has fewer
 * vectors, the reply has fewer. */
#include "vectors.h"

#define MOST 128

FARJUMP_COPY_ARGS(topk)

struct near {
    uint64_t index;
    float distance;
};

FARJUMP_VECTORS FARJUMP_IFUNC void topk_main(void *payload, size_t payload_size, void *target_args)
{
    static const char bad[] = "the payload does not begin with a uint32_t from 1 to 128, the number of vectors wanted";
    struct near best[MOST];
    size_t kept = 0;
    uint32_t wanted = 0;

    if (payload_size >= sizeof wanted)
        __builtin_memcpy(&wanted, payload, sizeof wanted);
    if (wanted == 0 || wanted > MOST)
        farjump_panic(bad, sizeof bad - 1);
    struct vectors vectors =
        open_vectors(target_args, (const uint8_t *)payload + sizeof wanted, payload_size - sizeof wanted);
    for (size_t i = 0; i < vectors.count; i++) {
        float d = distance(vector_at(&vectors, i), vectors.query, vectors.dims);
        if (kept == wanted && !(d < best[kept - 1].distance))
            continue;
        /* Few vectors come here, so moving the farther ones keeps the list sorted at little cost. */
        size_t at = kept < wanted ? kept++ : kept - 1;
        for (; at > 0 && d < best[at - 1].distance; at--)
            best[at] = best[at - 1];
        best[at] = (struct near){i, d};
    }
    for (size_t i = 0; i < kept; i++) {
        farjump_reply(&best[i].index, sizeof best[i].index);
        farjump_reply(&best[i].distance, sizeof best[i].distance);
    }
}
