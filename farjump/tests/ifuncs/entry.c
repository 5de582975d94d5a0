/* Logs its run in the target's ledger, and replies the place of the entry. */
#include "entry.h"

FARJUMP_COPY_ARGS(entry)

FARJUMP_IFUNC void entry_main(void *payload, size_t payload_size, void *target_args)
{
    write_down(target_args, payload, payload_size / sizeof(uint64_t));
}
