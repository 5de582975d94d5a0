/* block - a block as it lies in the table: what a copy of the file is made of. */
#include "scan.h"

FARJUMP_COPY_ARGS(block)

FARJUMP_IFUNC void block_main(void *payload, size_t payload_size, void *target_args)
{
    const struct scan_table *table = target_args;
    struct scan_end end = {0, 0, 0, 0, 0, SCAN_NO_BLOCK, 0};
    const uint8_t *block = NULL;

    if (payload_size >= sizeof end.block) {
        memcpy(&end.block, payload, sizeof end.block);
        block = scan_block(table, end.block);
    }
    if (block) {
        end.status = SCAN_READ;
        farjump_reply(block, table->block_len);
    }
    scan_check(table, &end);
    farjump_reply(&end, sizeof end);
}
