/* scan.h - what is sent to a target with a table: a predicate on records, which also chooses what of them comes back.
 *
 *     #include "scan.h"
 *
 *     // The first 16 bytes of each record whose first word is below the one that the source sends.
 *     static int below_row(const uint8_t *record, size_t len, const void *args, size_t args_len, struct scan_out *out)
 *     {
 *         uint64_t key, limit;
 *         if (len < 16 || args_len < sizeof limit)
 *             return 0;
 *         memcpy(&key, record, sizeof key);
 *         memcpy(&limit, args, sizeof limit);
 *         if (key >= limit)
 *             return 0;
 *         scan_put(out, record, 16);
 *         return 1;
 *     }
 *     SCAN(below)
 *
 * NAME_row returns 1 if the record is kept, and puts what is to come back first; otherwise it returns 0 and puts nothing.
 * `record` is read-only, may begin at any address, and may be changed meanwhile by who writes the file: copy what you check.
 */
#ifndef SCAN_H
#define SCAN_H

#include <farjump_ifunc.h>
#include <string.h>

/* The target_args: a table, mapped. mapped.rs has the same. */
struct scan_table {
    uint64_t blocks;    /* number of blocks */
    uint64_t len;       /* length of the file in bytes */
    uint32_t block_len; /* length of a block in bytes */
    uint32_t width;     /* length of each record in bytes; 0: each record has its own in front of it */
};

/* Exports of the target. scan_block returns where a block lies, or NULL if there is none; the target reads ahead, and drops what lies
 * behind. scan_fault says whether what was read is the table: UINT64_MAX if it is; the length that the file has left if it was
 * cut; or one of the numbers below. Ask it when a block was read. */
const uint8_t *scan_block(const struct scan_table *table, uint64_t number);
uint64_t scan_fault(const struct scan_table *table);

#define SCAN_UNREADABLE (UINT64_MAX - 1) /* the system could not read the file */
#define SCAN_CHANGED (UINT64_MAX - 2)    /* the file was written */

/* Keeps a number that was copied from the table: what is checked is what is used, whoever writes the file meanwhile. */
#define SCAN_COPIED(number) __asm__ volatile("" : "+r"(number))

enum scan_status { SCAN_READ, SCAN_NO_BLOCK, SCAN_FAULT, SCAN_BAD_RECORD, SCAN_LONG_ROW };

/* The end of a reply, behind its rows: a length in 4 bytes and so many bytes each. table.rs has the same. */
struct scan_end {
    uint64_t block;
    uint64_t at;      /* offset in the block of a record that is wrong */
    uint64_t says;    /* the length that it says, or what scan_fault says */
    uint32_t records; /* read in the block */
    uint32_t rows;
    uint32_t status;
    uint32_t reserved;
};

/* Space for rows that are not in the reply yet, and the most that a row may have, in bytes. */
#define SCAN_SPACE 32768
#define SCAN_LONGEST 16384

struct scan_out {
    size_t row;  /* where the row begins that is being put */
    size_t used;
    uint8_t bytes[SCAN_SPACE];
};

/* Notes in the end of a reply what is wrong with the table, if anything is. */
static inline void scan_check(const struct scan_table *table, struct scan_end *end)
{
    uint64_t fault = scan_fault(table);

    if (fault != UINT64_MAX) {
        end->status = SCAN_FAULT;
        end->says = fault;
    }
}

/* Appends bytes to the row. */
static inline void scan_put(struct scan_out *out, const void *bytes, size_t len)
{
    /* A row that is too long ends the scan. Its length precedes it. */
    if (len > SCAN_LONGEST || out->used - out->row + len > SCAN_LONGEST + sizeof(uint32_t)) {
        out->used = SCAN_SPACE + 1;
        return;
    }
    if (out->used > SCAN_SPACE)
        return;
    if (out->used + len > SCAN_SPACE) {
        farjump_reply(out->bytes, out->row);
        memmove(out->bytes, out->bytes + out->row, out->used - out->row);
        out->used -= out->row;
        out->row = 0;
    }
    memcpy(out->bytes + out->used, bytes, len);
    out->used += len;
}

typedef int scan_row(const uint8_t *record, size_t len, const void *args, size_t args_len, struct scan_out *out);

/* Reads the block that the call names, and replies the rows. A block begins with the number of its bytes that are used, these 8
 * included, and that of its records. */
static inline __attribute__((always_inline)) void scan_run(const void *payload, size_t payload_size,
                                                           const struct scan_table *table, scan_row *row)
{
    struct scan_end end = {0, 0, 0, 0, 0, SCAN_NO_BLOCK, 0};
    struct scan_out out;
    const uint8_t *block, *args = (const uint8_t *)payload + sizeof end.block;
    uint32_t head[2];
    size_t at = sizeof head, used, args_len;

    out.row = out.used = 0;
    if (payload_size < sizeof end.block)
        goto reply;
    args_len = payload_size - sizeof end.block;
    memcpy(&end.block, payload, sizeof end.block);
    block = scan_block(table, end.block);
    if (!block)
        goto faults;
    memcpy(head, block, sizeof head);
    SCAN_COPIED(head[0]);
    used = head[0];
    end.status = SCAN_READ;
    if (used < at || used > table->block_len) {
        end.status = SCAN_BAD_RECORD;
        end.says = used;
        at = 0;
    }
    while (end.status == SCAN_READ && at < used) {
        size_t len = table->width, start = at;
        if (!len) {
            uint32_t own = 0;
            if (used - at >= sizeof own)
                memcpy(&own, block + at, sizeof own);
            SCAN_COPIED(own);
            len = own;
            start += sizeof own;
        }
        if (start > used || len > used - start) {
            end.status = SCAN_BAD_RECORD;
            end.says = len;
            break;
        }
        end.records++;
        out.row = out.used;
        {
            uint32_t none = 0;
            scan_put(&out, &none, sizeof none);
        }
        if (row(block + start, len, args, args_len, &out)) {
            uint32_t put;
            if (out.used > SCAN_SPACE) {
                end.status = SCAN_LONG_ROW;
                break;
            }
            put = (uint32_t)(out.used - out.row - sizeof put);
            memcpy(out.bytes + out.row, &put, sizeof put);
            end.rows++;
        } else {
            out.used = out.row;
        }
        at = start + len;
    }
    end.at = at;
faults:
    scan_check(table, &end);
reply:
    if (end.status == SCAN_READ)
        farjump_reply(out.bytes, out.used);
    farjump_reply(&end, sizeof end);
}

#define SCAN(name)                                                                                                    \
    FARJUMP_COPY_ARGS(name)                                                                                           \
    FARJUMP_IFUNC void name##_main(void *payload, size_t payload_size, void *target_args)                             \
    {                                                                                                                 \
        scan_run(payload, payload_size, target_args, name##_row);                                                     \
    }

#endif
