/* Has no statics, so that it can run in place. Replies the payload's size. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(pure)

FARJUMP_IFUNC void pure_main(void *payload, size_t payload_size, void *target_args)
{
    uint64_t size = payload_size;

    (void)payload;
    (void)target_args;
    farjump_reply(&size, sizeof size);
}
