/* Asks for payloads at whole pages, and replies how far its payload is from one: 0. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(aligned)
FARJUMP_PAYLOAD_ALIGN(aligned, 4096);

FARJUMP_IFUNC void aligned_main(void *payload, size_t payload_size, void *target_args)
{
    uint64_t off = (uintptr_t)payload % 4096;

    (void)payload_size;
    (void)target_args;
    farjump_reply(&off, sizeof off);
}
