/* Reads PCM from WAV files: the chunks of a RIFF form, one after the other ("Multimedia Programming Interface
 * and Data Specifications 1.0"; for WAVE_FORMAT_EXTENSIBLE "Multiple Channel Audio Data and WAVE Files"). */
#include "wav.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST (1u << 30) /* length of samples in bytes: longer ones do not fit a database row */

#define CHUNK_HEAD 8
#define FORMAT_SIZE 16     /* of the chunk `fmt `, at least */
#define EXTENSIBLE_SIZE 40 /* of an extensible one */
#define FORMAT_PCM 1
#define FORMAT_EXTENSIBLE 0xfffe
#define SUBFORMAT 24 /* offset of the actual format in an extensible one */

static const uint8_t subformat_pcm[16] = { 1, 0, 0, 0, 0, 0, 16, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71 };

/* A file that is read from beginning to end. */
struct reader {
    FILE *file;
    const char *path;
    char *error;
    size_t error_size;
};

/* Writes a sentence about the fault in the file. Returns -1. */
__attribute__((format(printf, 2, 3))) static int fail(const struct reader *reader, const char *text, ...)
{
    int len = snprintf(reader->error, reader->error_size, "%s: ", reader->path);
    va_list values;

    va_start(values, text);
    if (len >= 0 && (size_t)len < reader->error_size)
        vsnprintf(reader->error + len, reader->error_size - (size_t)len, text, values);
    va_end(values);
    return -1;
}

static uint32_t u16(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

static uint32_t u32(const uint8_t *at)
{
    return u16(at) | u16(at + 2) << 16;
}

static int is(const uint8_t *at, const char *word)
{
    return memcmp(at, word, 4) == 0;
}

/* Reads the next `size` bytes of the file. */
static int take(const struct reader *reader, void *bytes, size_t size)
{
    if (fread(bytes, 1, size, reader->file) == size)
        return 0;
    if (ferror(reader->file))
        return fail(reader, "%s", strerror(errno));
    return fail(reader, "the file is cut off: it ends before its chunks do");
}

static int skip(const struct reader *reader, uint32_t size)
{
    uint8_t passed[4096];

    while (size != 0) {
        uint32_t part = size < sizeof passed ? size : (uint32_t)sizeof passed;
        if (take(reader, passed, part) != 0)
            return -1;
        size -= part;
    }
    return 0;
}

static int read_format(const struct reader *reader, uint32_t size, struct recording_info *info)
{
    uint8_t format[EXTENSIBLE_SIZE] = { 0 };
    uint32_t known = size < sizeof format ? size : (uint32_t)sizeof format, tag;

    if (size < FORMAT_SIZE)
        return fail(reader, "its format has %u bytes, and needs %d", size, FORMAT_SIZE);
    if (info->channels != 0)
        return fail(reader, "it has two formats");
    if (take(reader, format, known) != 0 || skip(reader, size - known) != 0)
        return -1;
    tag = u16(format);
    if (tag == FORMAT_EXTENSIBLE && size >= EXTENSIBLE_SIZE && memcmp(format + SUBFORMAT, subformat_pcm, 16) == 0)
        tag = FORMAT_PCM;
    if (tag != FORMAT_PCM)
        return fail(reader, "its samples are in format 0x%x: only PCM is read", tag);
    if (u16(format + 2) != 1 && u16(format + 2) != 2)
        return fail(reader, "it has %u channels: only 1 and 2 are read", u16(format + 2));
    if (u16(format + 14) != 8 && u16(format + 14) != 16)
        return fail(reader, "its samples have %u bits: only 8 and 16 are read", u16(format + 14));
    info->channels = (uint16_t)u16(format + 2);
    info->bits = (uint16_t)u16(format + 14);
    info->rate = u32(format + 4);
    if (info->rate == 0)
        return fail(reader, "its rate is 0");
    if (u16(format + 12) != info->channels * info->bits / 8u)
        return fail(reader, "it says that %u bytes are one sample of each channel, which are %u", u16(format + 12),
                    info->channels * info->bits / 8u);
    return 0;
}

static int read_samples(const struct reader *reader, uint32_t size, struct recording *recording)
{
    struct recording_info *info = &recording->info;
    uint32_t together = info->channels * info->bits / 8u;

    if (info->channels == 0)
        return fail(reader, "its samples come before their format");
    if (recording->pcm != NULL)
        return fail(reader, "it has samples in two places");
    if (size == 0 || size % together != 0)
        return fail(reader, "it has %u bytes of samples, and %u are one sample of each channel", size, together);
    if (size > LARGEST)
        return fail(reader, "it has %u bytes of samples, and %u are read at most", size, LARGEST);
    info->length = size / together;
    recording->pcm = malloc(size);
    if (recording->pcm == NULL)
        return fail(reader, "there is no memory for its %u bytes of samples", size);
    return take(reader, recording->pcm, size);
}

/* Bytes behind the form are not part of it, and are not read. */
static int read_form(const struct reader *reader, struct recording *recording)
{
    uint8_t head[12];
    uint32_t left;

    if (take(reader, head, sizeof head) != 0)
        return -1;
    if (!is(head, "RIFF") || !is(head + 8, "WAVE") || u32(head + 4) < 4)
        return fail(reader, "this is no WAV file");
    for (left = u32(head + 4) - 4; left != 0;) {
        uint32_t size;
        int failed;

        if (left < CHUNK_HEAD)
            return fail(reader, "it ends in the middle of a chunk's head");
        if (take(reader, head, CHUNK_HEAD) != 0)
            return -1;
        left -= CHUNK_HEAD;
        size = u32(head + 4);
        if (size > left)
            return fail(reader, "the chunk `%.4s` is said to have %u bytes, and %u are left", (const char *)head, size,
                        left);
        left -= size;
        if (is(head, "fmt "))
            failed = read_format(reader, size, &recording->info);
        else if (is(head, "data"))
            failed = read_samples(reader, size, recording);
        else
            failed = skip(reader, size);
        if (failed != 0)
            return -1;
        /* Chunks begin at even offsets. Many programs leave out the padding behind the last one. */
        if (size % 2 != 0 && left != 0) {
            if (skip(reader, 1) != 0)
                return -1;
            left--;
        }
    }
    if (recording->pcm == NULL)
        return fail(reader, "it has no samples");
    return 0;
}

static int name(const struct reader *reader, struct recording_info *info)
{
    const char *slash = strrchr(reader->path, '/'), *begin = slash != NULL ? slash + 1 : reader->path;
    size_t len = strlen(begin);

    if (len > 4 && strcmp(begin + len - 4, ".wav") == 0)
        len -= 4;
    if (len >= sizeof info->name)
        return fail(reader, "its name is longer than the %zu bytes that a recording's may have", sizeof info->name - 1);
    memcpy(info->name, begin, len);
    return 0;
}

int wav_read(const char *path, struct recording *recording, char *error, size_t error_size)
{
    struct reader reader = { fopen(path, "rb"), path, error, error_size };
    int failed;

    memset(recording, 0, sizeof *recording);
    if (reader.file == NULL)
        return fail(&reader, "%s", strerror(errno));
    failed = name(&reader, &recording->info) != 0 || read_form(&reader, recording) != 0;
    fclose(reader.file);
    if (failed) {
        free(recording->pcm);
        recording->pcm = NULL;
        return -1;
    }
    return 0;
}
