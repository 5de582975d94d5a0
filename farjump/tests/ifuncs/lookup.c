/* Calls a function of the target and reads a variable of it. The payload is a uint64_t, and so is the
 * reply. */
#include <farjump_ifunc.h>

extern uint64_t store_get(void *store, uint64_t key);
extern uint64_t store_version;

FARJUMP_COPY_ARGS(lookup)

FARJUMP_IFUNC void lookup_main(void *payload, size_t payload_size, void *target_args)
{
    uint64_t found = store_get(target_args, *(uint64_t *)payload) + store_version;

    (void)payload_size;
    farjump_reply(&found, sizeof found);
}
