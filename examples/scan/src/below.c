/* below - the key and the value of each record whose key is below a limit. A record begins with both, 8 bytes each. */
#include "scan.h"

static int below_row(const uint8_t *record, size_t len, const void *args, size_t args_len, struct scan_out *out)
{
    uint64_t key, limit;

    if (len < 2 * sizeof key || args_len < sizeof limit)
        return 0;
    memcpy(&key, record, sizeof key);
    memcpy(&limit, args, sizeof limit);
    if (key >= limit)
        return 0;
    scan_put(out, record, 2 * sizeof key);
    return 1;
}

SCAN(below)
