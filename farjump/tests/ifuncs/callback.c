/* Passes a function of its own to the target's `each`, and to qsort. The payload is a letter, the place of the
 * panic:
 *
 *     e   inside a function that `each` calls
 *     q   inside a function that qsort calls
 *     d   inside a function that `each` calls, through functions of its own
 *     a   after both, from a function with their remains on its stack
 *     o   inside a function of its own, which is called by address
 *     -   nowhere */
#include <farjump_ifunc.h>
#include <stdlib.h>

FARJUMP_COPY_ARGS(callback)

extern void each(void (*act)(void *), void *with);

static void gives_up(void *with)
{
    if (*(const char *)with != '-')
        farjump_panic("no further", 10);
}

__attribute__((noinline)) static void goes_deeper(void *with, int depth)
{
    volatile char space[64];

    space[depth] = (char)depth;
    if (depth == 0)
        gives_up(with);
    else
        goes_deeper(with, depth - 1);
    space[0] = space[depth];
}

static void deeply(void *with)
{
    goes_deeper(with, 20);
}

static int compares(const void *a, const void *b)
{
    const char *letters[2] = {a, b};

    if (*letters[0] == 'q' || *letters[1] == 'q')
        farjump_panic("no further", 10);
    return *letters[0] - *letters[1];
}

__attribute__((noinline)) static void afterwards(void)
{
    volatile char space[8192];

    space[0] = 1;
    if (space[0] == 1)
        farjump_panic("no further", 10);
}

FARJUMP_IFUNC void callback_main(void *payload, size_t payload_size, void *target_args)
{
    static void (*volatile own)(void *) = gives_up;
    char letter = *(const char *)payload, nothing = '-', letters[4] = {'x', letter, 'c', 'b'};

    (void)payload_size;
    (void)target_args;
    each(gives_up, letter == 'e' ? &letter : &nothing);
    each(deeply, letter == 'd' ? &letter : &nothing);
    qsort(letters, sizeof letters, 1, compares);
    if (letter == 'a')
        afterwards();
    if (letter == 'o')
        own(&letter);
    farjump_reply("through", 7);
}
