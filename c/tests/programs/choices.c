/* Options and their effects: exports, allow-list, store, and statistics.
 *
 *     choices FOLDER-OF-IFUNC-LIBRARIES EMPTY-FOLDER
 */
#include <farjump_ifunc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "check.h"

static const uint64_t keys[] = {3, 4, 5};
static char address[4096];
static farjump_library_t *sum, *echo, *missing, *contents, *panics;
static farjump_bytes_t *reply;

static uint64_t store_get(void *store, uint64_t key)
{
    CHECK(store == address);
    return key * 10;
}

static const uint64_t store_limit = 5;

/* A symbol that injected code imports from the program itself, if the target allows it. */
void no_such_function(void)
{
}

static farjump_target_config_t *offering(void)
{
    farjump_target_config_t *config;
    WORKS(farjump_target_config_new(&config));
    WORKS(farjump_target_config_set_args(config, address));
    WORKS(farjump_target_config_export_function(config, "store_get", (farjump_function_t)store_get));
    WORKS(farjump_target_config_export_data(config, "store_limit", &store_limit));
    return config;
}

/* A target on a thread, and a link to it. */
struct pair {
    farjump_target_thread_t *thread;
    farjump_link_t *link;
};

static struct pair joined(farjump_target_config_t *config)
{
    struct pair pair;
    farjump_target_t *target;
    WORKS(farjump_target_listen(address, config, &target));
    WORKS(farjump_target_config_free(&config));
    WORKS(farjump_target_spawn(&target, &pair.thread));
    WORKS(farjump_link_connect(address, NULL, &pair.link));
    return pair;
}

/* Ends both, and returns the target. The caller closes it. */
static farjump_target_t *parted(struct pair *pair)
{
    farjump_target_t *target;
    WORKS(farjump_link_close(&pair->link));
    WORKS(farjump_target_thread_stop(&pair->thread, &target));
    return target;
}

static uint64_t called(farjump_link_t *link)
{
    uint64_t total;
    WORKS(farjump_link_call(link, sum, keys, sizeof keys, PATIENCE, reply));
    CHECK(farjump_bytes_size(reply) == sizeof total);
    memcpy(&total, farjump_bytes_data(reply), sizeof total);
    return total;
}

static void count(void *user, const farjump_image_t *image)
{
    CHECK(image->name[0] != 0 && image->bytes > 0 && image->source[0] != 0);
    ++*(int *)user;
}

static void code_that_is_held_is_listed_and_forgotten(void)
{
    farjump_target_config_t *config = offering();
    farjump_target_stats_t stats;
    farjump_code_id_t id;
    uint64_t link_ns = 0;
    int images = 0;
    WORKS(farjump_target_config_set(config, "arena-size", "1M"));
    WORKS(farjump_target_config_set(config, "store-bytes", "64K"));
    WORKS(farjump_target_config_set(config, "store-images", "7"));
    WORKS(farjump_target_config_set(config, "mailbox-size", "64K"));
    WORKS(farjump_target_config_set(config, "max-image", "4096"));
    WORKS(farjump_target_config_set(config, "max-frame", "32K"));
    WORKS(farjump_target_config_set(config, "max-source-memory", "1M"));
    WORKS(farjump_target_config_set(config, "program", "a server in C"));
    WORKS(farjump_target_config_set(config, "wait-policy", "0/0/0/1"));
    struct pair pair = joined(config);
    CHECK(strcmp(farjump_link_peer(pair.link)->name, "a server in C") == 0);
    /* 30 + 40, as 5 is the limit. */
    CHECK(called(pair.link) == 70);
    WORKS(farjump_link_link_time(pair.link, sum, PATIENCE, &link_ns));
    CHECK(link_ns > 0);
    FAILS(FARJUMP_ERROR_TOO_LARGE, "sum", farjump_link_send(pair.link, sum, address, 1 << 20));
    CHECK(farjump_link_max_frame(pair.link) <= 1 << 15);

    farjump_target_t *target = parted(&pair);
    WORKS(farjump_target_images(target, count, &images));
    CHECK(images == 1);
    WORKS(farjump_target_stats(target, &stats, sizeof stats));
    CHECK(stats.calls == 1 && stats.images_linked == 1 && stats.links == 1 && stats.links_ended == 1 && stats.sources == 0);
    CHECK(stats.store_capacity_images == 7 && stats.store_capacity_bytes == 1 << 16 && stats.store_images == 1);
    WORKS(farjump_library_code_id(sum, &id));
    WORKS(farjump_target_drop_code(target, &id));
    GIVES(FARJUMP_NOT_YET, farjump_target_drop_code(target, &id));
    WORKS(farjump_target_close(&target));
}

/* The target that runs `store_get_inside`, and the status of a call of it there. */
static farjump_target_t *outer;
static int inside;

static uint64_t store_get_inside(void *store, uint64_t key)
{
    (void)store;
    inside = farjump_target_call(outer, echo, NULL, 0, NULL);
    CHECK(strstr(farjump_last_error(), "in use") != NULL);
    return key;
}

static void a_program_has_its_target_run_code_without_a_link(void)
{
    farjump_target_config_t *config = offering();
    farjump_target_stats_t stats;
    farjump_target_t *target;
    farjump_code_id_t id;
    const void *image;
    uint64_t total;
    size_t size;
    WORKS(farjump_target_config_set(config, "max-payload", "24"));
    WORKS(farjump_target_listen(address, config, &target));
    WORKS(farjump_target_config_free(&config));
    WORKS(farjump_library_code_id(sum, &id));
    FAILS(FARJUMP_ERROR_REFUSED, "does not hold", farjump_target_call_stored(target, &id, keys, sizeof keys, reply));
    CHECK(farjump_last_cause() == FARJUMP_CAUSE_CODE_MISSING && farjump_bytes_size(reply) == 0);
    for (int way = 0; way < 3; way++) {
        if (way == 0) {
            WORKS(farjump_target_call(target, sum, keys, sizeof keys, reply));
        } else if (way == 1) {
            WORKS(farjump_library_image(sum, &image, &size));
            WORKS(farjump_target_call_image(target, "sum", image, size, keys, sizeof keys, reply));
        } else {
            WORKS(farjump_target_call_stored(target, &id, keys, sizeof keys, reply));
        }
        CHECK(farjump_bytes_size(reply) == sizeof total);
        memcpy(&total, farjump_bytes_data(reply), sizeof total);
        CHECK(total == 70);
    }
    WORKS(farjump_target_call(target, echo, NULL, 0, reply));
    CHECK(farjump_bytes_size(reply) == 0);
    WORKS(farjump_target_call(target, echo, "no reply is wanted", 18, NULL));
    FAILS(FARJUMP_ERROR_PANICKED, "out of order", farjump_target_call(target, panics, "out of order", 12, reply));
    FAILS(FARJUMP_ERROR_REFUSED, "no_such_function", farjump_target_call(target, missing, NULL, 0, reply));
    FAILS(FARJUMP_ERROR_REFUSED, "24 at most", farjump_target_call(target, echo, address, 25, reply));
    FAILS(FARJUMP_ERROR_REFUSED, "junk", farjump_target_call_image(target, "junk", "junk", 4, NULL, 0, reply));
    WORKS(farjump_target_stats(target, &stats, sizeof stats));
    CHECK(stats.calls == 6 && stats.images_linked == 3 && stats.refused == 4 && stats.frames == 0);
    WORKS(farjump_target_close(&target));

    WORKS(farjump_target_config_new(&config));
    WORKS(farjump_target_config_export_function(config, "store_get", (farjump_function_t)store_get_inside));
    WORKS(farjump_target_config_export_data(config, "store_limit", &store_limit));
    WORKS(farjump_target_listen(address, config, &outer));
    WORKS(farjump_target_config_free(&config));
    WORKS(farjump_target_call(outer, sum, keys, sizeof keys, reply));
    CHECK(inside == FARJUMP_ERROR_BUSY);
    WORKS(farjump_target_close(&outer));
}

static void what_may_come_in_is_what_the_policy_says(void)
{
    farjump_target_config_t *config = offering();
    farjump_code_id_t id;
    char digits[33];
    uint64_t refused;
    WORKS(farjump_library_code_id(sum, &id));
    WORKS(farjump_code_id_print(&id, digits));
    WORKS(farjump_target_config_set(config, "allow-code", digits));
    WORKS(farjump_target_config_set(config, "max-payload", "100"));
    struct pair pair = joined(config);
    CHECK(called(pair.link) == 70);
    FAILS(FARJUMP_ERROR_REFUSED, "may come in", farjump_link_call(pair.link, echo, "x", 1, PATIENCE, reply));
    CHECK(farjump_last_cause() == FARJUMP_CAUSE_POLICY);
    FAILS(FARJUMP_ERROR_TOO_LARGE, "100", farjump_link_send(pair.link, sum, address, 101));
    WORKS(farjump_link_set_mode(pair.link, FARJUMP_MODE_IN_PLACE));
    GIVES(FARJUMP_ERROR_REFUSED, farjump_link_call(pair.link, sum, keys, sizeof keys, PATIENCE, reply));
    farjump_target_t *target = parted(&pair);
    WORKS(farjump_target_refused(target, FARJUMP_CAUSE_POLICY, &refused));
    CHECK(refused == 2);
    WORKS(farjump_target_refused(target, FARJUMP_CAUSE_STALLED, &refused));
    CHECK(refused == 0);
    WORKS(farjump_target_close(&target));
}

static void a_process_does_what_its_rights_permit_and_learns_what_is_missing(void)
{
    farjump_target_config_t *config = offering();
    farjump_target_stats_t stats;
    farjump_admin_t *admin;
    farjump_link_t *link = NULL;
    farjump_target_t *target;
    farjump_target_thread_t *thread;
    uint64_t refused;
    FAILS(FARJUMP_ERROR_ARGUMENT, "is no right", farjump_target_config_set(config, "rights", "call,fly"));
    WORKS(farjump_target_config_add_local(config, sum));
    WORKS(farjump_target_config_set(config, "rights", "call"));
    struct pair pair = joined(config);
    CHECK(farjump_link_rights(pair.link) == FARJUMP_RIGHT_CALL && farjump_link_rights(NULL) == 0);
    /* A function of the target's own runs by name and by id. No other function does. */
    WORKS(farjump_link_set_mode(pair.link, FARJUMP_MODE_LOCAL));
    CHECK(called(pair.link) == 70);
    WORKS(farjump_link_set_mode(pair.link, FARJUMP_MODE_CACHED));
    CHECK(called(pair.link) == 70);
    FAILS(FARJUMP_ERROR_REFUSED, "the right `inject`", farjump_link_call(pair.link, echo, "x", 1, PATIENCE, reply));
    CHECK(farjump_last_cause() == FARJUMP_CAUSE_RIGHTS);
    WORKS(farjump_link_set_mode(pair.link, FARJUMP_MODE_ALWAYS));
    FAILS(FARJUMP_ERROR_REFUSED, "the right `inject`", farjump_link_call(pair.link, sum, keys, sizeof keys, PATIENCE, reply));
    WORKS(farjump_admin_new(address, &admin));
    FAILS(FARJUMP_ERROR_CONNECT, "the right `observe`", farjump_admin_stats(admin, &stats, sizeof stats));
    FAILS(FARJUMP_ERROR_CONNECT, "the right `drop`", farjump_admin_drop_all(admin, NULL));
    WORKS(farjump_admin_free(&admin));
    target = parted(&pair);
    WORKS(farjump_target_refused(target, FARJUMP_CAUSE_RIGHTS, &refused));
    CHECK(refused == 1);
    WORKS(farjump_target_close(&target));

    config = offering();
    WORKS(farjump_target_config_set(config, "rights", "none"));
    WORKS(farjump_target_listen(address, config, &target));
    WORKS(farjump_target_config_free(&config));
    WORKS(farjump_target_spawn(&target, &thread));
    FAILS(FARJUMP_ERROR_CONNECT, "the right `call`", farjump_link_connect(address, NULL, &link));
    WORKS(farjump_target_thread_stop(&thread, NULL));
}

static void functions_of_the_targets_own_are_called_by_name(void)
{
    farjump_target_config_t *config = offering();
    farjump_link_stats_t stats;
    WORKS(farjump_target_config_add_local(config, sum));
    WORKS(farjump_target_config_set(config, "modes", "local"));
    struct pair pair = joined(config);
    FAILS(FARJUMP_ERROR_REFUSED, "only local", farjump_link_call(pair.link, sum, keys, sizeof keys, PATIENCE, reply));
    WORKS(farjump_link_set_mode(pair.link, FARJUMP_MODE_LOCAL));
    CHECK(called(pair.link) == 70);
    GIVES(FARJUMP_ERROR_REFUSED, farjump_link_call(pair.link, echo, "x", 1, PATIENCE, reply));
    WORKS(farjump_link_stats(pair.link, &stats, sizeof stats));
    CHECK(stats.frames == 3);
    farjump_target_t *target = parted(&pair);
    WORKS(farjump_target_set_local(target, echo));
    FAILS(FARJUMP_ERROR_REFUSED, "no_such_function", farjump_target_set_local(target, missing));
    WORKS(farjump_target_remove_local(target, "echo"));
    GIVES(FARJUMP_NOT_YET, farjump_target_remove_local(target, "echo"));
    WORKS(farjump_target_close(&target));
}

static uint64_t store_get_hundredfold(void *store, uint64_t key)
{
    CHECK(store == address);
    return key * 100;
}

static void exports_to_a_running_target_go_before_its_choices(void)
{
    farjump_target_config_t *config = offering();
    farjump_admin_t *admin;
    struct pair pair;
    farjump_target_t *target;
    WORKS(farjump_target_listen(address, config, &target));
    WORKS(farjump_target_config_free(&config));
    FAILS(FARJUMP_ERROR_LIBRARY, "no-such.so", farjump_target_export_library(target, "./no-such.so"));
    GIVES(FARJUMP_ERROR_ARGUMENT, farjump_target_export_function(target, "store_get", NULL));
    GIVES(FARJUMP_ERROR_ARGUMENT, farjump_target_export_data(target, "", &store_limit));
    WORKS(farjump_target_export_library(target, "libm.so.6"));
    WORKS(farjump_target_export_function(target, "store_get", (farjump_function_t)store_get_hundredfold));
    WORKS(farjump_target_spawn(&target, &pair.thread));
    WORKS(farjump_link_connect(address, NULL, &pair.link));
    CHECK(called(pair.link) == 700);
    WORKS(farjump_admin_new(address, &admin));
    FAILS(FARJUMP_ERROR_CONNECT, "the right `export`", farjump_admin_export_library(admin, "/proc/self/exe"));
    FAILS(FARJUMP_ERROR_LIBRARY, "cannot read", farjump_admin_export_library(admin, "no-such.so"));
    WORKS(farjump_admin_free(&admin));
    target = parted(&pair);
    WORKS(farjump_target_close(&target));
}

static void imports_are_found_where_the_target_lets_them_be_looked_for(void)
{
    farjump_target_config_t *config = offering();
    struct pair pair = joined(config);
    GIVES(FARJUMP_ERROR_REFUSED, farjump_link_call(pair.link, missing, NULL, 0, PATIENCE, reply));
    farjump_target_t *target = parted(&pair);
    WORKS(farjump_target_close(&target));

    config = offering();
    WORKS(farjump_target_config_set(config, "process-symbols", "yes"));
    pair = joined(config);
    WORKS(farjump_link_call(pair.link, missing, NULL, 0, PATIENCE, reply));
    CHECK(farjump_bytes_size(reply) == 0);
    target = parted(&pair);
    WORKS(farjump_target_close(&target));

    config = offering();
    WORKS(farjump_target_config_set(config, "export-library", "libc.so.6"));
    WORKS(farjump_target_config_set(config, "wanted-library", "libz.so.1"));
    pair = joined(config);
    GIVES(FARJUMP_ERROR_REFUSED, farjump_link_call(pair.link, missing, NULL, 0, PATIENCE, reply));
    CHECK(called(pair.link) == 70);
    target = parted(&pair);
    WORKS(farjump_target_close(&target));
}

/* Checks the target's data as a function sees them. */
static void sees(farjump_target_config_t *config, const char *path, const void *bytes, size_t size)
{
    struct pair pair = joined(config);
    WORKS(farjump_link_call(pair.link, contents, NULL, 0, PATIENCE, reply));
    CHECK(strcmp(farjump_bytes_text(reply), path) == 0);
    CHECK(farjump_bytes_size(reply) == strlen(path) + 1 + size);
    CHECK(memcmp((const char *)farjump_bytes_data(reply) + strlen(path) + 1, bytes, size) == 0);
    farjump_target_t *target = parted(&pair);
    WORKS(farjump_target_close(&target));
}

static void functions_see_the_data_that_their_target_keeps(const char *empty_folder)
{
    char path[4096 + 16], bytes[] = "bytes in memory";
    farjump_target_config_t *config;
    farjump_data_t *data;
    WORKS(farjump_data_from_bytes(bytes, sizeof bytes, &data));
    memset(bytes, 0, sizeof bytes);
    WORKS(farjump_target_config_new(&config));
    WORKS(farjump_target_config_set_args(config, address));
    WORKS(farjump_target_config_set_data(config, data));
    WORKS(farjump_data_free(&data));
    CHECK(data == NULL);
    sees(config, "", "bytes in memory", sizeof bytes);

    WORKS(farjump_data_from_bytes(NULL, 0, &data));
    WORKS(farjump_target_config_new(&config));
    WORKS(farjump_target_config_set_data(config, data));
    WORKS(farjump_data_free(&data));
    sees(config, "", "", 0);

    snprintf(path, sizeof path, "%s/data", empty_folder);
    FAILS(FARJUMP_ERROR_SYSTEM, path, farjump_data_open(path, &data));
    FAILS(FARJUMP_ERROR_SYSTEM, "no regular file", farjump_data_open(empty_folder, &data));
    CHECK(data == NULL);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs("bytes of a file", file) >= 0 && fclose(file) == 0);
    WORKS(farjump_data_open(path, &data));
    CHECK(remove(path) == 0);
    WORKS(farjump_target_config_new(&config));
    WORKS(farjump_target_config_set_data(config, data));
    WORKS(farjump_data_free(&data));
    sees(config, path, "bytes of a file", strlen("bytes of a file"));

    /* Lent by the program, as farjump_data_from_bytes() says. */
    struct farjump_data lent = {sizeof lent, 0, (const uint8_t *)"lent", 4, "a name"};
    WORKS(farjump_target_config_new(&config));
    WORKS(farjump_target_config_set_args(config, &lent));
    sees(config, "a name", "lent", 4);
}

/* GDB's JIT interface, as its manual declares it. The program is linked with libfarjump.a, which has these symbols. */
struct jit_code_entry {
    struct jit_code_entry *next, *previous;
    const char *file;
    uint64_t file_size;
};

extern struct jit_descriptor {
    uint32_t version, action;
    struct jit_code_entry *changed, *first;
} __jit_debug_descriptor;

/* Returns whether the file of an image for debuggers contains this name. A compiler may append to it. */
static int is_shown(const char *name)
{
    const struct jit_code_entry *entry = __jit_debug_descriptor.first;
    return entry != NULL && memmem(entry->file, entry->file_size, name, strlen(name)) != NULL;
}

static void debuggers_are_shown_code_if_the_target_wants_that(const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/libcontents.so", folder);
    struct farjump_data none = {sizeof none, 0, (const uint8_t *)"", 0, ""};
    for (int way = 0; way < 4; way++) {
        farjump_target_config_t *config;
        farjump_target_stats_t stats;
        int by_variable = way == 0, shown = way != 1, with_symbols = way == 3;
        /* The environment decides for programs without the option. */
        CHECK((way < 2 ? setenv("FARJUMP_DEBUG", "1", 1) : unsetenv("FARJUMP_DEBUG")) == 0);
        WORKS(farjump_target_config_new(&config));
        WORKS(farjump_target_config_set_args(config, &none));
        if (!by_variable)
            WORKS(farjump_target_config_set(config, "debug", shown ? "yes" : "no"));
        if (with_symbols)
            WORKS(farjump_target_config_set(config, "debug-symbols", path));
        struct pair pair = joined(config);
        CHECK(__jit_debug_descriptor.first == NULL);
        WORKS(farjump_link_call(pair.link, contents, NULL, 0, PATIENCE, reply));
        CHECK(is_shown("contents_main") == shown && is_shown("append") == with_symbols);
        farjump_target_t *target = parted(&pair);
        WORKS(farjump_target_stats(target, &stats, sizeof stats));
        CHECK(!shown || stats.room_used % 4096 == 0);
        WORKS(farjump_target_close(&target));
        CHECK(__jit_debug_descriptor.first == NULL);
    }
    farjump_target_config_t *config;
    farjump_target_t *none_made;
    WORKS(farjump_target_config_new(&config));
    WORKS(farjump_target_config_set(config, "debug-symbols", "./no-such.so"));
    WORKS(farjump_target_config_set(config, "debug", "yes"));
    FAILS(FARJUMP_ERROR_LIBRARY, "no-such.so", farjump_target_listen(address, config, &none_made));
    WORKS(farjump_target_config_free(&config));
}

static void *connected(void *link)
{
    WORKS(farjump_link_connect(address, NULL, link));
    return NULL;
}

static void pin_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

static void peers_on_one_processor_learn_of_it(void)
{
    cpu_set_t allowed;
    int cpus[2] = {-1, -1};
    farjump_target_config_t *config = offering();
    farjump_target_t *target;
    farjump_link_t *link;
    pthread_t connecting;
    CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
        if (CPU_ISSET(cpu, &allowed))
            cpus[1] = cpus[0], cpus[0] = cpu;
    WORKS(farjump_target_listen(address, config, &target));
    WORKS(farjump_target_config_free(&config));
    CHECK(pthread_create(&connecting, NULL, connected, &link) == 0);
    while (pthread_tryjoin_np(connecting, NULL) != 0)
        WORKS(farjump_target_poll(target, NULL));
    pin_to(cpus[0]);
    CHECK(!farjump_link_may_share_processor(link));
    WORKS(farjump_link_send(link, echo, "x", 1));
    for (size_t ran = 0; ran == 0;)
        WORKS(farjump_target_poll(target, &ran));
    CHECK(farjump_target_may_share_processor(target));
    CHECK(farjump_link_may_share_processor(link));
    if (cpus[1] >= 0) {
        pin_to(cpus[1]);
        CHECK(!farjump_link_may_share_processor(link));
    }
    CHECK(sched_setaffinity(0, sizeof allowed, &allowed) == 0);
    WORKS(farjump_link_close(&link));
    WORKS(farjump_target_close(&target));
}

static farjump_target_thread_t *own_thread;
static pthread_barrier_t spawned;
static int refused_to_wait;

static void stop_own_thread(void *user, const farjump_peer_t *peer)
{
    (void)user, (void)peer;
    pthread_barrier_wait(&spawned);
    GIVES(FARJUMP_ERROR_BUSY, farjump_target_thread_stop(&own_thread, NULL));
    CHECK(own_thread != NULL);
    refused_to_wait = 1;
}

static void a_targets_thread_does_not_wait_for_itself(void)
{
    farjump_target_config_t *config = offering();
    farjump_target_t *target;
    farjump_link_t *link;
    CHECK(pthread_barrier_init(&spawned, NULL, 2) == 0);
    WORKS(farjump_target_config_on_joined(config, stop_own_thread, NULL));
    WORKS(farjump_target_listen(address, config, &target));
    WORKS(farjump_target_config_free(&config));
    WORKS(farjump_target_spawn(&target, &own_thread));
    WORKS(farjump_link_connect(address, NULL, &link));
    pthread_barrier_wait(&spawned);
    CHECK(called(link) == 70);
    WORKS(farjump_target_thread_stop(&own_thread, NULL));
    CHECK(refused_to_wait && own_thread == NULL);
    /* The target's end has been reported. */
    GIVES(FARJUMP_ERROR_PEER_GONE, farjump_link_flush(link, PATIENCE));
    WORKS(farjump_link_close(&link));
}

static farjump_stopper_t *stopper;

static void stop_by_signal(int number)
{
    (void)number;
    farjump_stopper_stop(stopper);
}

static void a_signal_handler_stops_a_target(void)
{
    farjump_target_t *target;
    WORKS(farjump_target_listen(address, NULL, &target));
    WORKS(farjump_stopper_new(target, &stopper));
    CHECK(signal(SIGALRM, stop_by_signal) != SIG_ERR);
    alarm(1);
    WORKS(farjump_target_run(target));
    /* The stopper outlives the target. */
    WORKS(farjump_target_close(&target));
    WORKS(farjump_stopper_stop(stopper));
    WORKS(farjump_stopper_free(&stopper));
}

/* An option, and a value other than its default. */
struct choice {
    const char *name, *value;
};

/* Sets choices in a configuration, and reads them back from it. */
#define ARE_SET(kind, config, choices) \
    for (size_t at = 0; at < sizeof(choices) / sizeof *(choices); at++) { \
        WORKS(farjump_##kind##_config_set(config, (choices)[at].name, (choices)[at].value)); \
        WORKS(farjump_##kind##_config_get(config, (choices)[at].name, &value)); \
        CHECK(value != NULL && strcmp(value, (choices)[at].value) == 0); \
    }

/* Reads choices back from a target or a link. */
#define ARE_IN_FORCE(kind, object, choices) \
    for (size_t at = 0; at < sizeof(choices) / sizeof *(choices); at++) { \
        WORKS(farjump_##kind##_option(object, (choices)[at].name, &value)); \
        CHECK(value != NULL && strcmp(value, (choices)[at].value) == 0); \
    }

static void each_option_is_set_by_name_and_read_back(const char *folder)
{
    char sum_path[4096], contents_path[4096], perf_map[64];
    const struct choice target_options[] = {
        {"key-file", "/nowhere/keys"},
        {"peer-timeout", "20s"},
        {"clear", "yes"},
        {"export-library", "libm.so.6,libc.so.6"},
        {"wanted-library", "libz.so.1"},
        {"rights", "observe,call,inject,drop"},
        {"allow-export", "yes"},
        {"process-symbols", "yes"},
        {"modes", "cached,local"},
        {"local", sum_path},
        {"destination", "next=unix:next.sock,other=unix:other.sock"},
        {"allow-making", "yes"},
        {"forward-mode", "always"},
        {"max-forwards", "7"},
        {"max-hops", "5"},
        {"max-forward-bytes", "8K"},
        {"max-again", "9"},
        {"allow-code", "edc1169992d9aed8ae348fa14a32de94"},
        {"max-frame", "32K"},
        {"max-image", "16K"},
        {"max-payload", "1000"},
        {"max-sources", "3"},
        {"max-source-memory", "1M"},
        {"mailbox-size", "64K"},
        {"prefault", "yes"},
        {"store-bytes", "64K"},
        {"store-images", "7"},
        {"arena-size", "1M"},
        {"cpu-level", "baseline"},
        {"wait-policy", "1/2/0/3"},
        {"stall-timeout", "60s"},
        {"handshake-timeout", "60s"},
        {"control-interval", "2ms"},
        {"program", "a server in C"},
        {"transport", "shm"},
        {"ucx-tcp", "yes"},
        {"perf-map", "yes"},
        {"crash-report", "yes"},
        {"debug", "yes"},
        {"debug-symbols", contents_path},
    };
    /* A target needs a compiler, a device and a key for these. */
    const struct choice more_target_options[] = {
        {"peer-key-file", "/nowhere/key"},
        {"bitcode", "prefer"},
        {"compiler", "/nowhere/compiler"},
        {"llvm", "libLLVM.so.0"},
        {"bitcode-cache", "/nowhere/cache"},
        {"compile-timeout", "3s"},
        {"compile-memory", "512M"},
        {"device", "rxe0:1"},
    };
    const struct choice link_options[] = {
        {"transport", "shm"},
        {"ucx-tcp", "yes"},
        {"key-file", "/nowhere/key"},
        {"peer-timeout", "20s"},
        {"clear", "yes"},
        {"mode", "local"},
        {"connect-timeout", "60s"},
        {"send-timeout", "20s"},
        {"reply-mailbox-size", "64K"},
        {"prefault", "yes"},
        {"wait-policy", "4/3/0/1"},
        {"control-interval", "2ms"},
        {"program", "a source in C"},
        {"compile-for-peer", "yes"},
        {"cc", "cc"},
    };
    const struct choice more_link_options[] = {{"device", "rxe0:1"}};
    const struct choice client_options[] = {
        {"connect-timeout", "60s"},
        {"timeout", "20s"},
        {"transport", "shm"},
        {"key-file", "/nowhere/key"},
        {"mapped", "no"},
    };
    const struct choice store_options[] = {
        {"capacity", "64K"},
        {"spill-folder", "/nowhere"},
        {"spill-bytes", "1M"},
        {"address", "tcp:host:7,tcp:other:8"},
    };
    const struct choice publisher_options[] = {
        {"capacity", "5"},
        {"keep", "1"},
        {"await-subscribers", "2"},
        {"overflow", "drop-oldest"},
    };
    const struct choice subscriber_options[] = {{"from-now", "yes"}, {"publishers", "2"}};
    farjump_target_config_t *serving = offering(), *more;
    farjump_link_config_t *connecting;
    farjump_client_config_t *reading;
    farjump_store_config_t *owning;
    farjump_publisher_config_t *publishing;
    farjump_subscriber_config_t *subscribing;
    farjump_target_thread_t *thread;
    farjump_target_t *target;
    farjump_link_t *link;
    const char *value;
    snprintf(sum_path, sizeof sum_path, "%s/libsum.so", folder);
    snprintf(contents_path, sizeof contents_path, "%s/libcontents.so", folder);

    ARE_SET(target, serving, target_options);
    WORKS(farjump_target_listen(address, serving, &target));
    WORKS(farjump_target_config_free(&serving));
    ARE_IN_FORCE(target, target, target_options);
    WORKS(farjump_target_spawn(&target, &thread));
    WORKS(farjump_link_config_new(&connecting));
    ARE_SET(link, connecting, link_options);
    WORKS(farjump_link_connect(address, connecting, &link));
    ARE_IN_FORCE(link, link, link_options);
    CHECK(called(link) == 70);
    WORKS(farjump_link_set_mode(link, FARJUMP_MODE_CACHED));
    WORKS(farjump_link_option(link, "mode", &value));
    CHECK(strcmp(value, "cached") == 0);
    WORKS(farjump_link_close(&link));
    WORKS(farjump_target_thread_stop(&thread, NULL));
    snprintf(perf_map, sizeof perf_map, "/tmp/perf-%ld.map", (long)getpid());
    CHECK(remove(perf_map) == 0);

    WORKS(farjump_target_config_new(&more));
    ARE_SET(target, more, more_target_options);
    WORKS(farjump_target_config_free(&more));
    ARE_SET(link, connecting, more_link_options);
    WORKS(farjump_link_config_free(&connecting));
    WORKS(farjump_client_config_new(&reading));
    ARE_SET(client, reading, client_options);
    WORKS(farjump_client_config_free(&reading));
    WORKS(farjump_store_config_new(&owning));
    ARE_SET(store, owning, store_options);
    WORKS(farjump_store_config_free(&owning));
    WORKS(farjump_publisher_config_new(&publishing));
    ARE_SET(publisher, publishing, publisher_options);
    WORKS(farjump_publisher_config_free(&publishing));
    WORKS(farjump_subscriber_config_new(&subscribing));
    ARE_SET(subscriber, subscribing, subscriber_options);
    WORKS(farjump_subscriber_config_free(&subscribing));
}

static void an_option_that_cannot_be_set_so_changes_nothing(void)
{
    farjump_target_config_t *config = offering();
    farjump_target_t *target;
    const char *value;
    const uint8_t key[32] = {1, 2, 3};
    WORKS(farjump_target_config_get(config, "max-payload", &value));
    CHECK(value == NULL);
    /* Underscores are hyphens. */
    WORKS(farjump_target_config_set(config, "max_payload", "65536"));
    FAILS(FARJUMP_ERROR_ARGUMENT, "did you mean `max-payload`?", farjump_target_config_set(config, "max-paylod", "1K"));
    FAILS(FARJUMP_ERROR_ARGUMENT, "`max-payload`: ", farjump_target_config_set(config, "max-payload", "much"));
    FAILS(FARJUMP_ERROR_ARGUMENT, "is called `debug-symbols` now", farjump_target_config_set(config, "symbols", "x"));
    FAILS(FARJUMP_ERROR_ARGUMENT, "neither yes nor no", farjump_target_config_set(config, "prefault", "maybe"));
    /* In C these are arguments of functions. */
    FAILS(FARJUMP_ERROR_ARGUMENT, "is no option of a target", farjump_target_config_set(config, "objects", "1G"));
    FAILS(FARJUMP_ERROR_ARGUMENT, "is no option of a target", farjump_target_config_get(config, "listen", &value));
    CHECK(value == NULL);
    WORKS(farjump_target_config_get(config, "max-payload", &value));
    CHECK(strcmp(value, "64K") == 0);

    /* A list is set as a whole. The last key counts. */
    WORKS(farjump_target_config_set(config, "modes", "always"));
    WORKS(farjump_target_config_set(config, "modes", "cached,local"));
    WORKS(farjump_target_config_set(config, "key-file", "/nowhere/keys"));
    WORKS(farjump_target_config_set_key(config, key));
    WORKS(farjump_target_listen(address, config, &target));
    WORKS(farjump_target_option(target, "modes", &value));
    CHECK(strcmp(value, "cached,local") == 0);
    WORKS(farjump_target_option(target, "key-file", &value));
    CHECK(value == NULL);
    FAILS(FARJUMP_ERROR_ARGUMENT, "is called `modes` now", farjump_target_option(target, "mode", &value));
    WORKS(farjump_target_close(&target));
    WORKS(farjump_target_config_set(config, "key-file", "/nowhere/keys"));
    FAILS(FARJUMP_ERROR_CONNECT, "/nowhere/keys", farjump_target_listen("tcp:127.0.0.1:0", config, &target));
    WORKS(farjump_target_config_free(&config));
}

static void find_shm(void *user, const farjump_transport_t *transport)
{
    CHECK(transport->name[0] != 0 && transport->reaches[0] != 0);
    CHECK((transport->why_not == NULL) == (transport->max_frame != 0));
    if (strcmp(transport->name, "shm") == 0 && transport->why_not == NULL)
        *(int *)user = 1;
}

int main(int argc, char **argv)
{
    int shm = 0;
    CHECK(argc == 3);
    snprintf(address, sizeof address, "unix:%s/t.sock", argv[2]);
    sum = open_library(argv[1], "sum");
    echo = open_library(argv[1], "echo");
    missing = open_library(argv[1], "missing");
    contents = open_library(argv[1], "contents");
    panics = open_library(argv[1], "panics");
    WORKS(farjump_bytes_new(&reply));
    code_that_is_held_is_listed_and_forgotten();
    a_program_has_its_target_run_code_without_a_link();
    what_may_come_in_is_what_the_policy_says();
    a_process_does_what_its_rights_permit_and_learns_what_is_missing();
    functions_of_the_targets_own_are_called_by_name();
    exports_to_a_running_target_go_before_its_choices();
    imports_are_found_where_the_target_lets_them_be_looked_for();
    functions_see_the_data_that_their_target_keeps(argv[2]);
    debuggers_are_shown_code_if_the_target_wants_that(argv[1]);
    peers_on_one_processor_learn_of_it();
    a_targets_thread_does_not_wait_for_itself();
    a_signal_handler_stops_a_target();
    an_option_that_cannot_be_set_so_changes_nothing();
    each_option_is_set_by_name_and_read_back(argv[1]);
    /* Last: looking at some transports loads their libraries. */
    WORKS(farjump_transports(find_shm, &shm));
    CHECK(shm);
    WORKS(farjump_bytes_free(&reply));
    WORKS(farjump_library_close(&sum));
    WORKS(farjump_library_close(&echo));
    WORKS(farjump_library_close(&missing));
    WORKS(farjump_library_close(&contents));
    WORKS(farjump_library_close(&panics));
    return all_done();
}
