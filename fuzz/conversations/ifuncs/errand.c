/* Does the first of its steps, and sends itself on with the rest. The payload is its source's tag, its own number, and the
 * steps, each a byte:
 *
 *     w h  has the target's `fuzz_errand` do this step
 *     n    does nothing
 *     .    has `fuzz_errand` do it, and sends itself on with the same steps, for ever
 *     *    sends itself on twice: with the steps before the first `/`, and with those behind it
 *     /    ends the steps
 *     > ?  before a step: this and all later steps run at the destination `next`, or `asks`
 *
 * Where no step is left it replies `done`. */
#include <farjump_ifunc.h>

extern uint32_t fuzz_errand(uint32_t tag, uint32_t number, uint32_t step);

FARJUMP_COPY_ARGS(errand)

struct errand {
    uint32_t tag, number;
    char steps[64];
};

static void send_on(struct errand *errand, size_t len)
{
    size_t size = offsetof(struct errand, steps) + len;

    if (len == 0 || errand->steps[0] == '/')
        farjump_reply("done", 4);
    else if (errand->steps[0] == '>' || errand->steps[0] == '?') {
        const char *name = errand->steps[0] == '>' ? "next" : "asks";
        for (size_t at = 1; at < len; at++)
            errand->steps[at - 1] = errand->steps[at];
        farjump_forward(name, 4, errand, size - 1);
    } else
        farjump_again(errand, size);
}

FARJUMP_IFUNC void errand_main(void *payload, size_t payload_size, void *target_args)
{
    const struct errand *came = payload;
    struct errand next;
    size_t len, split;

    (void)target_args;
    if (payload_size <= offsetof(struct errand, steps) || payload_size > sizeof next)
        return;
    len = payload_size - offsetof(struct errand, steps);
    next.tag = came->tag;
    next.number = came->number;
    switch (came->steps[0]) {
    case '.':
        fuzz_errand(came->tag, came->number, '.');
        farjump_again(payload, payload_size);
        return;
    case '*':
        for (split = 1; split < len && came->steps[split] != '/'; split++)
            ;
        __builtin_memcpy(next.steps, came->steps + 1, split - 1);
        send_on(&next, split - 1);
        if (split < len) {
            __builtin_memcpy(next.steps, came->steps + split + 1, len - split - 1);
            send_on(&next, len - split - 1);
        }
        return;
    case 'w':
    case 'h':
        fuzz_errand(came->tag, came->number, (unsigned char)came->steps[0]);
        break;
    default:
        break;
    }
    __builtin_memcpy(next.steps, came->steps + 1, len - 1);
    send_on(&next, len - 1);
}
