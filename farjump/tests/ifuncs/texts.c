/* Calls functions that compilers call on their own, besides memcpy and the like. The payload is twice a text with a zero. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(texts)

/* Other names, as a compiler would replace calls by the usual names. */
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
