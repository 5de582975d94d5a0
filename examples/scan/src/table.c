/* table - what the target has: its table, as scan.h describes it. */
#include "scan.h"

FARJUMP_COPY_ARGS(table)

FARJUMP_IFUNC void table_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload;
    (void)payload_size;
    farjump_reply(target_args, sizeof(struct scan_table));
}
