/* Replies four uint64_t: its own address, its payload's address, the address of a table with an alignment of 1024
 * bytes, and the first letter of a word that it finds through a table of addresses. */
#include <farjump_ifunc.h>

static const char *const words[] = {"zero", "one", "two"};
static const uint8_t grid[16] __attribute__((aligned(1024))) = {7};

FARJUMP_COPY_ARGS(whereabouts)

FARJUMP_IFUNC void whereabouts_main(void *payload, size_t payload_size, void *target_args)
{
    const char *const *volatile table = words;
    const uint8_t *volatile aligned = grid;
    uint64_t found[4] = {
        (uintptr_t)whereabouts_main,
        (uintptr_t)payload,
        (uintptr_t)aligned * (aligned[0] == 7),
        (uint64_t)table[payload_size % 3][0],
    };

    (void)target_args;
    farjump_reply(found, sizeof found);
}
