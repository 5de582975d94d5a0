/* stencil - a template for code: replies `factor` times the length of the payload. `stamp` replaces `factor`. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(stencil)

/* The compiler cannot use its value, so it stays in one place of the image. */
static const volatile uint64_t factor = 0x5354454e43494c21;

FARJUMP_IFUNC void stencil_main(void *payload, size_t payload_size, void *target_args)
{
    uint64_t product = factor * payload_size;

    (void)payload;
    (void)target_args;
    farjump_reply(&product, sizeof product);
}
