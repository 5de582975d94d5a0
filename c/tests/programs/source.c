/* A source in C: uses all operations of a link, and checks all results.
 *
 *     source ADDRESS FOLDER-OF-IFUNC-LIBRARIES
 */
#include <poll.h>
#include <unistd.h>

#include "check.h"

static farjump_link_t *link_;
static farjump_library_t *sum, *echo, *panics, *missing;
static farjump_bytes_t *reply;

static int refused_cause = -1, refusals;

static void on_refused(void *user, int cause, const char *text)
{
    CHECK(user == &refusals && strstr(text, "missing") != NULL);
    refusals++;
    refused_cause = cause;
    /* A callback inside the link cannot use it. */
    GIVES(FARJUMP_ERROR_BUSY, farjump_link_progress(link_));
    GIVES(FARJUMP_ERROR_BUSY, farjump_link_close(&link_));
    CHECK(link_ != NULL);
}

static void connect_to(const char *address)
{
    farjump_link_config_t *config;
    WORKS(farjump_link_config_new(&config));
    WORKS(farjump_link_config_set(config, "program", "a C program"));
    WORKS(farjump_link_config_set(config, "prefault", "yes"));
    WORKS(farjump_link_config_set(config, "connect-timeout", "60s"));
    WORKS(farjump_link_config_on_refused(config, on_refused, &refusals));
    WORKS(farjump_link_connect(address, config, &link_));
    WORKS(farjump_link_config_free(&config));
    CHECK(strcmp(farjump_link_transport(link_), "shm") == 0);
    CHECK(farjump_link_peer(link_)->pid != 0 && farjump_link_peer(link_)->uid == geteuid());
    CHECK(farjump_link_epoch(link_) != 0 && farjump_link_max_frame(link_) >= 4096);
}

static uint64_t reply_number(void)
{
    uint64_t number;
    CHECK(farjump_bytes_size(reply) == sizeof number);
    memcpy(&number, farjump_bytes_data(reply), sizeof number);
    return number;
}

static void calls_come_back(void)
{
    const uint64_t keys[] = {3, 4, 5};
    farjump_pending_t first, second;
    WORKS(farjump_link_call(link_, sum, keys, sizeof keys, PATIENCE, reply));
    CHECK(reply_number() == 50);
    /* A call without arguments, and a call without use of the reply. */
    WORKS(farjump_link_call(link_, sum, NULL, 0, PATIENCE, reply));
    CHECK(reply_number() == 0);
    WORKS(farjump_link_call(link_, sum, keys, sizeof keys, PATIENCE, NULL));

    /* Replies are matched to calls in any order of waiting. */
    WORKS(farjump_link_inject(link_, sum, keys, 8, &first));
    WORKS(farjump_link_try_inject(link_, sum, keys, 16, &second));
    CHECK(first != 0 && second != 0 && first != second);
    WORKS(farjump_pending_wait(link_, second, PATIENCE, reply));
    CHECK(reply_number() == 25);
    WORKS(farjump_pending_wait(link_, first, PATIENCE, reply));
    CHECK(reply_number() == 9);
    GIVES(FARJUMP_ERROR_NO_CALL, farjump_pending_wait(link_, first, PATIENCE, reply));
    GIVES(FARJUMP_ERROR_NO_CALL, farjump_pending_poll(link_, second, reply));
    GIVES(FARJUMP_ERROR_NO_CALL, farjump_pending_cancel(link_, second));

    /* Polled. */
    int status;
    WORKS(farjump_link_inject(link_, sum, keys, sizeof keys, &first));
    while ((status = farjump_pending_poll(link_, first, reply)) == FARJUMP_NOT_YET)
        WORKS(farjump_link_progress(link_));
    WORKS(status);
    CHECK(reply_number() == 50);

    /* Cancelled. */
    WORKS(farjump_link_inject(link_, sum, keys, sizeof keys, &first));
    WORKS(farjump_pending_cancel(link_, first));
    GIVES(FARJUMP_ERROR_NO_CALL, farjump_pending_cancel(link_, first));
}

/* Runs an event loop of the program's own that includes farjump. It polls for replies only when woken. */
static void an_event_loop_is_woken_for_replies(void)
{
    struct pollfd awake = {.fd = farjump_link_fd(link_), .events = POLLIN};
    CHECK(awake.fd >= 0);
    for (uint64_t key = 0; key < 300; key++) {
        farjump_pending_t pending;
        uint64_t longest_ns;
        WORKS(farjump_link_inject(link_, sum, &key, sizeof key, &pending));
        for (;;) {
            int status = farjump_pending_poll(link_, pending, reply);
            CHECK(status == FARJUMP_OK || status == FARJUMP_NOT_YET);
            if (status == FARJUMP_OK)
                break;
            WORKS(farjump_link_arm(link_, &longest_ns));
            if (longest_ns != 0)
                CHECK(poll(&awake, 1, (int)(longest_ns / 1000000)) >= 0);
            WORKS(farjump_link_disarm(link_));
        }
        CHECK(reply_number() == key * key);
    }
    CHECK(farjump_link_fd(link_) == awake.fd);
}

/* The function is compiled for the target's CPU while calls continue. Otherwise the reason is given. */
static void an_image_for_the_targets_cpu_comes_behind_the_calls(const char *address)
{
    const uint64_t keys[] = {3, 4, 5};
    farjump_link_config_t *config;
    farjump_link_t *compiling;
    farjump_code_id_t carried, id;
    int status;
    WORKS(farjump_library_code_id(sum, &carried));
    GIVES(FARJUMP_ERROR_ARGUMENT, farjump_link_compiled_image(link_, sum, &id));
    WORKS(farjump_link_config_new(&config));
    WORKS(farjump_link_config_set(config, "compile-for-peer", "yes"));
    for (int usable = 0; usable < 2; usable++) {
        WORKS(farjump_link_config_set(config, "cc", usable ? "cc" : "/nowhere/cc"));
        WORKS(farjump_link_connect(address, config, &compiling));
        do {
            WORKS(farjump_link_call(compiling, sum, keys, sizeof keys, PATIENCE, reply));
            CHECK(reply_number() == 50);
            status = farjump_link_compiled_image(compiling, sum, &id);
        } while (status == FARJUMP_NOT_YET);
        if (usable) {
            WORKS(status);
            CHECK(memcmp(&id, &carried, sizeof id) != 0);
        } else {
            CHECK(status == FARJUMP_ERROR_LIBRARY && strstr(farjump_last_error(), "/nowhere/cc") != NULL);
        }
        WORKS(farjump_link_close(&compiling));
    }
    WORKS(farjump_link_config_free(&config));
}

static void replies_of_any_size_come_whole(void)
{
    for (size_t size = 1; size <= 1 << 19; size = size * 3 + 1) {
        unsigned char *args = malloc(size);
        CHECK(args != NULL);
        for (size_t at = 0; at < size; at++)
            args[at] = (unsigned char)(at * 7 + size);
        WORKS(farjump_link_call(link_, echo, args, size, PATIENCE, reply));
        CHECK(farjump_bytes_size(reply) == size && memcmp(farjump_bytes_data(reply), args, size) == 0);
        CHECK(((const char *)farjump_bytes_data(reply))[size] == 0);
        free(args);
    }
    WORKS(farjump_link_call(link_, echo, "words", 5, PATIENCE, reply));
    CHECK(strcmp(farjump_bytes_text(reply), "words") == 0);
}

static void calls_without_a_reply_run_in_order(void)
{
    farjump_link_stats_t before, after;
    WORKS(farjump_link_stats(link_, &before, sizeof before));
    for (uint64_t key = 0; key < 1000; key++) {
        WORKS(farjump_link_send(link_, sum, &key, sizeof key));
        WORKS(farjump_batch_send(link_, sum, &key, sizeof key));
    }
    WORKS(farjump_batch_finish(link_));
    WORKS(farjump_link_flush(link_, PATIENCE));
    WORKS(farjump_link_stats(link_, &after, sizeof after));
    CHECK(after.payload_bytes - before.payload_bytes == 2000 * sizeof(uint64_t));
    int status = farjump_link_try_send(link_, sum, NULL, 0);
    CHECK(status == FARJUMP_OK || status == FARJUMP_ERROR_FULL);
}

static void calls_of_a_group_come_back_each(void)
{
    farjump_pending_t pending[64];
    for (uint64_t key = 0; key < 64; key++)
        WORKS(key % 2 == 0 ? farjump_group_inject(link_, sum, &key, sizeof key, &pending[key])
                           : farjump_group_try_inject(link_, sum, &key, sizeof key, &pending[key]));
    WORKS(farjump_group_finish(link_));
    for (uint64_t key = 64; key-- > 0;) {
        WORKS(farjump_pending_wait(link_, pending[key], PATIENCE, reply));
        CHECK(reply_number() == key * key);
    }
    /* A call of an unfinished group is not lost. */
    WORKS(farjump_group_inject(link_, sum, NULL, 0, &pending[0]));
    WORKS(farjump_pending_wait(link_, pending[0], PATIENCE, reply));
    CHECK(reply_number() == 0);
}

static void what_goes_wrong_there_is_said_here(void)
{
    farjump_pending_t pending;
    FAILS(FARJUMP_ERROR_PANICKED, "out of order", farjump_link_call(link_, panics, "out of order", 12, PATIENCE, reply));
    CHECK(farjump_last_cause() == -1);
    CHECK(farjump_bytes_size(reply) == 0);
    WORKS(farjump_link_inject(link_, missing, NULL, 0, &pending));
    FAILS(FARJUMP_ERROR_REFUSED, "no_such_function", farjump_pending_wait(link_, pending, PATIENCE, reply));
    CHECK(farjump_last_cause() == FARJUMP_CAUSE_UNRESOLVED_IMPORT);
    WORKS(farjump_link_send(link_, missing, NULL, 0));
    FAILS(FARJUMP_ERROR_REFUSED, "no_such_function", farjump_link_flush(link_, PATIENCE));
    CHECK(refusals == 1 && refused_cause == FARJUMP_CAUSE_UNRESOLVED_IMPORT);
    CHECK(strcmp(farjump_cause_string(refused_cause), "unresolved import") == 0);
}

static void code_travels_as_the_mode_says(void)
{
    const uint64_t key = 9;
    farjump_link_stats_t before, after;
    size_t image;
    WORKS(farjump_library_image_size(sum, &image));
    WORKS(farjump_link_stats(link_, &before, sizeof before));
    WORKS(farjump_link_call(link_, sum, &key, sizeof key, PATIENCE, reply));
    WORKS(farjump_link_stats(link_, &after, sizeof after));
    CHECK(after.frames_with_code == before.frames_with_code);
    WORKS(farjump_link_set_mode(link_, FARJUMP_MODE_ALWAYS));
    WORKS(farjump_link_call(link_, sum, &key, sizeof key, PATIENCE, reply));
    WORKS(farjump_link_stats(link_, &after, sizeof after));
    CHECK(after.frames_with_code == before.frames_with_code + 1 && after.code_bytes == before.code_bytes + image);
    CHECK(reply_number() == 81);
    WORKS(farjump_link_set_mode(link_, FARJUMP_MODE_LOCAL));
    GIVES(FARJUMP_ERROR_REFUSED, farjump_link_call(link_, sum, &key, sizeof key, PATIENCE, reply));
    WORKS(farjump_link_set_mode(link_, FARJUMP_MODE_CACHED));
}

static void a_link_can_be_made_anew(void)
{
    const uint64_t keys[] = {3, 4, 5};
    farjump_pending_t lost;
    WORKS(farjump_link_inject(link_, echo, keys, 8, &lost));
    WORKS(farjump_link_reconnect(link_));
    CHECK(farjump_link_peer(link_)->pid != 0);
    int status = farjump_pending_wait(link_, lost, PATIENCE, reply);
    CHECK(status == FARJUMP_ERROR_PEER_GONE || status == FARJUMP_OK);
    WORKS(farjump_link_call(link_, sum, keys, sizeof keys, PATIENCE, reply));
    CHECK(reply_number() == 50);
}

static void count_image(void *user, const farjump_image_t *image)
{
    farjump_code_id_t id;
    WORKS(farjump_library_code_id(sum, &id));
    if (memcmp(&id, &image->id, sizeof id) == 0) {
        CHECK(strcmp(image->name, "sum") == 0 && image->calls > 0 && strstr(image->source, "a C program") != NULL);
        ++*(int *)user;
    }
}

static void the_target_replies_to_requests(const char *address)
{
    farjump_admin_t *admin;
    farjump_target_stats_t stats;
    farjump_code_id_t id;
    uint64_t dropped = 0;
    int found = 0;
    const uint64_t key = 2;
    WORKS(farjump_admin_new(address, &admin));
    WORKS(farjump_admin_set_timeout(admin, PATIENCE));
    /* The target may not have noticed yet that the link before the last one is gone. */
    for (int left = 6000; left > 0; left--) {
        WORKS(farjump_admin_stats(admin, &stats, sizeof stats));
        if (stats.sources == 1)
            break;
        poll(NULL, 0, 10);
    }
    CHECK(stats.calls > 2000 && stats.sources == 1 && stats.links == 2 && stats.refused > 0);
    WORKS(farjump_admin_images(admin, count_image, &found));
    CHECK(found == 1);
    WORKS(farjump_library_code_id(sum, &id));
    WORKS(farjump_admin_drop(admin, &id, &dropped));
    CHECK(dropped == 1);
    /* It is requested again. */
    WORKS(farjump_link_call(link_, sum, &key, sizeof key, PATIENCE, reply));
    CHECK(reply_number() == 4);
    WORKS(farjump_admin_drop_all(admin, NULL));
    WORKS(farjump_admin_free(&admin));
}

/* Calls outlive their library, even if the target requests their code after it was closed. */
static void a_library_is_closed_while_its_calls_are_pending(const char *address, const char *folder)
{
    const uint64_t key = 2;
    farjump_admin_t *admin;
    WORKS(farjump_admin_new(address, &admin));
    for (int round = 0; round < 20; round++) {
        farjump_library_t *own = open_library(folder, "sum");
        farjump_pending_t pending;
        WORKS(farjump_admin_drop_all(admin, NULL));
        WORKS(farjump_link_inject(link_, own, &key, sizeof key, &pending));
        WORKS(farjump_library_close(&own));
        CHECK(own == NULL);
        WORKS(farjump_pending_wait(link_, pending, PATIENCE, reply));
        CHECK(reply_number() == 4);
    }
    WORKS(farjump_admin_free(&admin));
}

/* Returns the contents of libNAME.so in this folder. The caller frees them. */
static void *contents_of(const char *folder, const char *name, size_t *size)
{
    char path[4096];
    void *contents;
    FILE *file;
    long end;
    snprintf(path, sizeof path, "%s/lib%s.so", folder, name);
    CHECK((file = fopen(path, "rb")) != NULL && fseek(file, 0, SEEK_END) == 0 && (end = ftell(file)) > 0);
    rewind(file);
    *size = (size_t)end;
    CHECK((contents = malloc(*size)) != NULL && fread(contents, 1, *size, file) == *size);
    fclose(file);
    return contents;
}

static void libraries_need_no_file(const char *folder)
{
    static const uint64_t keys[] = {3, 4};
    farjump_library_t *opened, *loaded, *alone, *none = NULL;
    farjump_library_t *all[3];
    const void *image;
    size_t size, image_size;
    void *contents = contents_of(folder, "sum", &size);
    WORKS(farjump_library_image(sum, &image, &image_size));
    WORKS(farjump_library_open_bytes(contents, size, NULL, &opened));
    WORKS(farjump_library_load_bytes(contents, size, "sum", &loaded));
    WORKS(farjump_library_open_bytes(image, image_size, "sum", &alone));
    FAILS(FARJUMP_ERROR_LIBRARY, "give its own name", farjump_library_open_bytes(contents, size, "mus", &none));
    FAILS(FARJUMP_ERROR_LIBRARY, "give the name", farjump_library_open_bytes(image, image_size, NULL, &none));
    FAILS(FARJUMP_ERROR_LIBRARY, "<memory>", farjump_library_load_bytes(contents, size / 2, NULL, &none));
    CHECK(none == NULL);
    memset(contents, 0, size);
    free(contents);
    all[0] = opened, all[1] = loaded, all[2] = alone;
    for (int i = 0; i < 3; i++) {
        CHECK(strcmp(farjump_library_name(all[i]), "sum") == 0 && strcmp(farjump_library_path(all[i]), "<memory>") == 0);
        WORKS(farjump_link_call(link_, all[i], keys, sizeof keys, PATIENCE, reply));
        CHECK(reply_number() == 25);
        WORKS(farjump_library_close(&all[i]));
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    sum = open_library(argv[2], "sum");
    echo = open_library(argv[2], "echo");
    panics = open_library(argv[2], "panics");
    missing = open_library(argv[2], "missing");
    CHECK(strcmp(farjump_library_name(sum), "sum") == 0 && strstr(farjump_library_path(sum), "libsum.so") != NULL);
    WORKS(farjump_bytes_new(&reply));
    connect_to(argv[1]);

    calls_come_back();
    libraries_need_no_file(argv[2]);
    an_event_loop_is_woken_for_replies();
    replies_of_any_size_come_whole();
    calls_without_a_reply_run_in_order();
    calls_of_a_group_come_back_each();
    what_goes_wrong_there_is_said_here();
    code_travels_as_the_mode_says();
    a_link_can_be_made_anew();
    the_target_replies_to_requests(argv[1]);
    an_image_for_the_targets_cpu_comes_behind_the_calls(argv[1]);
    WORKS(farjump_link_path(link_, reply));
    CHECK(strstr(farjump_bytes_text(reply), "shm, arrives by") == farjump_bytes_text(reply));

    /* Libraries can be closed while a link knows them. */
    WORKS(farjump_library_close(&sum));
    WORKS(farjump_library_close(&echo));
    a_library_is_closed_while_its_calls_are_pending(argv[1], argv[2]);
    WORKS(farjump_link_close(&link_));
    WORKS(farjump_library_close(&panics));
    WORKS(farjump_library_close(&missing));
    WORKS(farjump_bytes_free(&reply));
    return all_done();
}
