/* What the payload routines of demanding and shrinking are asked to do: their source_args. */
#include <stdint.h>

struct wish {
    uint64_t max;     /* what NAME_payload_get_max_size says */
    uint64_t written; /* how many bytes NAME_payload_init writes */
    uint64_t used;    /* how many it says that it used: shrinking only */
    int64_t result;   /* what it returns */
};
