/* later - sends itself on to this server as often as the first byte of its payload says, a digit, or for ever if that is `x`. Then
 * it sets the key that follows to `later`, and replies the letter of what that returned. */
#include <farjump_ifunc.h>
#include <farjump_kv.h>

FARJUMP_COPY_ARGS(later)

FARJUMP_IFUNC void later_main(void *payload, size_t size, void *target_args)
{
    char next[256], letter;
    const char *key = next + 1;

    if (size < 2 || size > sizeof next)
        farjump_panic("no key", 6);
    __builtin_memcpy(next, payload, size);
    if (next[0] != '0') {
        if (next[0] != 'x')
            next[0]--;
        if (farjump_again(next, size) != 0)
            farjump_panic("not again", 9);
        return;
    }
    switch (kv_set(target_args, key, size - 1, "later", 5)) {
    case KV_OK: letter = 'o'; break;
    case KV_DENIED: letter = 'd'; break;
    case KV_READ_ONLY: letter = 'r'; break;
    default: letter = '?';
    }
    farjump_reply(&letter, 1);
}
