/* Runs the sample `codec` on payloads from standard input, each in memory of exactly its length, for a
 * compiler that watches every access. A payload is a uint64_t, its length, and its bytes; the answer on
 * standard output is an int64_t, the length of the reply or -1 for a panic, and the reply. The reply is
 * compressed and decompressed again. */
#include "../../../ifuncs/samples/c/codec.c"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static jmp_buf way_out;
static char *reply;
static size_t reply_len;

int farjump_reply(const void *bytes, size_t len)
{
    reply = realloc(reply, reply_len + len + 1);
    memcpy(reply + reply_len, bytes, len);
    reply_len += len;
    return 0;
}

void farjump_panic(const char *message, size_t len)
{
    (void)message, (void)len;
    longjmp(way_out, 1);
}

/* Decompresses; nonzero if that ended in a panic. */
static int run(void *payload, size_t len)
{
    reply_len = 0;
    if (setjmp(way_out) != 0)
        return -1;
    codec_main(payload, len, NULL);
    return 0;
}

/* Compresses the reply, from memory of its length, and decompresses it. Returns nonzero if they differ. */
static int again(void)
{
    size_t len = reply_len, size = codec_payload_get_max_size(reply, len);
    void *text = malloc(len), *payload = malloc(size);
    int differs;

    memcpy(text, reply, len);
    differs = codec_payload_init_shrink(payload, &size, text, len) != 0 || run(payload, size) != 0
              || reply_len != len || memcmp(reply, text, len) != 0;
    free(text);
    free(payload);
    return differs;
}

int main(void)
{
    uint64_t len;

    alarm(120); /* a decoder that does not end is ended */
    reply = malloc(1);
    while (fread(&len, sizeof len, 1, stdin) == 1) {
        uint8_t *payload = malloc(len);
        int64_t answer;
        if (fread(payload, 1, len, stdin) != len)
            return 1;
        answer = run(payload, len) == 0 ? (int64_t)reply_len : -1;
        fwrite(&answer, sizeof answer, 1, stdout);
        if (answer >= 0) {
            fwrite(reply, 1, reply_len, stdout);
            if (again() != 0)
                return 2;
        }
        free(payload);
    }
    free(reply);
    return 0;
}
