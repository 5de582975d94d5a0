/* target - keeps a database of recordings, and runs injected functions on it. By itself it knows no format
 * but WAV.
 *
 *     target [--transport NAME] [--key-file FILE] ADDRESS DATABASE [FILE.wav...]
 *
 * It makes the database if it does not exist, inserts the files, and serves until SIGINT or SIGTERM. */
#include <farjump.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "table.h"
#include "wav.h"

/* Limit of waiting for another process that locks the database, in milliseconds. */
#define PATIENCE 5000

/* Exports to injected functions, besides those of every target. */
#define OFFERED(function) { #function, (farjump_function_t)function }
static const struct {
    const char *name;
    farjump_function_t function;
} offered[] = {
    OFFERED(sqlite3_bind_blob64),
    OFFERED(sqlite3_bind_int64),
    OFFERED(sqlite3_bind_text),
    OFFERED(sqlite3_column_blob),
    OFFERED(sqlite3_column_bytes),
    OFFERED(sqlite3_column_int64),
    OFFERED(sqlite3_column_text),
    OFFERED(sqlite3_errmsg),
    OFFERED(sqlite3_finalize),
    OFFERED(sqlite3_free),
    OFFERED(sqlite3_last_insert_rowid),
    OFFERED(sqlite3_malloc64),
    OFFERED(sqlite3_prepare_v2),
    OFFERED(sqlite3_step),
    OFFERED(strlen),
};

/* Options of targets, by their own names. */
static const struct option words[] = {
    { "transport", required_argument, NULL, 'o' },
    { "key-file", required_argument, NULL, 'o' },
    { NULL, 0, NULL, 0 },
};

/* Never freed: a signal may come until the process ends. */
static farjump_stopper_t *stopper;

static void stop(int signal)
{
    (void)signal;
    farjump_stopper_stop(stopper);
}

static int failed(const char *why)
{
    fprintf(stderr, "target: %s\n", why);
    return 1;
}

/* Reads the command line's choices, and adds the exports. Returns 0, or another number after printing the
 * error. */
static int choose(int argc, char **argv, farjump_target_config_t *config)
{
    farjump_status_t status = FARJUMP_OK;
    int word, which;

    while (status == FARJUMP_OK && (word = getopt_long(argc, argv, "", words, &which)) != -1) {
        if (word == '?')
            return 1; /* the error has been printed */
        status = farjump_target_config_set(config, words[which].name, optarg);
    }
    for (size_t i = 0; i < sizeof offered / sizeof *offered && status == FARJUMP_OK; i++)
        status = farjump_target_config_export_function(config, offered[i].name, offered[i].function);
    if (status != FARJUMP_OK)
        return failed(farjump_last_error());
    if (argc - optind < 2)
        return failed("use: target [--transport NAME] [--key-file FILE] ADDRESS DATABASE [FILE.wav...]");
    return 0;
}

static int open_database(const char *path, sqlite3 **db)
{
    if (sqlite3_open(path, db) != SQLITE_OK || sqlite3_busy_timeout(*db, PATIENCE) != SQLITE_OK
        || sqlite3_exec(*db, TABLE_SCHEMA, NULL, NULL, NULL) != SQLITE_OK) {
        fprintf(stderr, "target: %s: %s\n", path, sqlite3_errmsg(*db));
        return 1;
    }
    return 0;
}

static int insert_file(sqlite3 *db, const char *path)
{
    struct recording recording;
    sqlite3_stmt *statement = NULL;
    char error[512];
    int status;

    if (wav_read(path, &recording, error, sizeof error) != 0)
        return failed(error);
    status = table_insert(db, &recording, &statement);
    if (status != SQLITE_DONE)
        fprintf(stderr, "target: %s: %s\n", path, sqlite3_errmsg(db));
    sqlite3_finalize(statement);
    free(recording.pcm);
    return status != SQLITE_DONE;
}

static int serve(const char *address, farjump_target_config_t *config, sqlite3 *db)
{
    struct sigaction action = { .sa_handler = stop };
    farjump_target_t *target = NULL;
    int ended = 1;

    if (farjump_target_config_set_args(config, db) == FARJUMP_OK
        && farjump_target_listen(address, config, &target) == FARJUMP_OK
        && farjump_stopper_new(target, &stopper) == FARJUMP_OK) {
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        printf("ready: %s\n", farjump_target_address(target));
        fflush(stdout);
        ended = farjump_target_run(target) != FARJUMP_OK;
    }
    if (ended != 0)
        failed(farjump_last_error());
    farjump_target_close(&target);
    return ended;
}

int main(int argc, char **argv)
{
    farjump_target_config_t *config = NULL;
    sqlite3 *db = NULL;
    int ended = 1;

    if (farjump_target_config_new(&config) != FARJUMP_OK)
        failed(farjump_last_error());
    else if (choose(argc, argv, config) == 0 && open_database(argv[optind + 1], &db) == 0) {
        ended = 0;
        for (int i = optind + 2; i < argc && ended == 0; i++)
            ended = insert_file(db, argv[i]);
        if (ended == 0)
            ended = serve(argv[optind], config, db);
    }
    farjump_target_config_free(&config);
    sqlite3_close(db);
    return ended;
}
