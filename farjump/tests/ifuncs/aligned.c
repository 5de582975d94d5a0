/* Has payloads aligned to pages, and replies the address of its payload: a uint64_t. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(aligned)
FARJUMP_PAYLOAD_ALIGN(aligned, 4096);

FARJUMP_IFUNC void aligned_main(void *payload, size_t payload_size, void *target_args)
{
    uint64_t address = (uintptr_t)payload;

    (void)payload_size;
    (void)target_args;
    farjump_reply(&address, sizeof address);
}
