/* indirect_put - writes bytes to the target's slot for a key; only the target knows the slots. The payload is
 * the key, a uint64_t, and the bytes. The reply is a struct indirect_put_reply. target_args is passed to
 * store_slot, which the target exports. */
#include <farjump_ifunc.h>

/* The memory for the bytes of a key. */
struct store_slot {
    void *bytes;     /* writable until the call ends */
    uint64_t space;   /* length of that memory, in bytes */
    uint64_t offset; /* of the slot in the store; the source gets it in the reply */
};

struct store;
/* The target exports this. Fills in *slot and returns 0, or returns another number if there is no such
 * key. */
int store_slot(struct store *store, uint64_t key, struct store_slot *slot);

struct indirect_put_reply {
    uint64_t offset; /* of the slot */
    uint64_t len;    /* number of bytes written there */
};

FARJUMP_COPY_ARGS(indirect_put)

#define FAIL(text) farjump_panic(text, sizeof text - 1)

FARJUMP_IFUNC void indirect_put_main(void *payload, size_t payload_size, void *target_args)
{
    uint64_t key;
    struct store_slot slot;
    struct indirect_put_reply reply;

    if (payload_size < sizeof key)
        FAIL("the payload has no key: it is shorter than 8 bytes");
    __builtin_memcpy(&key, payload, sizeof key);
    if (store_slot(target_args, key, &slot) != 0)
        FAIL("the target has no such key");
    reply.offset = slot.offset;
    reply.len = payload_size - sizeof key;
    if (reply.len > slot.space)
        FAIL("there are more bytes than fit the key's memory");
    __builtin_memcpy(slot.bytes, (const char *)payload + sizeof key, reply.len);
    farjump_reply(&reply, sizeof reply);
}
