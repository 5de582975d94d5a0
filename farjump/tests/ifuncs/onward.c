/* onward - the payload is a list of steps. Each target removes the first one and does it:
 *
 *     > NAME ;    forwards itself to the destination of that name with the rest; if refused, replies the code as a digit
 *     ! ;         replies, tries an unknown destination, forwards itself to `next` twice, replies, and notes in the second
 *                 word at target_args whether the return values were those of the header
 *     + ;         increments a counter at target_args, a word
 *     # ;         replies 64 KiB of each byte value from 'a' to 'p'
 *     ? ;         forwards itself to `next`, and then panics
 *     else        replies the rest */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(onward)

static const char gone[] = "on its way, it fell";

static void large(void)
{
    char bytes[1024];

    for (char letter = 'a'; letter <= 'p'; letter++) {
        __builtin_memset(bytes, letter, sizeof bytes);
        for (int i = 0; i < 64; i++)
            farjump_reply(bytes, sizeof bytes);
    }
}

FARJUMP_IFUNC void onward_main(void *payload, size_t payload_size, void *target_args)
{
    const char *at = payload, *end = at + payload_size, *name;
    int codes[3];
    char digit;

    for (; at < end && *at == '+'; at += 2)
        ++*(uint64_t *)target_args;
    if (at == end)
        return;
    name = at + 1;
    switch (*at) {
    case '>':
        while (at < end && *at != ';')
            at++;
        codes[0] = farjump_forward(name, (size_t)(at - name), at + 1, (size_t)(end - at) - 1);
        digit = (char)('0' - codes[0]);
        if (codes[0] != 0)
            farjump_reply(&digit, 1);
        return;
    case '!':
        farjump_reply("own", 3);
        codes[0] = farjump_forward("nobody", 6, name, 0);
        codes[1] = farjump_forward("next", 4, at + 2, (size_t)(end - at) - 2);
        codes[2] = farjump_forward("next", 4, at + 2, (size_t)(end - at) - 2);
        ((uint64_t *)target_args)[1] = (uint64_t)(codes[0] == FARJUMP_UNKNOWN_PEER && codes[1] == 0
                                                  && codes[2] == 0 && farjump_reply(", ", 2) == 0);
        return;
    case '#':
        large();
        return;
    case '?':
        farjump_forward("next", 4, at + 2, (size_t)(end - at) - 2);
        farjump_panic(gone, sizeof gone - 1);
    default:
        farjump_reply(at, (size_t)(end - at));
    }
}
