/* codec - a decompressor for a target that has none. The source compresses its arguments, and the target
 * replies the original. The payload is a uint64_t, the length of the arguments, and an LZ4 block
 * (lz4_Block_format.md of https://github.com/lz4/lz4). target_args is not used.
 *
 * The decoder trusts nothing in a block. It reads each byte of control once, and checks it against the rest
 * of the block, the stated length, and the bytes decoded so far. */
#include <farjump_ifunc.h>

#define HEADER sizeof(uint64_t) /* the length of the arguments */
#define MIN_MATCH 4             /* a shorter one is not worth its offset */
#define WINDOW 65536            /* no match begins farther back: its offset has 16 bits */
#define LONG 15                 /* a length in half a token that continues in the next bytes */

/* ---- At the source ---- */

#define LAST_LITERALS 5 /* the format: at least so many bytes at the end are no match */
#define LAST_MATCH 12   /* the format: no match begins in so many bytes at the end */
#define HASH_BITS 12
#define MAX_ARGS 0x7e000000 /* as in LZ4: positions have 32 bits */

FARJUMP_IFUNC size_t codec_payload_get_max_size(void *source_args, size_t source_args_size)
{
    (void)source_args;
    /* Incompressible arguments are one sequence: a token, its length, and the bytes. */
    return HEADER + source_args_size + source_args_size / 255 + 16;
}

static uint32_t load(const uint8_t *at)
{
    uint32_t word;
    __builtin_memcpy(&word, at, sizeof word);
    return word;
}

/* Writes the part of a length that does not fit into half a token. */
static uint8_t *put_length(uint8_t *to, size_t len)
{
    if (len < LONG)
        return to;
    for (len -= LONG; len >= 255; len -= 255)
        *to++ = 255;
    *to++ = (uint8_t)len;
    return to;
}

static uint8_t *put_literals(uint8_t *to, const uint8_t *literals, size_t len, size_t match)
{
    *to++ = (uint8_t)((len < LONG ? len : LONG) << 4 | (match < LONG ? match : LONG));
    to = put_length(to, len);
    __builtin_memcpy(to, literals, len);
    return to + len;
}

/* Compresses greedily: takes the last position with four bytes of this hash, if they are equal and near enough. */
static uint8_t *compress(uint8_t *to, const uint8_t *from, size_t len)
{
    uint32_t seen[1 << HASH_BITS] = { 0 };
    size_t at = 1, literals = 0; /* everything before `literals` is written; 0 stands in `seen` from the start */

    while (at + LAST_MATCH <= len) {
        uint32_t word = load(from + at), *entry = &seen[word * 2654435761u >> (32 - HASH_BITS)];
        size_t before = *entry, match = MIN_MATCH;

        *entry = (uint32_t)at;
        if (at - before >= WINDOW || load(from + before) != word) {
            at += 1 + ((at - literals) >> 6); /* steps grow with the distance from the last match */
            continue;
        }
        while (at + match < len - LAST_LITERALS && from[before + match] == from[at + match])
            match++;
        to = put_literals(to, from + literals, at - literals, match - MIN_MATCH);
        *to++ = (uint8_t)(at - before);
        *to++ = (uint8_t)((at - before) >> 8);
        to = put_length(to, match - MIN_MATCH);
        at += match;
        literals = at;
    }
    return put_literals(to, from + literals, len - literals, 0);
}

FARJUMP_IFUNC int codec_payload_init_shrink(void *payload, size_t *payload_size, void *source_args,
                                            size_t source_args_size)
{
    uint64_t len = source_args_size;
    uint8_t *block = (uint8_t *)payload + HEADER;

    if (len > MAX_ARGS || *payload_size < codec_payload_get_max_size(source_args, source_args_size))
        return -1;
    __builtin_memcpy(payload, &len, HEADER);
    *payload_size = (size_t)(compress(block, source_args, source_args_size) - block) + HEADER;
    return 0;
}

/* ---- At the target ---- */

#define FAIL(text) farjump_panic(text, sizeof text - 1)

/* The unread bytes. They are volatile, so that each is read once: another process can write to them
 * meanwhile. */
struct input {
    const volatile uint8_t *at, *end;
};

/* The decoded bytes. Only the last WINDOW are kept; each full window is sent. */
struct output {
    uint64_t made, len; /* bytes so far, and in all */
    uint8_t window[WINDOW];
};

static uint8_t next(struct input *in)
{
    if (in->at == in->end)
        FAIL("the block ends in the middle of a sequence");
    return *in->at++;
}

static uint64_t next_length(struct input *in, unsigned half_token)
{
    uint64_t len = half_token;
    uint8_t more;

    if (half_token == LONG)
        do {
            more = next(in);
            len += more;
        } while (more == 255);
    return len;
}

/* Appends bytes from memory or, if `from` is NULL, from `offset` back in the window; these may overlap the
 * bytes being appended. Returns nonzero if the reply gets too long. That ends the call. */
static int append(struct output *out, const volatile uint8_t *from, size_t offset, uint64_t len)
{
    if (len > out->len - out->made)
        FAIL("the block makes more bytes than it says");
    while (len != 0) {
        size_t at = out->made % WINDOW, back = (at - offset) % WINDOW, run = WINDOW - at;
        if (from == NULL && run > WINDOW - back)
            run = WINDOW - back;
        if (run > len)
            run = len;
        if (from == NULL) {
            for (size_t i = 0; i < run; i++)
                out->window[at + i] = out->window[back + i];
        } else {
            __builtin_memcpy(out->window + at, (const uint8_t *)from, run);
            from += run;
        }
        out->made += run;
        len -= run;
        if (out->made % WINDOW == 0 && farjump_reply(out->window, WINDOW) != 0)
            return -1;
    }
    return 0;
}

FARJUMP_IFUNC void codec_main(void *payload, size_t payload_size, void *target_args)
{
    struct input in = { payload, (uint8_t *)payload + payload_size };
    struct output out; /* on the stack: statics would stay in the target's memory */

    (void)target_args;
    if (payload_size < HEADER)
        FAIL("the payload is shorter than the 8 bytes of a length");
    __builtin_memcpy(&out.len, payload, HEADER);
    in.at += HEADER;
    out.made = 0;
    for (;;) {
        uint8_t token = next(&in);
        uint64_t len = next_length(&in, token >> 4);
        size_t offset;

        if (len > (size_t)(in.end - in.at))
            FAIL("the block ends in the middle of its literals");
        if (append(&out, in.at, 0, len) != 0)
            return;
        in.at += len;
        if (in.at == in.end)
            break;
        offset = next(&in);
        offset |= (size_t)next(&in) << 8;
        if (offset == 0 || offset > out.made)
            FAIL("the block repeats bytes from before its beginning");
        if (append(&out, NULL, offset, next_length(&in, token & LONG) + MIN_MATCH) != 0)
            return;
    }
    if (out.made != out.len)
        FAIL("the block makes fewer bytes than it says");
    farjump_reply(out.window, out.made % WINDOW);
}
