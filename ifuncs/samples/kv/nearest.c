/* nearest - the vector that is nearest to a query, by the square of the Euclidean distance.
 *
 * The vectors are float32 values one after the other, as many for each vector as the query has, in one string. The string is
 * the first key of FJ.CALL, and the payload the query. By a link, the payload begins with the key's name and a zero; the
 * query follows, at the next multiple of 4 bytes from the payload's start.
 *
 * The reply is a uint64_t, the index of the vector, and a float, the distance. There is no reply if there are no vectors.
 * Built by: farjump build nearest.c -o libnearest.so */
#include "vectors.h"

FARJUMP_COPY_ARGS(nearest)

FARJUMP_VECTORS FARJUMP_IFUNC void nearest_main(void *payload, size_t payload_size, void *target_args)
{
    struct vectors vectors = open_vectors(target_args, payload, payload_size);
    float least = __builtin_inff();
    uint64_t index = 0;

    for (size_t i = 0; i < vectors.count; i++) {
        float d = distance(vector_at(&vectors, i), vectors.query, vectors.dims);
        if (d < least) {
            least = d;
            index = i;
        }
    }
    if (vectors.count != 0) {
        farjump_reply(&index, sizeof index);
        farjump_reply(&least, sizeof least);
    }
}
