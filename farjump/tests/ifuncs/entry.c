/* Writes down in the target's ledger that it ran, and replies where. */
#include "entry.h"

FARJUMP_COPY_ARGS(entry)

FARJUMP_IFUNC void entry_main(void *payload, size_t payload_size, void *target_args)
{
    write_down(target_args, payload, payload_size / sizeof(uint64_t));
}
