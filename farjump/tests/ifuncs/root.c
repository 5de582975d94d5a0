/* Replies the cube root of a double, by cbrt of libm. */
#include <farjump_ifunc.h>
#include <math.h>

FARJUMP_COPY_ARGS(root)

FARJUMP_IFUNC void root_main(void *payload, size_t payload_size, void *target_args)
{
    double result = cbrt(*(double *)payload);

    (void)payload_size;
    (void)target_args;
    farjump_reply(&result, sizeof result);
}
