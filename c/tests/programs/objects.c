/* A store and its client in one process: the operations of an owner, and errors of C programs.
 *
 *     objects FOLDER-OF-IFUNC-LIBRARIES EMPTY-FOLDER
 */
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hex.h"

#define IS_NULL(words, call) FAILS(FARJUMP_ERROR_ARGUMENT, "`" words "` is NULL", call)

static char address[4096];

static int refuse(void *user, void *data, size_t size)
{
    (void)data;
    CHECK(size == 100);
    return *(int *)user;
}

static int put_inside(void *user, void *data, size_t size)
{
    farjump_handle_t *inner;
    memset(data, 7, size);
    WORKS(farjump_store_put((farjump_store_t *)user, NULL, "inner", 5, &inner));
    WORKS(farjump_store_evict((farjump_store_t *)user, inner, NULL));
    WORKS(farjump_handle_free(&inner));
    return 0;
}

static void count_object(void *user, const farjump_object_t *object)
{
    CHECK(object->number != 0 && object->type_name != NULL && object->lease_ns <= FARJUMP_FOREVER);
    ++*(int *)user;
}

static void an_owner_uses_its_own_objects(const char *folder)
{
    farjump_store_config_t *config;
    farjump_store_t *store;
    farjump_store_stats_t stats;
    farjump_handle_t *handle, *other;
    farjump_view_t *view, *none;
    char path[4096];
    int counted = 0, failure = 5;
    bool is_there;
    WORKS(farjump_store_config_new(&config));
    WORKS(farjump_store_config_set(config, "capacity", "64K"));
    WORKS(farjump_store_config_set(config, "spill-folder", folder));
    FAILS(FARJUMP_ERROR_ARGUMENT, "no effect without `spill-bytes`", farjump_store_open(config, &store));
    WORKS(farjump_store_config_set(config, "spill-bytes", "1M"));
    WORKS(farjump_store_config_set(config, "address", "tcp:host:7"));
    WORKS(farjump_store_open(config, &store));

    WORKS(farjump_store_put(store, "u8", "five!", 5, &handle));
    CHECK(strcmp(farjump_handle_address(handle, 0), "tcp:host:7") == 0 && farjump_handle_address(handle, 1) == NULL);
    CHECK(farjump_handle_size(handle) == 5 && farjump_handle_number(handle) != 0 && farjump_handle_epoch(handle) != 0);
    WORKS(farjump_store_get(store, handle, &view));
    CHECK(farjump_view_is_mapped(view) && (uintptr_t)farjump_view_data(view) % 64 == 0);
    CHECK(farjump_view_size(view) == 5 && memcmp(farjump_view_data(view), "five!", 5) == 0);
    WORKS(farjump_view_release(&view));

    /* Objects in a full memory are spilled, and read back. */
    char *large = malloc(40000);
    CHECK(large != NULL);
    memset(large, 1, 40000);
    for (int round = 0; round < 3; round++) {
        WORKS(farjump_store_put(store, "large", large, 40000, &other));
        WORKS(farjump_handle_free(&other));
    }
    free(large);
    WORKS(farjump_store_get(store, handle, &view));
    CHECK(memcmp(farjump_view_data(view), "five!", 5) == 0);
    WORKS(farjump_store_stats(store, &stats, sizeof stats));
    CHECK(stats.objects == 4 && stats.capacity == 1 << 16 && stats.used > 40000 && stats.used <= stats.capacity);
    WORKS(farjump_store_objects(store, count_object, &counted));
    CHECK(counted == 4);

    WORKS(farjump_store_exists(store, handle, &is_there));
    CHECK(is_there);
    WORKS(farjump_store_evict(store, handle, &is_there));
    CHECK(is_there);
    WORKS(farjump_store_evict(store, handle, &is_there));
    CHECK(!is_there);
    GIVES(FARJUMP_ERROR_GONE, farjump_store_lease(store, handle, 1));
    CHECK(memcmp(farjump_view_data(view), "five!", 5) == 0);
    WORKS(farjump_handle_free(&handle));

    FAILS(FARJUMP_ERROR_ARGUMENT, "failed with 5", farjump_store_put_with(store, NULL, 100, refuse, &failure, &handle));
    CHECK(handle == NULL);
    WORKS(farjump_store_put_with(store, NULL, 100, put_inside, store, &handle));
    WORKS(farjump_store_lease(store, handle, PATIENCE));
    WORKS(farjump_store_lease(store, handle, FARJUMP_FOREVER));
    WORKS(farjump_store_lease(store, handle, 1));
    do
        WORKS(farjump_store_exists(store, handle, &is_there));
    while (is_there);
    WORKS(farjump_handle_free(&handle));
    WORKS(farjump_store_put(store, NULL, NULL, 0, &handle));
    FAILS(FARJUMP_ERROR_ARGUMENT, "only a reserved", farjump_store_set(store, handle, "x", 1));
    WORKS(farjump_handle_free(&handle));
    WORKS(farjump_store_reserve(store, NULL, &handle));
    GIVES(FARJUMP_ERROR_UNSET, farjump_store_get(store, handle, &none));
    WORKS(farjump_store_set(store, handle, "x", 1));
    WORKS(farjump_handle_free(&handle));

    snprintf(path, sizeof path, "%s/file", folder);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs("of a file", file) >= 0 && fclose(file) == 0);
    WORKS(farjump_store_put_file(store, path, &handle));
    CHECK(farjump_handle_size(handle) == 9 && remove(path) == 0);
    FAILS(FARJUMP_ERROR_SYSTEM, path, farjump_store_put_file(store, path, &other));
    FAILS(FARJUMP_ERROR_SYSTEM, "no regular file", farjump_store_put_file(store, folder, &other));
    WORKS(farjump_handle_free(&handle));

    /* A store reports objects of another store as gone. */
    farjump_store_t *second;
    WORKS(farjump_store_open(NULL, &second));
    WORKS(farjump_store_put(second, NULL, "x", 1, &handle));
    CHECK(farjump_handle_address(handle, 0) == NULL);
    GIVES(FARJUMP_ERROR_GONE, farjump_store_get(store, handle, &none));
    farjump_client_t *client;
    FAILS(FARJUMP_ERROR_ARGUMENT, "no address", farjump_client_connect_to_owner(handle, NULL, &client));
    WORKS(farjump_handle_free(&handle));
    WORKS(farjump_store_close(&second));

    WORKS(farjump_store_config_set(config, "spill-folder", "/nowhere"));
    FAILS(FARJUMP_ERROR_SYSTEM, "/nowhere", farjump_store_open(config, &second));
    CHECK(second == NULL);
    WORKS(farjump_store_config_free(&config));
    /* A view outlives its store. */
    WORKS(farjump_store_close(&store));
    CHECK(store == NULL && memcmp(farjump_view_data(view), "five!", 5) == 0);
    WORKS(farjump_store_close(&store));
    WORKS(farjump_view_release(&view));
}

static void a_null_where_something_must_be(void)
{
    farjump_store_t *store, *no_store = NULL;
    farjump_client_t *client = NULL;
    farjump_store_config_t *store_config;
    farjump_client_config_t *client_config;
    farjump_handle_t *handle, *no_handle = NULL;
    farjump_view_t *view;
    farjump_bytes_t *bytes;
    farjump_store_stats_t stats;
    farjump_target_config_t *config;
    farjump_admin_t *admin;
    const char *value;
    bool answer;
    char name[300];
    WORKS(farjump_store_open(NULL, &store));
    WORKS(farjump_store_put(store, NULL, "x", 1, &handle));
    WORKS(farjump_bytes_new(&bytes));

    IS_NULL("config", farjump_store_config_new(NULL));
    IS_NULL("config", farjump_store_config_free(NULL));
    IS_NULL("config", farjump_store_config_set(NULL, "capacity", "1"));
    IS_NULL("config", farjump_store_config_get(NULL, "capacity", &value));
    WORKS(farjump_store_config_new(&store_config));
    IS_NULL("name", farjump_store_config_set(store_config, NULL, "1"));
    IS_NULL("value", farjump_store_config_set(store_config, "capacity", NULL));
    IS_NULL("value", farjump_store_config_get(store_config, "capacity", NULL));
    IS_NULL("name", farjump_store_config_get(store_config, NULL, &value));
    CHECK(value == NULL);
    WORKS(farjump_store_config_free(&store_config));
    IS_NULL("store", farjump_store_open(NULL, NULL));
    IS_NULL("store", farjump_store_close(NULL));
    IS_NULL("store", farjump_store_put(no_store, NULL, "x", 1, &no_handle));
    IS_NULL("handle", farjump_store_put(store, NULL, "x", 1, NULL));
    FAILS(FARJUMP_ERROR_ARGUMENT, "nothing at NULL", farjump_store_put(store, NULL, NULL, 1, &no_handle));
    IS_NULL("write", farjump_store_put_with(store, NULL, 1, NULL, NULL, &no_handle));
    IS_NULL("path", farjump_store_put_file(store, NULL, &no_handle));
    IS_NULL("store", farjump_store_get(NULL, handle, &view));
    IS_NULL("handle", farjump_store_get(store, NULL, &view));
    IS_NULL("view", farjump_store_get(store, handle, NULL));
    IS_NULL("handle", farjump_store_evict(store, NULL, &answer));
    IS_NULL("exists", farjump_store_exists(store, handle, NULL));
    IS_NULL("handle", farjump_store_reserve(store, NULL, NULL));
    IS_NULL("handle", farjump_store_set(store, NULL, "x", 1));
    IS_NULL("handle", farjump_store_lease(store, NULL, 1));
    IS_NULL("callback", farjump_store_objects(store, NULL, NULL));
    IS_NULL("stats", farjump_store_stats(store, NULL, sizeof stats));
    FAILS(FARJUMP_ERROR_ARGUMENT, "sizeof", farjump_store_stats(store, &stats, 8));
    memset(name, 'x', sizeof name);
    name[299] = 0;
    FAILS(FARJUMP_ERROR_ARGUMENT, "255 are allowed", farjump_store_put(store, name, "x", 1, &no_handle));
    FAILS(FARJUMP_ERROR_ARGUMENT, "no UTF-8", farjump_store_put(store, "\xff", "x", 1, &no_handle));

    IS_NULL("handle", farjump_handle_from_bytes("x", 1, NULL));
    FAILS(FARJUMP_ERROR_ARGUMENT, "cut off", farjump_handle_from_bytes("x", 1, &no_handle));
    FAILS(FARJUMP_ERROR_ARGUMENT, "begin with FJH", farjump_handle_from_bytes("other bytes", 11, &no_handle));
    IS_NULL("handle", farjump_handle_to_bytes(NULL, bytes));
    IS_NULL("bytes", farjump_handle_to_bytes(handle, NULL));
    IS_NULL("handle", farjump_handle_free(NULL));
    CHECK(farjump_handle_equals(handle, handle) && !farjump_handle_equals(handle, NULL));
    CHECK(farjump_handle_size(NULL) == 0 && farjump_handle_number(NULL) == 0 && farjump_handle_epoch(NULL) == 0);
    CHECK(farjump_handle_type_name(NULL) == NULL && farjump_handle_address(NULL, 0) == NULL);

    CHECK(farjump_view_data(NULL) == NULL && farjump_view_size(NULL) == 0 && !farjump_view_is_mapped(NULL));
    IS_NULL("view", farjump_view_release(NULL));

    IS_NULL("config", farjump_client_config_new(NULL));
    IS_NULL("config", farjump_client_config_free(NULL));
    IS_NULL("config", farjump_client_config_set(NULL, "timeout", "1s"));
    IS_NULL("config", farjump_client_config_get(NULL, "timeout", &value));
    WORKS(farjump_client_config_new(&client_config));
    FAILS(FARJUMP_ERROR_ARGUMENT, "smoke-signals", farjump_client_config_set(client_config, "transport", "smoke-signals"));
    WORKS(farjump_client_config_set(client_config, "key-file", "/nowhere"));
    FAILS(FARJUMP_ERROR_CONNECT, "/nowhere", farjump_client_connect("tcp:127.0.0.1:1", client_config, &client));
    WORKS(farjump_client_config_free(&client_config));
    IS_NULL("client", farjump_client_connect("unix:x", NULL, NULL));
    IS_NULL("address", farjump_client_connect(NULL, NULL, &client));
    IS_NULL("handle", farjump_client_connect_to_owner(NULL, NULL, &client));
    GIVES(FARJUMP_ERROR_CONNECT, farjump_client_connect("nowhere", NULL, &client));
    GIVES(FARJUMP_ERROR_CONNECT, farjump_client_connect(address, NULL, &client));
    CHECK(client == NULL);
    IS_NULL("client", farjump_client_close(NULL));
    CHECK(farjump_client_address(NULL) == NULL && farjump_client_epoch(NULL) == 0 && !farjump_client_is_mapped(NULL));
    IS_NULL("client", farjump_client_get(NULL, handle, &view));
    IS_NULL("client", farjump_client_wait(NULL, handle, 0, &view));
    IS_NULL("client", farjump_client_put(NULL, NULL, "x", 1, 0, &no_handle));
    IS_NULL("client", farjump_client_reserve(NULL, NULL, &no_handle));
    IS_NULL("client", farjump_client_set(NULL, handle, "x", 1, 0));
    IS_NULL("client", farjump_client_evict(NULL, handle, NULL));
    IS_NULL("client", farjump_client_exists(NULL, handle, &answer));
    IS_NULL("client", farjump_client_lease(NULL, handle, 0));
    IS_NULL("client", farjump_client_count(NULL, handle, 1, NULL));

    WORKS(farjump_target_config_new(&config));
    IS_NULL("store", farjump_target_config_set_objects(config, NULL));
    IS_NULL("config", farjump_target_config_set_objects(NULL, store));
    WORKS(farjump_target_config_free(&config));
    WORKS(farjump_admin_new(address, &admin));
    IS_NULL("callback", farjump_admin_objects(admin, NULL, NULL));
    IS_NULL("admin", farjump_admin_objects(NULL, count_object, NULL));
    WORKS(farjump_admin_free(&admin));

    WORKS(farjump_handle_free(&handle));
    WORKS(farjump_bytes_free(&bytes));
    WORKS(farjump_store_close(&store));
}

static void *read_often(void *client)
{
    farjump_handle_t *handle;
    farjump_view_t *view;
    for (int round = 0; round < 200; round++) {
        unsigned char bytes[2000];
        for (size_t at = 0; at < sizeof bytes; at++)
            bytes[at] = content_at(at);
        WORKS(farjump_client_put(client, NULL, bytes, sizeof bytes, PATIENCE, &handle));
        WORKS(farjump_client_get(client, handle, &view));
        WORKS(farjump_client_evict(client, handle, NULL));
        has_contents(view, sizeof bytes);
        WORKS(farjump_view_release(&view));
        WORKS(farjump_handle_free(&handle));
    }
    return NULL;
}

/* A forked child has its parent's client, but can neither use nor disturb it. */
static void a_child_connects_itself(farjump_client_t *client, const farjump_handle_t *handle)
{
    farjump_view_t *view, *none;
    int status;
    WORKS(farjump_client_get(client, handle, &view));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FAILS(FARJUMP_ERROR_ARGUMENT, "was forked", farjump_client_get(client, handle, &none));
        WORKS(farjump_view_release(&view));
        WORKS(farjump_client_close(&client));
        WORKS(farjump_client_connect_to_owner(handle, NULL, &client));
        WORKS(farjump_client_get(client, handle, &view));
        CHECK(*(const char *)farjump_view_data(view) == 'x');
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(*(const char *)farjump_view_data(view) == 'x');
    WORKS(farjump_view_release(&view));
    WORKS(farjump_client_get(client, handle, &view));
    WORKS(farjump_view_release(&view));
}

static void threads_share_a_client_and_a_target_without_a_store_says_so(void)
{
    farjump_store_t *store;
    farjump_target_t *target;
    farjump_target_thread_t *thread;
    farjump_client_t *client;
    farjump_admin_t *admin;
    farjump_handle_t *handle;
    pthread_t readers[3];
    int counted = 0;
    WORKS(farjump_target_listen(address, NULL, &target));
    WORKS(farjump_target_spawn(&target, &thread));
    FAILS(FARJUMP_ERROR_REFUSED, "store", farjump_client_connect(address, NULL, &client));
    WORKS(farjump_admin_new(address, &admin));
    FAILS(FARJUMP_ERROR_CONNECT, "no store of objects", farjump_admin_objects(admin, count_object, &counted));
    WORKS(farjump_target_thread_stop(&thread, NULL));

    WORKS(farjump_store_open(NULL, &store));
    thread = own_store(address, store);
    WORKS(farjump_store_put(store, NULL, "x", 1, &handle));
    CHECK(strcmp(farjump_handle_address(handle, 0), address) == 0);
    /* The target keeps the store. */
    WORKS(farjump_store_close(&store));
    WORKS(farjump_client_connect(address, NULL, &client));
    for (int reader = 0; reader < 3; reader++)
        CHECK(pthread_create(&readers[reader], NULL, read_often, client) == 0);
    for (int reader = 0; reader < 3; reader++)
        CHECK(pthread_join(readers[reader], NULL) == 0);
    a_child_connects_itself(client, handle);
    WORKS(farjump_admin_objects(admin, count_object, &counted));
    CHECK(counted >= 1);
    WORKS(farjump_admin_free(&admin));
    WORKS(farjump_handle_free(&handle));
    WORKS(farjump_client_close(&client));
    WORKS(farjump_target_thread_stop(&thread, NULL));
}

static void memory_of_a_client_without_its_owners_link_is_in_quarantine(void)
{
    farjump_store_t *store;
    farjump_store_stats_t stats;
    farjump_target_thread_t *thread;
    farjump_client_t *client;
    farjump_handle_t *handle;
    farjump_view_t *view;
    WORKS(farjump_store_open(NULL, &store));
    thread = own_store(address, store);
    WORKS(farjump_store_put(store, NULL, "five!", 5, &handle));
    WORKS(farjump_client_connect(address, NULL, &client));
    WORKS(farjump_client_get(client, handle, &view));
    CHECK(farjump_view_is_mapped(view));
    WORKS(farjump_store_stats(store, &stats, sizeof stats));
    CHECK(stats.quarantined == 0);
    WORKS(farjump_target_thread_stop(&thread, NULL));
    WORKS(farjump_store_stats(store, &stats, sizeof stats));
    CHECK(stats.quarantined >= 5 && stats.quarantined <= stats.used);
    WORKS(farjump_view_release(&view));
    WORKS(farjump_client_close(&client));
    /* A connection with unread messages is closed by another thread. */
    for (int look = 0; look < 60000 && stats.quarantined != 0; look++) {
        struct timespec moment = {0, 1000000};
        nanosleep(&moment, NULL);
        WORKS(farjump_store_stats(store, &stats, sizeof stats));
    }
    CHECK(stats.quarantined == 0);
    WORKS(farjump_handle_free(&handle));
    WORKS(farjump_store_close(&store));
}

/* Counts the descriptors of this process, and its mappings of stores. */
static void count_kept(int *descriptors, int *mappings)
{
    char line[4096];
    DIR *folder = opendir("/proc/self/fd");
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(folder != NULL && maps != NULL);
    *descriptors = *mappings = 0;
    while (readdir(folder) != NULL)
        ++*descriptors;
    while (fgets(line, sizeof line, maps) != NULL)
        *mappings += strstr(line, "memfd:farjump-objects") != NULL;
    closedir(folder);
    fclose(maps);
}

static void a_resolver_keeps_nothing_of_owners_that_ended(const char *folder)
{
    struct rlimit before, few;
    farjump_resolver_t *resolver;
    int descriptors, mappings, first_descriptors = 0, first_mappings = 0;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few = before;
    few.rlim_cur = 256;
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    WORKS(farjump_resolver_new(&resolver));
    for (int turn = 0; turn < 100; turn++) {
        char own_address[4096];
        farjump_store_t *store;
        farjump_target_thread_t *thread;
        farjump_handle_t *handle;
        farjump_view_t *view;
        snprintf(own_address, sizeof own_address, "unix:%s/%d.sock", folder, turn);
        WORKS(farjump_store_open(NULL, &store));
        thread = own_store(own_address, store);
        WORKS(farjump_store_put(store, NULL, "bytes", 5, &handle));
        WORKS(farjump_resolver_get(resolver, handle, &view));
        CHECK(farjump_view_size(view) == 5 && farjump_view_is_mapped(view));
        WORKS(farjump_view_release(&view));
        WORKS(farjump_handle_free(&handle));
        WORKS(farjump_store_close(&store));
        WORKS(farjump_target_thread_stop(&thread, NULL));
        /* The next use reveals the end of the last owner. A thread closes descriptors of ended links. */
        count_kept(&descriptors, &mappings);
        if (turn == 1) {
            first_descriptors = descriptors;
            first_mappings = mappings;
        }
        CHECK(turn == 0 || (descriptors <= first_descriptors + 40 && mappings <= first_mappings));
    }
    WORKS(farjump_resolver_free(&resolver));
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    snprintf(address, sizeof address, "unix:%s/t.sock", argv[2]);
    an_owner_uses_its_own_objects(argv[2]);
    a_null_where_something_must_be();
    threads_share_a_client_and_a_target_without_a_store_says_so();
    memory_of_a_client_without_its_owners_link_is_in_quarantine();
    a_resolver_keeps_nothing_of_owners_that_ended(argv[2]);
    return all_done();
}
