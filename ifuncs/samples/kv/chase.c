/* chase - follows a list of keys: the value of each is the name of the next, up to a missing key.
 *
 * The list begins with the first key of FJ.CALL, or by a link with the key that the payload names. The reply is a uint64_t,
 * the number of keys, and the name that the last one holds. A list that closes to a ring ends after 2^20 keys. */
#include <farjump_ifunc.h>
#include <farjump_kv.h>

#define MOST (1u << 20)

FARJUMP_COPY_ARGS(chase)

FARJUMP_IFUNC void chase_main(void *payload, size_t payload_size, void *target_args)
{
    struct farjump_kv *kv = target_args;
    struct kv_bytes key = {payload, payload_size};
    struct kv_bytes next;
    uint64_t keys = 0;
    int got = KV_ABSENT;

    kv_key(kv, 0, &key);
    while (keys < MOST && (got = kv_get(kv, key.data, key.len, &next)) == KV_OK) {
        key = next;
        keys++;
    }
    if (got < 0)
        kv_fail(kv);
    farjump_reply(&keys, sizeof keys);
    farjump_reply(key.data, key.len);
}
