/* stamp - makes code from a template. The payload is a factor (8 bytes), the names of places with `;` behind each, `@` for
 * this target, a zero byte, and the image of `stencil`. The code with the factor gets a payload of three bytes at each
 * place. Replies the digit of each return value that is not 0. With the factor 0 it injects code that does not exist. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(stamp)

static const uint64_t template = 0x5354454e43494c21;

static int check(int code)
{
    char digit = (char)('0' - code);

    if (code != 0)
        farjump_reply(&digit, 1);
    return code;
}

FARJUMP_IFUNC void stamp_main(void *payload, size_t payload_size, void *target_args)
{
    char *code = farjump_private_copy(payload, payload_size, 8), *end = code + payload_size;
    const char *name = code + 8, *at = name, *places;
    uint64_t factor, found;
    uint8_t id[16] = {0};

    (void)target_args;
    __builtin_memcpy(&factor, code, 8);
    for (places = name; *at; at++)
        ;
    code = (char *)at + 1;
    for (char *word = code; word + 8 <= end; word++) {
        __builtin_memcpy(&found, word, 8);
        if (found == template)
            __builtin_memcpy(word, &factor, 8);
    }
    if (factor != 0 && check(farjump_make(code, (size_t)(end - code), id)) != 0)
        return;
    for (at = name = places; *at; at++) {
        if (*at != ';')
            continue;
        check(*name == '@' ? farjump_inject(id, 0, 0, "abc", 3)
                           : farjump_inject(id, name, (size_t)(at - name), "abc", 3));
        name = at + 1;
    }
}
