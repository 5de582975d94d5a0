/* Calls what compilers call on their own, beside memcpy and its like. The payload is a text, a zero byte, and the same again. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(texts)

/* By other names, as a compiler would put calls of its own in their place. */
size_t length_of(const char *text) __asm__("strlen");
int differ(const void *one, const void *other, size_t len) __asm__("bcmp");

FARJUMP_IFUNC void texts_main(void *payload, size_t payload_size, void *target_args)
{
    const char *text = payload;
    size_t half = payload_size / 2;
    uint64_t found[3] = {length_of(text), differ(text, text + half, half) != 0, differ(text, text + 1, half) != 0};
    (void)target_args;
    farjump_reply(found, sizeof found);
}
