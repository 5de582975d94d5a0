/* Needs a function and a variable that some targets offer. */
#include <farjump_ifunc.h>

extern uint64_t fuzz_twice(uint64_t value);
extern uint64_t fuzz_version;

FARJUMP_COPY_ARGS(lookup)

FARJUMP_IFUNC void lookup_main(void *payload, size_t payload_size, void *target_args)
{
    uint64_t found = fuzz_twice(payload_size) + fuzz_version;

    (void)payload;
    (void)target_args;
    farjump_reply(&found, sizeof found);
}
