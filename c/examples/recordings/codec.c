/* codec - adds a recording to a database that does not know the recording's format. The source compresses it,
 * without loss. The injected code decodes it, and inserts it by functions of SQLite's that the target
 * exports.
 *
 * The format is a struct recording_info, then bits, the highest bit of each byte first. Samples come in
 * blocks of 4096 of each channel; the last block may be shorter. A block has its channels one after the
 * other. Each channel of a block begins with the predictor's order (2 bits) and the parameter of the Rice
 * code (5 bits).
 *
 * A sample is predicted from the three before it in its channel; those before the first are 0. The
 * difference, with its sign in the lowest bit, is divided by 2 to the power of the parameter. The quotient is
 * written as that many ones and a zero, then the remainder in binary. Zeros fill the last byte. */
#include <farjump_ifunc.h>
#include <string.h>

#include "table.h"

#define BLOCK 4096
#define ORDERS 4
#define ORDER_BITS 2
#define PARAMETER_BITS 5

/* The last samples of a channel, the latest first. */
struct history {
    int32_t last[3];
};

/* Predicts a sample as 0, or by the constant, line or parabola through the samples before it. */
static int32_t predict(unsigned order, const struct history *history)
{
    const int32_t *last = history->last;

    switch (order) {
    case 0:
        return 0;
    case 1:
        return last[0];
    case 2:
        return 2 * last[0] - last[1];
    default:
        return 3 * last[0] - 3 * last[1] + last[2];
    }
}

static void remember(struct history *history, int32_t sample)
{
    history->last[2] = history->last[1];
    history->last[1] = history->last[0];
    history->last[0] = sample;
}

static uint32_t block_length(const struct recording_info *info, uint64_t start)
{
    return info->length - start < BLOCK ? (uint32_t)(info->length - start) : BLOCK;
}

/* ---- At the source ---- */

struct writer {
    uint8_t *next;
    uint32_t held; /* bits of an incomplete byte */
    unsigned count;
};

static void put_bit(struct writer *out, unsigned bit)
{
    out->held = out->held << 1 | bit;
    if (++out->count == 8) {
        *out->next++ = (uint8_t)out->held;
        out->count = 0;
    }
}

static void put(struct writer *out, uint32_t value, unsigned count)
{
    while (count != 0)
        put_bit(out, value >> --count & 1);
}

/* Returns the length of the code with this parameter, in bits. */
static uint64_t rice_bits(const uint32_t *values, uint32_t count, unsigned parameter)
{
    uint64_t bits = (uint64_t)count * (parameter + 1);

    for (uint32_t i = 0; i < count; i++)
        bits += values[i] >> parameter;
    return bits;
}

/* Encodes a channel of a block, by the predictor and the parameter that make it shortest. */
static void encode_channel(struct writer *out, const struct recording *recording, uint64_t start, unsigned channel,
                           struct history *history)
{
    const struct recording_info *info = &recording->info;
    uint32_t count = block_length(info, start), values[ORDERS][BLOCK];
    unsigned best_order = 0, best_parameter = 0;
    uint64_t best = UINT64_MAX;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t index = (start + i) * info->channels + channel;
        int32_t sample = recording_sample(info, recording->pcm, index);
        for (unsigned order = 0; order < ORDERS; order++) {
            int32_t off = sample - predict(order, history);
            values[order][i] = off < 0 ? ~((uint32_t)off << 1) : (uint32_t)off << 1;
        }
        remember(history, sample);
    }
    for (unsigned order = 0; order < ORDERS; order++)
        for (unsigned parameter = 0; parameter <= info->bits; parameter++) {
            uint64_t bits = rice_bits(values[order], count, parameter);
            if (bits < best) {
                best = bits;
                best_order = order;
                best_parameter = parameter;
            }
        }
    put(out, best_order, ORDER_BITS);
    put(out, best_parameter, PARAMETER_BITS);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t value = values[best_order][i];
        for (uint32_t ones = value >> best_parameter; ones != 0; ones--)
            put_bit(out, 1);
        put_bit(out, 0);
        put(out, value, best_parameter);
    }
}

/* Returns whether the arguments are a struct recording that can be encoded. */
static int is_recording(const void *source_args, size_t source_args_size)
{
    const struct recording_info *info = source_args;

    return source_args_size == sizeof(struct recording) && (info->channels == 1 || info->channels == 2)
           && (info->bits == 8 || info->bits == 16);
}

/* The worst case is a recording without prediction: each sample is its own value and a zero bit. */
FARJUMP_IFUNC size_t codec_payload_get_max_size(void *source_args, size_t source_args_size)
{
    const struct recording_info *info = source_args;
    uint64_t blocks, bits;

    if (!is_recording(source_args, source_args_size))
        return 0;
    blocks = ((uint64_t)info->length + BLOCK - 1) / BLOCK;
    bits = blocks * (ORDER_BITS + PARAMETER_BITS) + (uint64_t)info->length * (info->bits + 1u);
    return sizeof *info + (bits * info->channels + 7) / 8;
}

FARJUMP_IFUNC int codec_payload_init_shrink(void *payload, size_t *payload_size, void *source_args,
                                            size_t source_args_size)
{
    const struct recording *recording = source_args;
    struct history histories[2] = { { { 0 } } };
    struct writer out = { (uint8_t *)payload + sizeof recording->info, 0, 0 };

    if (!is_recording(source_args, source_args_size))
        return -1;
    __builtin_memcpy(payload, &recording->info, sizeof recording->info);
    for (uint64_t start = 0; start < recording->info.length; start += BLOCK)
        for (unsigned channel = 0; channel < recording->info.channels; channel++)
            encode_channel(&out, recording, start, channel, &histories[channel]);
    while (out.count != 0)
        put_bit(&out, 0);
    *payload_size = (size_t)(out.next - (uint8_t *)payload);
    return 0;
}

/* ---- At the target ---- */

#define DAMAGED "the compressed recording is damaged: "
#define WORST (1u << 20) /* above any difference: samples have 16 bits, and the weights add up to 8 */

/* The unread part. It is volatile, so that each byte is read once: another process can write to it meanwhile.
 * Past the end the reader returns zeros, so every code ends. */
struct reader {
    const volatile uint8_t *next, *end;
    uint64_t held; /* bits that were read and not taken, in the lowest places */
    unsigned count;
    int overrun; /* whether bits past the end were taken */
};

/* Takes the next bits, at most 16. */
static uint32_t take(struct reader *in, unsigned count)
{
    while (in->count < count) {
        uint8_t byte = 0;
        if (in->next != in->end)
            byte = *in->next++;
        else
            in->overrun = 1;
        in->held = in->held << 8 | byte;
        in->count += 8;
    }
    in->count -= count;
    return (uint32_t)(in->held >> in->count) & ((1u << count) - 1);
}

static void store(const struct recording_info *info, uint8_t *pcm, uint64_t index, int32_t sample)
{
    if (info->bits == 8) {
        pcm[index] = (uint8_t)(sample + 128);
    } else {
        pcm[2 * index] = (uint8_t)sample;
        pcm[2 * index + 1] = (uint8_t)(sample >> 8);
    }
}

/* Returns NULL, or the error. So does decode(). */
static const char *decode_channel(struct reader *in, const struct recording_info *info, uint8_t *pcm, uint64_t start,
                                  unsigned channel, struct history *history)
{
    uint32_t count = block_length(info, start);
    unsigned order = take(in, ORDER_BITS), parameter = take(in, PARAMETER_BITS);
    int32_t highest = (1 << (info->bits - 1)) - 1;

    if (parameter > info->bits)
        return DAMAGED "there is no such parameter of the Rice code";
    for (uint32_t i = 0; i < count; i++) {
        uint32_t ones = 0, value;
        int32_t sample;

        while (take(in, 1) != 0)
            if (++ones >= WORST >> parameter)
                return DAMAGED "a sample is too far from what was predicted";
        value = ones << parameter | take(in, parameter);
        sample = predict(order, history) + (int32_t)(value >> 1 ^ -(value & 1));
        if (sample > highest || sample < -highest - 1)
            return DAMAGED "a sample has too many bits";
        store(info, pcm, (start + i) * info->channels + channel, sample);
        remember(history, sample);
    }
    return NULL;
}

/* Allocates the samples by SQLite. The caller frees them, also after a failure. */
static const char *decode(struct reader *in, struct recording *recording)
{
    struct recording_info *info = &recording->info;
    struct history histories[2] = { { { 0 } } };
    const char *wrong = NULL;

    if ((size_t)(in->end - in->next) < sizeof *info)
        return DAMAGED "it is shorter than its head";
    /* Copied before it is checked. */
    __builtin_memcpy(info, (const void *)in->next, sizeof *info);
    in->next += sizeof *info;
    if ((info->channels != 1 && info->channels != 2) || (info->bits != 8 && info->bits != 16))
        return DAMAGED "its samples are none of 8 or 16 bits on 1 or 2 channels";
    if (info->name[0] == 0 || info->name[sizeof info->name - 1] != 0)
        return DAMAGED "it has no name";
    /* A sample takes at least one bit, so this bounds the allocation by the payload's length. */
    if (info->length == 0 || (uint64_t)info->length * info->channels > 8 * (uint64_t)(in->end - in->next))
        return DAMAGED "it has not the bits for the samples that it says it has";
    recording->pcm = sqlite3_malloc64(recording_size(info));
    if (recording->pcm == NULL)
        return "the target has no memory for so many samples";
    for (uint64_t start = 0; start < info->length && wrong == NULL; start += BLOCK)
        for (unsigned channel = 0; channel < info->channels && wrong == NULL; channel++) {
            wrong = decode_channel(in, info, recording->pcm, start, channel, &histories[channel]);
            if (wrong == NULL && in->overrun)
                wrong = DAMAGED "it ends before its samples do";
        }
    if (wrong == NULL && in->next != in->end)
        wrong = DAMAGED "it goes on behind its samples";
    return wrong;
}

/* Replies that nothing was inserted, with the reason. */
static void refuse(const char *why)
{
    struct codec_answer answer = { 0, 0 };

    farjump_reply(&answer, sizeof answer);
    farjump_reply(why, strlen(why));
}

static void insert(sqlite3 *db, const struct recording *recording)
{
    struct codec_answer answer = { 0, (uint64_t)recording->info.length * recording->info.channels };
    sqlite3_stmt *statement = NULL;

    if (table_insert(db, recording, &statement) == SQLITE_DONE) {
        answer.row = sqlite3_last_insert_rowid(db);
        farjump_reply(&answer, sizeof answer);
    } else {
        refuse(sqlite3_errmsg(db));
    }
    sqlite3_finalize(statement);
}

FARJUMP_IFUNC void codec_main(void *payload, size_t payload_size, void *target_args)
{
    struct reader in = { payload, (const uint8_t *)payload + payload_size, 0, 0, 0 };
    struct recording recording = { .pcm = NULL };
    const char *damage = decode(&in, &recording);

    if (damage == NULL)
        insert(target_args, &recording);
    else
        refuse(damage);
    sqlite3_free(recording.pcm);
}
