/* spread - counts itself at target_args, replies one byte, and forwards itself as its payload says:
 *
 *     depth       generations that follow
 *     width       messages to each place
 *     reply       the byte
 *     last        action of a call without following generations: `!` panics, `~` replies 4000 bytes, anything else nothing;
 *                 with `n` no call counts itself
 *     places      names of destinations, each with `;` behind it; `@` is this target
 *
 * If a message is not accepted, it replies the digit of the return value. For a malformed payload it replies `?`. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(spread)

enum { DEPTH, WIDTH, REPLY, LAST, PLACES };

static const char gone[] = "on its way, it fell";

FARJUMP_IFUNC void spread_main(void *payload, size_t payload_size, void *target_args)
{
    char next[256], digit, many[4000];
    const char *at = payload, *end = at + payload_size, *name;

    if (payload_size > LAST && ((char *)payload)[LAST] != 'n')
        ++*(uint64_t *)target_args;
    if (payload_size < PLACES || payload_size > sizeof next) {
        farjump_reply("?", 1);
        return;
    }
    __builtin_memcpy(next, payload, payload_size);
    farjump_reply(&next[REPLY], 1);
    if (next[DEPTH] == 0) {
        if (next[LAST] == '!')
            farjump_panic(gone, sizeof gone - 1);
        if (next[LAST] == '~') {
            __builtin_memset(many, 'm', sizeof many);
            farjump_reply(many, sizeof many);
        }
        return;
    }
    next[DEPTH]--;
    for (name = at += PLACES; at < end; at++) {
        if (*at != ';')
            continue;
        for (int i = 0; i < (unsigned char)next[WIDTH]; i++) {
            int code = *name == '@' ? farjump_again(next, payload_size)
                                    : farjump_forward(name, (size_t)(at - name), next, payload_size);
            digit = (char)('0' - code);
            if (code != 0)
                farjump_reply(&digit, 1);
        }
        name = at + 1;
    }
}
