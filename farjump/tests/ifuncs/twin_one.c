/* One of two ifuncs named twin. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(twin)

FARJUMP_IFUNC void twin_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload;
    (void)payload_size;
    (void)target_args;
    farjump_reply("one", 3);
}
