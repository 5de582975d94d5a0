/* Detectable errors of C programs: each gives a status and a message, and everything works as before.
 *
 *     bad_input FOLDER-OF-IFUNC-LIBRARIES EMPTY-FOLDER
 */
#include <limits.h>
#include <pthread.h>
#include <unistd.h>

#include "check.h"

#define IS_NULL(words, call) FAILS(FARJUMP_ERROR_ARGUMENT, "`" words "` is NULL", call)

static farjump_target_t *target;
static farjump_link_t *link_;

static void nothing_image(void *user, const farjump_image_t *image)
{
    (void)user, (void)image;
}

static void a_null_where_something_must_be(farjump_library_t *echo)
{
    farjump_link_t *no_link = NULL;
    farjump_target_t *no_target = NULL;
    farjump_target_thread_t *no_thread = NULL;
    farjump_stopper_t *stopper;
    farjump_admin_t *admin;
    farjump_data_t *data;
    farjump_library_t *library = echo;
    farjump_link_stats_t link_stats;
    farjump_target_stats_t target_stats;
    farjump_code_id_t id;
    farjump_pending_t pending = 1;
    const void *image = echo;
    const char *value;
    uint64_t number;
    size_t size;
    char digits[33];

    IS_NULL("bytes", farjump_bytes_new(NULL));
    IS_NULL("bytes", farjump_bytes_free(NULL));
    CHECK(strcmp(farjump_bytes_text(NULL), "") == 0 && farjump_bytes_size(NULL) == 0 && farjump_bytes_data(NULL) != NULL);

    IS_NULL("data", farjump_data_open("x", NULL));
    IS_NULL("path", farjump_data_open(NULL, &data));
    IS_NULL("data", farjump_data_from_bytes("x", 1, NULL));
    FAILS(FARJUMP_ERROR_ARGUMENT, "nothing at NULL", farjump_data_from_bytes(NULL, 1, &data));
    CHECK(data == NULL);
    IS_NULL("data", farjump_data_free(NULL));

    IS_NULL("library", farjump_library_open("x", NULL));
    IS_NULL("path", farjump_library_open(NULL, &library));
    IS_NULL("library", farjump_library_load("x", NULL));
    IS_NULL("path", farjump_library_load(NULL, &library));
    IS_NULL("library", farjump_library_open_bytes("x", 1, NULL, NULL));
    IS_NULL("library", farjump_library_load_bytes("x", 1, NULL, NULL));
    CHECK(library == NULL);
    CHECK(farjump_library_name(NULL) == NULL && farjump_library_path(NULL) == NULL);
    IS_NULL("library", farjump_library_code_id(NULL, &id));
    IS_NULL("id", farjump_library_code_id(echo, NULL));
    IS_NULL("library", farjump_library_image_size(NULL, &size));
    IS_NULL("size", farjump_library_image_size(echo, NULL));
    IS_NULL("library", farjump_library_image(NULL, &image, &size));
    CHECK(image == NULL && size == 0);
    IS_NULL("image", farjump_library_image(echo, NULL, &size));
    IS_NULL("size", farjump_library_image(echo, &image, NULL));
    IS_NULL("library", farjump_library_close(NULL));
    IS_NULL("id", farjump_code_id_print(NULL, digits));
    IS_NULL("digits", farjump_code_id_print(&id, NULL));
    IS_NULL("digits", farjump_code_id_parse(NULL, &id));
    IS_NULL("id", farjump_code_id_parse("00", NULL));

    IS_NULL("link", farjump_link_connect("unix:x", NULL, NULL));
    IS_NULL("address", farjump_link_connect(NULL, NULL, &no_link));
    IS_NULL("pending", farjump_link_inject(link_, echo, NULL, 0, NULL));
    IS_NULL("link", farjump_link_inject(NULL, echo, NULL, 0, &pending));
    CHECK(pending == 0);
    IS_NULL("library", farjump_link_inject(link_, NULL, NULL, 0, &pending));
    FAILS(FARJUMP_ERROR_ARGUMENT, "nothing at NULL", farjump_link_inject(link_, echo, NULL, 1, &pending));
    FAILS(FARJUMP_ERROR_ARGUMENT, "no memory", farjump_link_inject(link_, echo, &pending, SIZE_MAX, &pending));
    IS_NULL("link", farjump_link_try_inject(NULL, echo, NULL, 0, &pending));
    IS_NULL("link", farjump_link_send(NULL, echo, NULL, 0));
    IS_NULL("library", farjump_link_send(link_, NULL, NULL, 0));
    IS_NULL("link", farjump_link_try_send(NULL, echo, NULL, 0));
    IS_NULL("link", farjump_batch_send(NULL, echo, NULL, 0));
    IS_NULL("link", farjump_batch_finish(NULL));
    pending = 1;
    IS_NULL("link", farjump_group_inject(NULL, echo, NULL, 0, &pending));
    IS_NULL("library", farjump_group_inject(link_, NULL, NULL, 0, &pending));
    CHECK(pending == 0);
    IS_NULL("pending", farjump_group_inject(link_, echo, NULL, 0, NULL));
    IS_NULL("link", farjump_group_try_inject(NULL, echo, NULL, 0, &pending));
    IS_NULL("pending", farjump_group_try_inject(link_, echo, NULL, 0, NULL));
    IS_NULL("link", farjump_group_finish(NULL));
    IS_NULL("link", farjump_link_call(NULL, echo, NULL, 0, 0, NULL));
    IS_NULL("link", farjump_link_flush(NULL, 0));
    IS_NULL("link", farjump_link_progress(NULL));
    IS_NULL("link", farjump_link_arm(NULL, &number));
    IS_NULL("longest_ns", farjump_link_arm(link_, NULL));
    IS_NULL("link", farjump_link_disarm(NULL));
    CHECK(farjump_link_fd(NULL) == -1);
    IS_NULL("link", farjump_link_reconnect(NULL));
    IS_NULL("link", farjump_link_set_mode(NULL, FARJUMP_MODE_CACHED));
    IS_NULL("link", farjump_link_link_time(NULL, echo, 0, &number));
    IS_NULL("link_ns", farjump_link_link_time(link_, echo, 0, NULL));
    IS_NULL("link", farjump_link_stats(NULL, &link_stats, sizeof link_stats));
    IS_NULL("stats", farjump_link_stats(link_, NULL, sizeof link_stats));
    IS_NULL("link", farjump_link_path(NULL, NULL));
    IS_NULL("path", farjump_link_path(link_, NULL));
    CHECK(farjump_link_transport(NULL) == NULL && farjump_link_peer(NULL) == NULL);
    CHECK(farjump_link_epoch(NULL) == 0 && farjump_link_max_frame(NULL) == 0);
    CHECK(!farjump_link_may_share_processor(NULL) && !farjump_target_may_share_processor(NULL));
    IS_NULL("config", farjump_link_config_new(NULL));
    IS_NULL("config", farjump_link_config_free(NULL));
    IS_NULL("config", farjump_link_config_get(NULL, "mode", &value));
    IS_NULL("config", farjump_link_config_on_gone(NULL, NULL, NULL));
    IS_NULL("link", farjump_link_option(NULL, "mode", &value));
    IS_NULL("name", farjump_link_option(link_, NULL, &value));
    IS_NULL("value", farjump_link_option(link_, "mode", NULL));
    IS_NULL("link", farjump_link_close(NULL));
    IS_NULL("link", farjump_pending_wait(NULL, 1, 0, NULL));
    IS_NULL("link", farjump_pending_poll(NULL, 1, NULL));
    IS_NULL("link", farjump_pending_cancel(NULL, 1));

    IS_NULL("config", farjump_target_config_new(NULL));
    IS_NULL("config", farjump_target_config_free(NULL));
    IS_NULL("config", farjump_target_config_set(NULL, "program", "x"));
    IS_NULL("config", farjump_target_config_get(NULL, "program", &value));
    IS_NULL("config", farjump_target_config_set_args(NULL, NULL));
    IS_NULL("target", farjump_target_option(NULL, "program", &value));
    IS_NULL("name", farjump_target_option(target, NULL, &value));
    IS_NULL("value", farjump_target_option(target, "program", NULL));
    IS_NULL("target", farjump_target_listen("unix:x", NULL, NULL));
    IS_NULL("address", farjump_target_listen(NULL, NULL, &no_target));
    IS_NULL("target", farjump_target_poll(NULL, &size));
    IS_NULL("target", farjump_target_run(NULL));
    IS_NULL("target", farjump_target_wait(NULL, 0));
    IS_NULL("target", farjump_target_arm(NULL, &number));
    IS_NULL("longest_ns", farjump_target_arm(target, NULL));
    IS_NULL("target", farjump_target_disarm(NULL));
    CHECK(farjump_target_fd(NULL) == -1 && farjump_target_address(NULL) == NULL && farjump_target_epoch(NULL) == 0);
    IS_NULL("target", farjump_target_stats(NULL, &target_stats, sizeof target_stats));
    IS_NULL("stats", farjump_target_stats(target, NULL, sizeof target_stats));
    IS_NULL("count", farjump_target_refused(target, 0, NULL));
    IS_NULL("target", farjump_target_images(NULL, nothing_image, NULL));
    IS_NULL("callback", farjump_target_images(target, NULL, NULL));
    IS_NULL("library", farjump_target_set_local(target, NULL));
    IS_NULL("name", farjump_target_remove_local(target, NULL));
    IS_NULL("name", farjump_target_set_destination(target, NULL, "unix:x"));
    IS_NULL("address", farjump_target_set_destination(target, "x", NULL));
    IS_NULL("id", farjump_target_drop_code(target, NULL));
    IS_NULL("target", farjump_target_call(NULL, echo, NULL, 0, NULL));
    IS_NULL("library", farjump_target_call(target, NULL, NULL, 0, NULL));
    FAILS(FARJUMP_ERROR_ARGUMENT, "`args` has 1 byte", farjump_target_call(target, echo, NULL, 1, NULL));
    IS_NULL("target", farjump_target_call_image(NULL, "x", "x", 1, NULL, 0, NULL));
    IS_NULL("name", farjump_target_call_image(target, NULL, "x", 1, NULL, 0, NULL));
    FAILS(FARJUMP_ERROR_ARGUMENT, "`image` has 1 byte", farjump_target_call_image(target, "x", NULL, 1, NULL, 0, NULL));
    FAILS(FARJUMP_ERROR_ARGUMENT, "`payload` has 1 byte", farjump_target_call_image(target, "x", "x", 1, NULL, 1, NULL));
    IS_NULL("target", farjump_target_call_stored(NULL, &id, NULL, 0, NULL));
    IS_NULL("id", farjump_target_call_stored(target, NULL, NULL, 0, NULL));
    IS_NULL("why", farjump_target_end_links(target, NULL));
    IS_NULL("target", farjump_target_close(NULL));
    IS_NULL("target", farjump_stopper_new(NULL, &stopper));
    IS_NULL("stopper", farjump_stopper_new(target, NULL));
    GIVES(FARJUMP_ERROR_ARGUMENT, farjump_stopper_stop(NULL));
    IS_NULL("stopper", farjump_stopper_free(NULL));
    IS_NULL("thread", farjump_target_spawn(&no_target, NULL));
    IS_NULL("*target", farjump_target_spawn(&no_target, &no_thread));
    IS_NULL("thread", farjump_target_thread_stop(NULL, NULL));
    IS_NULL("callback", farjump_transports(NULL, NULL));
    IS_NULL("admin", farjump_admin_new("unix:x", NULL));
    IS_NULL("address", farjump_admin_new(NULL, &admin));
    IS_NULL("admin", farjump_admin_stats(NULL, &target_stats, sizeof target_stats));
    IS_NULL("admin", farjump_admin_free(NULL));
}

/* An ended object leaves NULL in its variable: ending it again is harmless, and using it returns a status. */
static void what_was_ended_is_distinct_from_what_is_there(const char *folder)
{
    farjump_library_t *echo = open_library(folder, "echo"), *no_library = NULL;
    farjump_bytes_t *bytes, *no_bytes = NULL;
    farjump_link_t *no_link = NULL;
    farjump_target_t *no_target = NULL;
    farjump_stopper_t *no_stopper = NULL;
    farjump_target_thread_t *no_thread = NULL;
    farjump_link_config_t *no_link_config = NULL;
    farjump_target_config_t *no_target_config = NULL;
    farjump_admin_t *no_admin = NULL;
    farjump_data_t *no_data = NULL;
    WORKS(farjump_library_close(&echo));
    CHECK(echo == NULL);
    WORKS(farjump_library_close(&echo));
    IS_NULL("library", farjump_link_send(link_, echo, NULL, 0));
    WORKS(farjump_bytes_new(&bytes));
    WORKS(farjump_bytes_free(&bytes));
    CHECK(bytes == NULL);
    WORKS(farjump_library_close(&no_library));
    WORKS(farjump_bytes_free(&no_bytes));
    WORKS(farjump_link_close(&no_link));
    WORKS(farjump_target_close(&no_target));
    WORKS(farjump_stopper_free(&no_stopper));
    WORKS(farjump_target_thread_stop(&no_thread, &no_target));
    WORKS(farjump_link_config_free(&no_link_config));
    WORKS(farjump_target_config_free(&no_target_config));
    WORKS(farjump_admin_free(&no_admin));
    WORKS(farjump_data_free(&no_data));
}

static void numbers_that_make_no_sense(void)
{
    farjump_link_config_t *config;
    farjump_target_config_t *serving;
    farjump_link_t *no_link;
    farjump_target_t *none;
    farjump_code_id_t id = {{1, 2, 3}};
    char digits[33];
    uint64_t count;
    union {
        farjump_link_stats_t stats;
        unsigned char bytes[sizeof(farjump_link_stats_t) + 16];
    } longer;

    static const int no_modes[] = {0, 3, 16, -1, INT_MAX, INT_MIN};
    for (size_t i = 0; i < sizeof no_modes / sizeof *no_modes; i++)
        FAILS(FARJUMP_ERROR_ARGUMENT, "is no mode", farjump_link_set_mode(link_, no_modes[i]));
    WORKS(farjump_link_config_new(&config));
    FAILS(FARJUMP_ERROR_ARGUMENT, "is no mode", farjump_link_config_set(config, "mode", "sometimes"));
    IS_NULL("name", farjump_link_config_set(config, NULL, "shm"));
    IS_NULL("value", farjump_link_config_set(config, "transport", NULL));
    IS_NULL("config", farjump_link_config_set(NULL, "reply-mailbox-size", "1"));
    FAILS(FARJUMP_ERROR_ARGUMENT, "no UTF-8", farjump_link_config_set(config, "program", "\xff"));
    FAILS(FARJUMP_ERROR_ARGUMENT, "nothing at NULL", farjump_link_config_set_key(config, NULL));
    WORKS(farjump_link_config_set(config, "key-file", "/nowhere/key"));
    FAILS(FARJUMP_ERROR_CONNECT, "/nowhere/key", farjump_link_connect("tcp:127.0.0.1:1", config, &no_link));
    WORKS(farjump_link_config_set(config, "cc", "cc"));
    FAILS(FARJUMP_ERROR_ARGUMENT, "no effect without `compile-for-peer`", farjump_link_connect("unix:n.sock", config, &no_link));
    CHECK(no_link == NULL);
    WORKS(farjump_link_config_free(&config));

    WORKS(farjump_target_config_new(&serving));
    FAILS(FARJUMP_ERROR_ARGUMENT, "is no mode", farjump_target_config_set(serving, "modes", "cached,sometimes"));
    IS_NULL("data", farjump_target_config_set_data(serving, NULL));
    FAILS(FARJUMP_ERROR_ARGUMENT, "`max-sources`: 0 is out of range", farjump_target_config_set(serving, "max-sources", "0"));
    FAILS(FARJUMP_ERROR_ARGUMENT, "is no number of bytes", farjump_target_config_set(serving, "max-payload", "-1"));
    FAILS(FARJUMP_ERROR_ARGUMENT, "out of range", farjump_target_config_set(serving, "max-payload", "0"));
    FAILS(FARJUMP_ERROR_ARGUMENT, "`mailbox-size`: ",
          farjump_target_config_set(serving, "mailbox-size", "18446744073709551615"));
    WORKS(farjump_target_config_set(serving, "mailbox-size", "64K"));
    WORKS(farjump_target_config_set(serving, "allow-code", "01020300000000000000000000000000"));
    WORKS(farjump_target_config_set(serving, "modes", "cached,in-place"));
    FAILS(FARJUMP_ERROR_ARGUMENT, "in-place", farjump_target_listen("unix:n.sock", serving, &none));
    CHECK(none == NULL);
    WORKS(farjump_target_config_set(serving, "export-library", "/nowhere/lib.so"));
    WORKS(farjump_target_config_set(serving, "modes", "cached"));
    GIVES(FARJUMP_ERROR_LIBRARY, farjump_target_listen("unix:n.sock", serving, &none));
    WORKS(farjump_target_config_free(&serving));
    WORKS(farjump_target_config_new(&serving));
    WORKS(farjump_target_config_set(serving, "wanted-library", "./libz.so.1"));
    FAILS(FARJUMP_ERROR_LIBRARY, "no soname", farjump_target_listen("unix:n.sock", serving, &none));
    WORKS(farjump_target_config_free(&serving));
    WORKS(farjump_target_config_new(&serving));
    WORKS(farjump_target_config_set(serving, "compiler", "/nowhere/compiler"));
    FAILS(FARJUMP_ERROR_ARGUMENT, "no effect without `bitcode`", farjump_target_listen("unix:n.sock", serving, &none));
    WORKS(farjump_target_config_set(serving, "bitcode", "prefer"));
    FAILS(FARJUMP_ERROR_SYSTEM, "/nowhere/compiler", farjump_target_listen("unix:n.sock", serving, &none));
    WORKS(farjump_target_config_free(&serving));

    FAILS(FARJUMP_ERROR_ARGUMENT, "no cause", farjump_target_refused(target, -1, &count));
    FAILS(FARJUMP_ERROR_ARGUMENT, "no cause", farjump_target_refused(target, 17, &count));
    CHECK(strcmp(farjump_cause_string(-1), "unknown cause") == 0);
    CHECK(strcmp(farjump_status_string(12345), "unknown status") == 0);

    /* Structures of other versions: a shorter one is refused. In a longer one the rest becomes 0. */
    FAILS(FARJUMP_ERROR_ARGUMENT, "sizeof", farjump_link_stats(link_, &longer.stats, 0));
    FAILS(FARJUMP_ERROR_ARGUMENT, "sizeof", farjump_link_stats(link_, &longer.stats, sizeof longer.stats - 1));
    memset(&longer, 0xff, sizeof longer);
    WORKS(farjump_link_stats(link_, &longer.stats, sizeof longer));
    for (size_t at = sizeof longer.stats; at < sizeof longer; at++)
        CHECK(longer.bytes[at] == 0);

    WORKS(farjump_code_id_print(&id, digits));
    CHECK(strcmp(digits, "01020300000000000000000000000000") == 0);
    id.bytes[0] = 9;
    FAILS(FARJUMP_ERROR_ARGUMENT, "no code id", farjump_code_id_parse("0102", &id));
    FAILS(FARJUMP_ERROR_ARGUMENT, "no code id", farjump_code_id_parse("+1020300000000000000000000000000", &id));
    CHECK(id.bytes[0] == 9);
    WORKS(farjump_code_id_parse(digits, &id));
    CHECK(id.bytes[0] == 1 && id.bytes[2] == 3);
    GIVES(FARJUMP_NOT_YET, farjump_target_drop_code(target, &id));
}

/* Invalid pending calls: made up, cancelled, another link's. */
static void numbers_that_are_no_calls(const char *address, farjump_library_t *echo)
{
    static const farjump_pending_t made_up[] = {0, 1, UINT64_MAX, UINT64_C(1) << 32, (UINT64_C(1) << 32) + 0x10000};
    farjump_link_t *other;
    farjump_pending_t pending;
    for (size_t i = 0; i < sizeof made_up / sizeof *made_up; i++) {
        FAILS(FARJUMP_ERROR_NO_CALL, "no such call", farjump_pending_wait(link_, made_up[i], FARJUMP_FOREVER, NULL));
        GIVES(FARJUMP_ERROR_NO_CALL, farjump_pending_poll(link_, made_up[i], NULL));
        GIVES(FARJUMP_ERROR_NO_CALL, farjump_pending_cancel(link_, made_up[i]));
    }
    WORKS(farjump_link_connect(address, NULL, &other));
    WORKS(farjump_link_inject(other, echo, "x", 1, &pending));
    GIVES(FARJUMP_ERROR_NO_CALL, farjump_pending_wait(link_, pending, FARJUMP_FOREVER, NULL));
    WORKS(farjump_pending_wait(other, pending, PATIENCE, NULL));
    /* A call that times out is cancelled. */
    WORKS(farjump_link_inject(other, echo, "x", 1, &pending));
    int status = farjump_pending_wait(other, pending, 0, NULL);
    CHECK(status == FARJUMP_OK || status == FARJUMP_ERROR_TIMEOUT);
    GIVES(FARJUMP_ERROR_NO_CALL, farjump_pending_wait(other, pending, FARJUMP_FOREVER, NULL));
    /* Closed with a pending call. */
    WORKS(farjump_link_inject(other, echo, "x", 1, &pending));
    WORKS(farjump_link_close(&other));
    IS_NULL("link", farjump_pending_wait(other, pending, 0, NULL));
}

/* Names with lengths at which other implementations failed, and names that are paths. */
static void names_of_all_kinds(const char *empty_folder)
{
    static const size_t lengths[] = {0, 1, 7, 8, 63, 64, 4096, 4097};
    static const char *const paths[] = {"/", "..", "../x", "a/b", "", "\n"};
    farjump_target_config_t *config;
    farjump_library_t *library;
    farjump_target_t *none;
    char name[8192], path[16384];
    WORKS(farjump_target_config_new(&config));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t length = lengths[i];
        memset(name, 'n', length);
        name[length] = 0;
        /* Names that code can import: 1 to 4096 bytes. */
        int offered = length >= 1 && length <= 4096 ? FARJUMP_OK : FARJUMP_ERROR_ARGUMENT;
        GIVES(offered, farjump_target_config_export_data(config, name, name));
        GIVES(offered, farjump_target_config_export_function(config, name, (farjump_function_t)names_of_all_kinds));
        IS_NULL("data", farjump_target_config_export_data(config, "name", NULL));
        IS_NULL("function", farjump_target_config_export_function(config, "name", NULL));
        /* The target's own functions: none has such a name. */
        GIVES(FARJUMP_NOT_YET, farjump_target_remove_local(target, name));
        int known = length == 0 ? FARJUMP_ERROR_ARGUMENT : FARJUMP_OK;
        snprintf(path, sizeof path, "%s=unix:x", name);
        GIVES(known, farjump_target_config_set(config, "destination", path));
        GIVES(known, farjump_target_set_destination(target, name, "unix:x"));
        /* Libraries of that name. */
        snprintf(path, sizeof path, "%s/lib%s.so", empty_folder, name);
        GIVES(FARJUMP_ERROR_LIBRARY, farjump_library_open(path, &library));
        GIVES(FARJUMP_ERROR_LIBRARY, farjump_library_load(path, &library));
        CHECK(library == NULL);
        /* Sockets of that name. */
        snprintf(path, sizeof path, "unix:%s%s", length == 0 ? "" : "/nowhere/", name);
        GIVES(FARJUMP_ERROR_CONNECT, farjump_target_listen(path, NULL, &none));
        GIVES(FARJUMP_ERROR_CONNECT, farjump_target_set_destination(target, "peer", name));
    }
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        farjump_link_t *link = NULL;
        int status = farjump_library_open(paths[i], &library);
        CHECK(status == FARJUMP_ERROR_LIBRARY || (status == FARJUMP_ERROR_ARGUMENT && paths[i][0] == 0));
        GIVES(FARJUMP_ERROR_CONNECT, farjump_link_connect(paths[i], NULL, &link));
        GIVES(FARJUMP_NOT_YET, farjump_target_remove_local(target, paths[i]));
    }
    FAILS(FARJUMP_ERROR_ARGUMENT, "no code can import", farjump_target_config_export_data(config, "two words", name));
    FAILS(FARJUMP_ERROR_ARGUMENT, "no UTF-8", farjump_target_config_export_data(config, "\xff", name));
    WORKS(farjump_target_config_free(&config));
}

/* Callbacks that have used the object that runs them. */
static int inside;

static int visited(void)
{
    size_t ran;
    farjump_target_t *same = target;
    farjump_target_thread_t *thread;
    GIVES(FARJUMP_ERROR_BUSY, farjump_target_poll(target, &ran));
    GIVES(FARJUMP_ERROR_BUSY, farjump_target_close(&same));
    GIVES(FARJUMP_ERROR_BUSY, farjump_target_spawn(&same, &thread));
    CHECK(same == target && thread == NULL);
    CHECK(farjump_target_fd(target) == -1 && farjump_target_epoch(target) == 0);
    CHECK(!farjump_target_may_share_processor(target) && strstr(farjump_last_error(), "in use") != NULL);
    inside++;
    return FARJUMP_ERROR_BUSY;
}

static int visited_source(void)
{
    farjump_pending_t pending;
    farjump_link_t *same = link_;
    GIVES(FARJUMP_ERROR_BUSY, farjump_link_inject(link_, NULL, NULL, 0, &pending));
    GIVES(FARJUMP_ERROR_BUSY, farjump_pending_cancel(link_, 1));
    GIVES(FARJUMP_ERROR_BUSY, farjump_link_reconnect(link_));
    GIVES(FARJUMP_ERROR_BUSY, farjump_link_close(&same));
    CHECK(same == link_);
    inside++;
    return 0;
}

static void calls_from_inside(const char *folder)
{
    farjump_library_t *visit = open_library(folder, "visit");
    int (*call)(void) = visited_source;
    farjump_library_t *opened;
    farjump_bytes_t *reply;
    farjump_pending_t pending;
    int status, said;
    /* It has a payload routine of its own. Opened without running its code, it makes no payload. */
    WORKS(farjump_library_open(farjump_library_path(visit), &opened));
    FAILS(FARJUMP_ERROR_LIBRARY, "farjump_library_load()",
          farjump_link_inject(link_, opened, &call, sizeof call, &pending));
    WORKS(farjump_library_close(&opened));
    WORKS(farjump_bytes_new(&reply));
    WORKS(farjump_link_inject(link_, visit, &call, sizeof call, &pending));
    while ((status = farjump_pending_poll(link_, pending, reply)) == FARJUMP_NOT_YET)
        WORKS(farjump_target_poll(target, NULL));
    WORKS(status);
    CHECK(farjump_bytes_size(reply) == sizeof said);
    memcpy(&said, farjump_bytes_data(reply), sizeof said);
    CHECK(said == FARJUMP_ERROR_BUSY && inside == 2);
    WORKS(farjump_bytes_free(&reply));
    WORKS(farjump_library_close(&visit));
}

/* Connects. That waits until the target polls. */
static void *connect_to(void *address)
{
    WORKS(farjump_link_connect(address, NULL, &link_));
    return NULL;
}

static farjump_target_t *listen_at(const char *address)
{
    farjump_target_config_t *config;
    farjump_target_t *made;
    WORKS(farjump_target_config_new(&config));
    WORKS(farjump_target_config_export_function(config, "visited", (farjump_function_t)visited));
    WORKS(farjump_target_listen(address, config, &made));
    WORKS(farjump_target_config_free(&config));
    return made;
}

int main(int argc, char **argv)
{
    char address[4096];
    farjump_target_thread_t *thread;
    farjump_link_t *nobody;
    farjump_target_t *second;
    pthread_t connecting;
    CHECK(argc == 3 && chdir(argv[2]) == 0);
    snprintf(address, sizeof address, "unix:%s/t.sock", argv[2]);
    CHECK(strcmp(farjump_last_error(), "") == 0 && farjump_last_cause() == -1);
    CHECK(farjump_version() == FARJUMP_VERSION);
    farjump_library_t *echo = open_library(argv[1], "echo");
    FAILS(FARJUMP_ERROR_CONNECT, "t.sock", farjump_link_connect(address, NULL, &nobody));
    CHECK(nobody == NULL);

    /* The target on a thread of its own. */
    target = listen_at(address);
    FAILS(FARJUMP_ERROR_CONNECT, "t.sock", farjump_target_listen(address, NULL, &second));
    WORKS(farjump_target_spawn(&target, &thread));
    IS_NULL("target", farjump_target_poll(target, NULL));
    WORKS(farjump_link_connect(address, NULL, &link_));
    numbers_that_are_no_calls(address, echo);
    WORKS(farjump_link_close(&link_));
    WORKS(farjump_target_thread_stop(&thread, &target));
    WORKS(farjump_target_close(&target));

    /* Target and link on this thread, so that each can be called from inside the other. */
    target = listen_at(address);
    CHECK(pthread_create(&connecting, NULL, connect_to, address) == 0);
    while (pthread_tryjoin_np(connecting, NULL) != 0)
        WORKS(farjump_target_poll(target, NULL));
    a_null_where_something_must_be(echo);
    what_was_ended_is_distinct_from_what_is_there(argv[1]);
    numbers_that_make_no_sense();
    names_of_all_kinds(argv[2]);
    calls_from_inside(argv[1]);

    WORKS(farjump_target_close(&target));
    FAILS(FARJUMP_ERROR_PEER_GONE, "t.sock", farjump_link_flush(link_, PATIENCE));
    WORKS(farjump_link_close(&link_));
    WORKS(farjump_library_close(&echo));
    return all_done();
}
