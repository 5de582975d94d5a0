/* missing - needs a function that no target of the suite offers. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(missing)

extern void conformance_offers_no_such_function(void);

FARJUMP_IFUNC void missing_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload;
    (void)payload_size;
    (void)target_args;
    conformance_offers_no_such_function();
}
