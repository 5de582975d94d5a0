/* stencil - a template for code: replies FACTOR, which `stamp` replaces, times the length of the payload. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(stencil)

/* Not known when it is compiled, so it stays in one place of the image. */
static const volatile uint64_t factor = 0x5354454e43494c21;

FARJUMP_IFUNC void stencil_main(void *payload, size_t payload_size, void *target_args)
{
    uint64_t product = factor * payload_size;

    (void)payload;
    (void)target_args;
    farjump_reply(&product, sizeof product);
}
