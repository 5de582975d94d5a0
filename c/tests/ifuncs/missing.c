/* Calls a function that no target offers. */
#include <farjump_ifunc.h>

void no_such_function(void);

FARJUMP_COPY_ARGS(missing)

FARJUMP_IFUNC void missing_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload, (void)payload_size, (void)target_args;
    no_such_function();
}
