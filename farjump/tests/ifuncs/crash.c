/* Crashes its target by an invalid instruction. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(crash)

FARJUMP_IFUNC void crash_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload;
    (void)payload_size;
    (void)target_args;
    __builtin_trap();
}
