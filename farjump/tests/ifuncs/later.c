/* later - does the first step of its payload, and runs again with the rest. Without a rest it replies `done`.
 *
 *     l   calls the target's function `lend`
 *     n   does nothing
 *     =   replies the rest of its payload, and does not run again
 *     *   runs again twice, both times with its whole payload, without end
 *     .   runs again with its whole payload, without end
 *
 * It runs again on its own target. If `>` stands before the rest, it forwards itself to the destination `next` instead. */
#include <farjump_ifunc.h>

extern uint32_t lend(void);

FARJUMP_COPY_ARGS(later)

FARJUMP_IFUNC void later_main(void *payload, size_t payload_size, void *target_args)
{
    const char *steps = payload;
    (void)target_args;
    if (payload_size != 0 && (*steps == '*' || *steps == '.')) {
        farjump_again(payload, payload_size);
        if (*steps == '*')
            farjump_again(payload, payload_size);
        return;
    }
    if (payload_size != 0 && *steps == '=') {
        farjump_reply(steps + 1, payload_size - 1);
        return;
    }
    if (payload_size != 0 && *steps == 'l' && lend() != 1)
        farjump_panic("nothing was lent", 16);
    if (payload_size <= 1)
        farjump_reply("done", 4);
    else if (steps[1] == '>')
        farjump_forward("next", 4, steps + 2, payload_size - 2);
    else
        farjump_again(steps + 1, payload_size - 1);
}
