/* work - counts to the uint64_t in the payload: keeps the server busy for a time that the caller has measured. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(work)

FARJUMP_IFUNC void work_main(void *payload, size_t payload_size, void *target_args)
{
    static const char bad[] = "the payload is no count: give 8 bytes";
    (void)target_args;

    if (payload_size != sizeof(uint64_t))
        farjump_panic(bad, sizeof bad - 1);
    /* Read once: the source may write to it meanwhile. */
    uint64_t count = *(volatile uint64_t *)payload;
    for (volatile uint64_t i = 0; i < count; i++)
        ;
}
