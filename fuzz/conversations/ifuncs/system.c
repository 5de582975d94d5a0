/* Needs a symbol of the process's own, and a weak one that nothing has. */
#include <farjump_ifunc.h>
#include <unistd.h>

extern void fuzz_nowhere(void) __attribute__((weak));

FARJUMP_COPY_ARGS(system)

FARJUMP_IFUNC void system_main(void *payload, size_t payload_size, void *target_args)
{
    uint64_t is_there = getppid() > 0 && fuzz_nowhere == 0;

    (void)payload;
    (void)payload_size;
    (void)target_args;
    farjump_reply(&is_there, sizeof is_there);
}
