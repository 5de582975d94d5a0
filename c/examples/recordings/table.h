/* The table of recordings in the target's database, and the insertion of a recording. The target inserts by
 * this code, and so do injected functions, into which it is compiled. */
#ifndef TABLE_H
#define TABLE_H

#include <sqlite3.h>

#include "recordings.h"

/* `pcm` has the samples as in a struct recording, which is also the format of a WAV file's data chunk. */
#define TABLE_SCHEMA                                                                                                  \
    "CREATE TABLE IF NOT EXISTS recordings ("                                                                         \
    " id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, rate INTEGER NOT NULL CHECK (rate > 0),"                     \
    " channels INTEGER NOT NULL CHECK (channels IN (1, 2)), bits INTEGER NOT NULL CHECK (bits IN (8, 16)),"           \
    " pcm BLOB NOT NULL)"

/* Inserts a recording. Returns SQLITE_DONE, or an error with a text in sqlite3_errmsg(). The caller finalizes
 * the statement in either case, after it has read the text. */
static inline int table_insert(sqlite3 *db, const struct recording *recording, sqlite3_stmt **statement)
{
    static const char insert[] = "INSERT INTO recordings (name, rate, channels, bits, pcm) VALUES (?, ?, ?, ?, ?)";
    const struct recording_info *info = &recording->info;
    int status = sqlite3_prepare_v2(db, insert, sizeof insert, statement, NULL);

    if (status == SQLITE_OK)
        status = sqlite3_bind_text(*statement, 1, info->name, -1, SQLITE_STATIC);
    if (status == SQLITE_OK)
        status = sqlite3_bind_int64(*statement, 2, info->rate);
    if (status == SQLITE_OK)
        status = sqlite3_bind_int64(*statement, 3, info->channels);
    if (status == SQLITE_OK)
        status = sqlite3_bind_int64(*statement, 4, info->bits);
    if (status == SQLITE_OK)
        status = sqlite3_bind_blob64(*statement, 5, recording->pcm, recording_size(info), SQLITE_STATIC);
    return status == SQLITE_OK ? sqlite3_step(*statement) : status;
}

#endif
