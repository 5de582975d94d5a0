/* lending - calls the target's function `lend` twice, unless the payload is `n`. Then it replies, or panics if the payload
 * is `p`. */
#include <farjump_ifunc.h>

extern uint32_t lend(void);

FARJUMP_COPY_ARGS(lending)

FARJUMP_IFUNC void lending_main(void *payload, size_t payload_size, void *target_args)
{
    char letter = payload_size == 1 ? *(const char *)payload : 0;
    (void)target_args;
    if (letter != 'n' && lend() + lend() != 2)
        farjump_panic("nothing is done at the end", 26);
    if (letter == 'p')
        farjump_panic("lent", 4);
    farjump_reply("lent", 4);
}
