/* Replies the process id, by the process's own getpid. */
#include <farjump_ifunc.h>
#include <unistd.h>

FARJUMP_COPY_ARGS(identity)

FARJUMP_IFUNC void identity_main(void *payload, size_t payload_size, void *target_args)
{
    uint32_t pid = (uint32_t)getpid();

    (void)payload;
    (void)payload_size;
    (void)target_args;
    farjump_reply(&pid, sizeof pid);
}
