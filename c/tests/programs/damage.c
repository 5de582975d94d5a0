/* Encodes and decodes recordings of all kinds by the example's codec, and decodes damaged ones, under
 * sanitizers. Payloads lie in memory of exactly their length. */
#include "../../examples/recordings/codec.c"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

static sqlite3 *db;

/* The reply, as the target would collect it. */
static struct {
    struct codec_answer answer;
    char text[256];
} reply;
static size_t replied;

int farjump_reply(const void *bytes, size_t len)
{
    CHECK(len <= sizeof reply - replied);
    memcpy((char *)&reply + replied, bytes, len);
    replied += len;
    return 0;
}

static uint32_t any(void)
{
    static uint64_t state = 0x9e3779b97f4a7c15;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

enum signal { SILENCE, EXTREMES, NOISE, WAVE, SIGNALS };

/* Makes a recording. Each byte follows the signal, so samples of 16 bits vary more than those of 8. */
static struct recording record(enum signal signal, uint16_t channels, uint16_t bits, uint32_t length)
{
    struct recording recording = { { "any", 8000, length, channels, bits }, NULL };
    uint64_t size = recording_size(&recording.info);

    recording.pcm = malloc(size);
    for (uint64_t i = 0; i < size; i++)
        switch (signal) {
        case SILENCE:
            recording.pcm[i] = bits == 8 ? 128 : 0;
            break;
        case EXTREMES: /* of samples: all bits or the highest only */
            recording.pcm[i] = bits == 8 ? (any() & 1 ? 255 : 0) : (i % 2 == 0 ? 0 : any() & 1 ? 0x7f : 0x80);
            break;
        case NOISE:
            recording.pcm[i] = (uint8_t)any();
            break;
        default:
            recording.pcm[i] = (uint8_t)(128 + (i % 200 < 100 ? i % 100 : 100 - i % 100));
        }
    return recording;
}

/* Returns the payload that would travel. */
static uint8_t *encode(struct recording *recording, size_t *size)
{
    uint8_t *space, *payload;

    *size = codec_payload_get_max_size(recording, sizeof *recording);
    space = malloc(*size);
    CHECK(codec_payload_init_shrink(space, size, recording, sizeof *recording) == 0);
    payload = malloc(*size);
    memcpy(payload, space, *size);
    free(space);
    return payload;
}

static void decode_at_target(uint8_t *payload, size_t size)
{
    memset(&reply, 0, sizeof reply);
    replied = 0;
    codec_main(payload, size, db);
    CHECK(replied >= sizeof reply.answer);
}

/* Returns whether the table's one row is this recording, and removes it. */
static int is_kept(const struct recording *recording)
{
    uint64_t size = recording_size(&recording->info);
    sqlite3_stmt *row;
    int kept;

    CHECK(sqlite3_prepare_v2(db, "SELECT pcm, channels, bits FROM recordings WHERE name = 'any'", -1, &row, NULL) == SQLITE_OK);
    kept = sqlite3_step(row) == SQLITE_ROW && (uint64_t)sqlite3_column_bytes(row, 0) == size
           && memcmp(sqlite3_column_blob(row, 0), recording->pcm, size) == 0
           && sqlite3_column_int(row, 1) == recording->info.channels && sqlite3_column_int(row, 2) == recording->info.bits;
    sqlite3_finalize(row);
    CHECK(sqlite3_exec(db, "DELETE FROM recordings", NULL, NULL, NULL) == SQLITE_OK);
    return kept;
}

static void come_out_as_they_were(void)
{
    static const uint32_t lengths[] = { 1, 2, 3, 4, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 100 };

    for (int signal = 0; signal < SIGNALS; signal++)
        for (unsigned kind = 0; kind < 4; kind++)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
                struct recording recording = record(signal, kind & 1 ? 2 : 1, kind & 2 ? 16 : 8, lengths[i]);
                size_t size;
                uint8_t *payload = encode(&recording, &size);
                decode_at_target(payload, size);
                CHECK(reply.answer.row != 0 && replied == sizeof reply.answer);
                CHECK(reply.answer.samples == (uint64_t)lengths[i] * recording.info.channels);
                CHECK(is_kept(&recording));
                free(payload);
                free(recording.pcm);
            }
}

/* Damage is either reported, or makes other samples, as many as the head states. */
static void survive_damage(void)
{
    unsigned told = 0, other = 0;

    for (unsigned round = 0; round < 20000; round++) {
        struct recording recording = record(any() % SIGNALS, 1 + any() % 2, any() & 1 ? 8 : 16, 1 + any() % 200);
        size_t size, length;
        uint8_t *payload = encode(&recording, &size), *damaged;

        length = any() % 3 == 0 ? any() % (size + 16) : size;
        damaged = malloc(length + 1);
        for (size_t i = 0; i < length; i++)
            damaged[i] = i < size ? payload[i] : (uint8_t)any();
        for (unsigned flips = any() % 4; flips != 0 && length != 0; flips--) {
            /* Half of them in the head, which is read first. */
            size_t at = any() % (any() & 1 && length > sizeof recording.info ? sizeof recording.info : length);
            damaged[at] ^= (uint8_t)(1 << any() % 8);
        }
        damaged = realloc(damaged, length != 0 ? length : 1);
        decode_at_target(damaged, length);
        if (reply.answer.row == 0) {
            CHECK(replied > sizeof reply.answer && reply.answer.samples == 0);
            told++;
        } else {
            CHECK(replied == sizeof reply.answer && reply.answer.samples != 0);
            other++;
        }
        CHECK(sqlite3_exec(db, "DELETE FROM recordings", NULL, NULL, NULL) == SQLITE_OK);
        free(damaged);
        free(payload);
        free(recording.pcm);
    }
    CHECK(told > 1000 && other > 1000);
}

/* Unsupported recordings are not sent. */
static void refuse_other_arguments(void)
{
    struct recording recording = record(NOISE, 2, 16, 100), other = recording;
    uint8_t payload[1024];
    size_t size = sizeof payload;

    CHECK(codec_payload_get_max_size(&recording, 4) == 0);
    CHECK(codec_payload_init_shrink(payload, &size, &recording, 4) != 0);
    other.info.channels = 3;
    CHECK(codec_payload_init_shrink(payload, &size, &other, sizeof other) != 0);
    other = recording;
    other.info.bits = 24;
    CHECK(codec_payload_init_shrink(payload, &size, &other, sizeof other) != 0);
    CHECK(codec_payload_init_shrink(payload, &size, &recording, sizeof recording) == 0);
    free(recording.pcm);
}

int main(void)
{
    alarm(600); /* a decoder that does not end is ended */
    CHECK(sqlite3_open(":memory:", &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, TABLE_SCHEMA, NULL, NULL, NULL) == SQLITE_OK);
    come_out_as_they_were();
    survive_damage();
    refuse_other_arguments();
    sqlite3_close(db);
    puts("all is as it should be");
    return 0;
}
