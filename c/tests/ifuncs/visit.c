/* Calls the program back in both processes. Its payload routine calls a function in its arguments. At the target it
 * calls an export. */
#include <farjump_ifunc.h>

int visited(void);

FARJUMP_IFUNC size_t visit_payload_get_max_size(void *source_args, size_t source_args_size)
{
    (void)source_args, (void)source_args_size;
    return 0;
}

FARJUMP_IFUNC int visit_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size)
{
    int (*call)(void);
    (void)payload, (void)payload_size, (void)source_args_size;
    __builtin_memcpy(&call, source_args, sizeof call);
    return call();
}

FARJUMP_IFUNC void visit_main(void *payload, size_t payload_size, void *target_args)
{
    int status = visited();
    (void)payload, (void)payload_size, (void)target_args;
    farjump_reply(&status, sizeof status);
}
