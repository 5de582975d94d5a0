/* Commands for the payload routines of demanding and shrinking: their source_args. */
#include <stdint.h>

struct wish {
    uint64_t max;     /* result of NAME_payload_get_max_size */
    uint64_t written; /* bytes that NAME_payload_init writes */
    uint64_t used;    /* bytes that it reports as used: shrinking only */
    int64_t result;   /* its return value */
};
