/* Has payloads aligned to pages. Replies the address of its payload, a uint64_t, and the payload. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(mirror)
FARJUMP_PAYLOAD_ALIGN(mirror, 4096);

FARJUMP_IFUNC void mirror_main(void *payload, size_t payload_size, void *target_args)
{
    uint64_t address = (uintptr_t)payload;

    (void)target_args;
    farjump_reply(&address, sizeof address);
    farjump_reply(payload, payload_size);
}
