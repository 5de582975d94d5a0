/* levels - reports the length and loudness of each recording of a database. The samples are read in place,
 * and the reply has less than a hundred bytes for each recording. It takes no arguments, and fails with
 * SQLite's own messages. */
#include <farjump_ifunc.h>
#include <sqlite3.h>
#include <string.h>

#include "recordings.h"

FARJUMP_COPY_ARGS(levels)

static void reply_with_row(sqlite3_stmt *row)
{
    struct levels_answer answer = { .row = sqlite3_column_int64(row, 0) };
    struct recording_info *info = &answer.info;
    const char *name = (const char *)sqlite3_column_text(row, 1);
    const uint8_t *pcm = sqlite3_column_blob(row, 5);
    uint64_t size = (uint64_t)sqlite3_column_bytes(row, 5);

    for (size_t i = 0; i < sizeof info->name - 1 && name != NULL && name[i] != 0; i++)
        info->name[i] = name[i];
    info->rate = (uint32_t)sqlite3_column_int64(row, 2);
    info->channels = (uint16_t)sqlite3_column_int64(row, 3);
    info->bits = (uint16_t)sqlite3_column_int64(row, 4);
    info->length = (uint32_t)(size / (info->channels * info->bits / 8u));
    for (uint64_t i = 0; i < size / (info->bits / 8u); i++) {
        int32_t sample = recording_sample(info, pcm, i);
        uint32_t magnitude = (uint32_t)(sample < 0 ? -sample : sample);
        if (answer.peak < magnitude)
            answer.peak = magnitude;
        answer.energy += (uint64_t)magnitude * magnitude;
    }
    farjump_reply(&answer, sizeof answer);
}

FARJUMP_IFUNC void levels_main(void *payload, size_t payload_size, void *target_args)
{
    static const char query[] = "SELECT id, name, rate, channels, bits, pcm FROM recordings"
                                " WHERE channels IN (1, 2) AND bits IN (8, 16) ORDER BY id";
    sqlite3 *db = target_args;
    sqlite3_stmt *statement = NULL;
    int status = sqlite3_prepare_v2(db, query, sizeof query, &statement, NULL);

    (void)payload, (void)payload_size;
    if (status == SQLITE_OK) {
        while (sqlite3_step(statement) == SQLITE_ROW)
            reply_with_row(statement);
        status = sqlite3_finalize(statement); /* returns the result of the last step */
    }
    if (status != SQLITE_OK) {
        const char *why = sqlite3_errmsg(db);
        farjump_panic(why, strlen(why));
    }
}
