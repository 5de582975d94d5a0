/* A reader of another process's objects.
 *
 *     reader TABLE RESERVED GONE WAY FOLDER-OF-IFUNC-LIBRARIES
 *
 * The handles are those that the owner printed. WAY is `mapped` or `frames`. It prints a line with each request to the test,
 * and reads a line when the test has handled the request.
 */
#include "hex.h"

#define TABLE 300000

static farjump_client_t *client;
static bool mapped;

/* Sends the test a request, and waits until it is done. */
static void order(const char *what)
{
    char line[64];
    printf("%s\n", what);
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
}

static void connect_to(const farjump_handle_t *handle)
{
    farjump_client_config_t *config;
    WORKS(farjump_client_config_new(&config));
    WORKS(farjump_client_config_set(config, "mapped", mapped ? "yes" : "no"));
    WORKS(farjump_client_config_set(config, "timeout", "60s"));
    WORKS(farjump_client_config_set(config, "connect-timeout", "60s"));
    WORKS(farjump_client_config_set(config, "transport", "shm"));
    WORKS(farjump_client_connect_to_owner(handle, config, &client));
    WORKS(farjump_client_config_free(&config));
    CHECK(farjump_client_is_mapped(client) == mapped);
    CHECK(mapped || strstr(farjump_last_error(), "told not to map") != NULL);
    CHECK(strcmp(farjump_client_address(client), farjump_handle_address(handle, 0)) == 0);
    CHECK(farjump_client_epoch(client) == farjump_handle_epoch(handle) && farjump_client_epoch(client) != 0);
}

static void objects_are_read_put_and_evicted(const farjump_handle_t *table, const farjump_handle_t *gone)
{
    farjump_handle_t *own;
    farjump_view_t *view;
    bool is_there = false;
    CHECK(farjump_handle_size(table) == TABLE && strcmp(farjump_handle_type_name(table), "u8") == 0);
    WORKS(farjump_client_get(client, table, &view));
    CHECK(farjump_view_is_mapped(view) == mapped);
    has_contents(view, TABLE);
    WORKS(farjump_view_release(&view));
    CHECK(view == NULL);
    WORKS(farjump_view_release(&view));

    FAILS(FARJUMP_ERROR_GONE, "is gone", farjump_client_get(client, gone, &view));
    CHECK(view == NULL);
    WORKS(farjump_client_exists(client, gone, &is_there));
    CHECK(!is_there);
    WORKS(farjump_client_evict(client, gone, &is_there));
    CHECK(!is_there);

    /* Objects of all sizes. Some are empty, and some travel with the request. */
    for (size_t size = 0; size <= 200000; size = size * 7 + 1) {
        unsigned char *bytes = malloc(size + 1);
        CHECK(bytes != NULL);
        for (size_t at = 0; at < size; at++)
            bytes[at] = content_at(at);
        WORKS(farjump_client_put(client, "piece", bytes, size, PATIENCE, &own));
        free(bytes);
        CHECK(farjump_handle_size(own) == size && strcmp(farjump_handle_type_name(own), "piece") == 0);
        WORKS(farjump_client_get(client, own, &view));
        has_contents(view, size);
        WORKS(farjump_client_exists(client, own, &is_there));
        CHECK(is_there);
        WORKS(farjump_client_evict(client, own, &is_there));
        CHECK(is_there);
        /* It is evicted while it is read. */
        FAILS(FARJUMP_ERROR_GONE, "evicted", farjump_client_get(client, own, &(farjump_view_t *){NULL}));
        has_contents(view, size);
        WORKS(farjump_view_release(&view));
        WORKS(farjump_handle_free(&own));
    }
}

static void a_reserved_object_is_waited_for(const farjump_handle_t *reserved)
{
    farjump_view_t *view;
    farjump_handle_t *own, *unset;
    CHECK(farjump_handle_size(reserved) == 0 && strcmp(farjump_handle_type_name(reserved), "later") == 0);
    FAILS(FARJUMP_ERROR_UNSET, "is reserved", farjump_client_get(client, reserved, &view));
    FAILS(FARJUMP_ERROR_TIMEOUT, "did not answer", farjump_client_wait(client, reserved, 1000000, &view));
    CHECK(view == NULL);
    order("set");
    WORKS(farjump_client_wait(client, reserved, PATIENCE, &view));
    CHECK(farjump_view_size(view) == 8 && memcmp(farjump_view_data(view), "contents", 8) == 0);
    WORKS(farjump_view_release(&view));

    WORKS(farjump_client_reserve(client, "own", &unset));
    WORKS(farjump_client_set(client, unset, "x", 1, PATIENCE));
    WORKS(farjump_client_get(client, unset, &view));
    CHECK(farjump_view_size(view) == 1);
    WORKS(farjump_view_release(&view));
    WORKS(farjump_client_put(client, NULL, "y", 1, PATIENCE, &own));
    FAILS(FARJUMP_ERROR_ARGUMENT, "only a reserved one", farjump_client_set(client, own, "x", 1, PATIENCE));
    WORKS(farjump_client_evict(client, own, NULL));
    WORKS(farjump_client_evict(client, unset, NULL));
    WORKS(farjump_handle_free(&own));
    WORKS(farjump_handle_free(&unset));
}

static void leases_and_counts_end_objects(void)
{
    farjump_handle_t *own;
    bool is_there;
    uint64_t count = 0;
    WORKS(farjump_client_put(client, NULL, "y", 1, PATIENCE, &own));
    WORKS(farjump_client_lease(client, own, PATIENCE));
    WORKS(farjump_client_lease(client, own, FARJUMP_FOREVER));
    WORKS(farjump_client_count(client, own, 2, &count));
    CHECK(count == 2);
    WORKS(farjump_client_count(client, own, -1, NULL));
    WORKS(farjump_client_exists(client, own, &is_there));
    CHECK(is_there);
    WORKS(farjump_client_count(client, own, -1, &count));
    CHECK(count == 0);
    FAILS(FARJUMP_ERROR_GONE, "is gone", farjump_client_count(client, own, 1, NULL));
    FAILS(FARJUMP_ERROR_GONE, "is gone", farjump_client_lease(client, own, 1));
    WORKS(farjump_handle_free(&own));

    WORKS(farjump_client_put(client, NULL, "y", 1, PATIENCE, &own));
    WORKS(farjump_client_lease(client, own, 1));
    do
        WORKS(farjump_client_exists(client, own, &is_there));
    while (is_there);
    WORKS(farjump_handle_free(&own));
}

static void functions_run_where_the_object_is(const farjump_handle_t *table, const farjump_handle_t *gone, const char *folder)
{
    farjump_library_t *sum = open_library(folder, "sum_at"), *reversed = open_library(folder, "reversed_at");
    farjump_bytes_t *reply;
    farjump_handle_t *derived;
    farjump_view_t *view;
    uint64_t factor = 3, expected = 0, came;
    for (size_t at = 0; at < TABLE; at++)
        expected += content_at(at);
    WORKS(farjump_bytes_new(&reply));
    WORKS(farjump_client_call(client, sum, table, &factor, sizeof factor, PATIENCE, reply));
    CHECK(farjump_bytes_size(reply) == sizeof came);
    memcpy(&came, farjump_bytes_data(reply), sizeof came);
    CHECK(came == 3 * expected);
    WORKS(farjump_client_call(client, sum, table, &factor, sizeof factor, PATIENCE, NULL));
    FAILS(FARJUMP_ERROR_PANICKED, "no object", farjump_client_call(client, sum, gone, &factor, sizeof factor, PATIENCE, reply));
    CHECK(farjump_bytes_size(reply) == 0);

    WORKS(farjump_client_derive(client, reversed, table, NULL, 0, &derived));
    CHECK(farjump_handle_number(derived) != farjump_handle_number(table));
    WORKS(farjump_client_get(client, derived, &view));
    CHECK(farjump_view_size(view) == TABLE);
    for (size_t at = 0; at < TABLE; at++)
        CHECK(((const unsigned char *)farjump_view_data(view))[at] == content_at(TABLE - 1 - at));
    WORKS(farjump_view_release(&view));
    WORKS(farjump_client_evict(client, derived, NULL));
    WORKS(farjump_handle_free(&derived));
    FAILS(FARJUMP_ERROR_TRANSPORT, "`sum_at` has not made one object",
          farjump_client_derive(client, sum, table, &factor, sizeof factor, &derived));
    CHECK(derived == NULL);
    FAILS(FARJUMP_ERROR_PANICKED, "no object", farjump_client_derive(client, reversed, gone, NULL, 0, &derived));
    FAILS(FARJUMP_ERROR_ARGUMENT, "`library` is NULL", farjump_client_derive(client, NULL, table, NULL, 0, &derived));
    FAILS(FARJUMP_ERROR_ARGUMENT, "`library` is NULL", farjump_client_call(client, NULL, table, NULL, 0, PATIENCE, NULL));
    WORKS(farjump_library_close(&sum));
    WORKS(farjump_library_close(&reversed));
    WORKS(farjump_bytes_free(&reply));
}

static void a_full_store_refuses(void)
{
    farjump_handle_t *own;
    char *bytes = calloc(1, 1 << 20);
    CHECK(bytes != NULL);
    FAILS(FARJUMP_ERROR_STORE_FULL, "no memory for 1048576 bytes",
          farjump_client_put(client, NULL, bytes, 1 << 20, PATIENCE, &own));
    CHECK(own == NULL);
    free(bytes);
}

static void forged_handles_are_refused(const char *digits)
{
    unsigned char bytes[FARJUMP_MAX_HANDLE];
    farjump_handle_t *forged;
    farjump_view_t *view;
    bool is_there = true;
    size_t size = read_hex(digits, bytes);
    for (size_t cut = 0; cut < size; cut++) {
        FAILS(FARJUMP_ERROR_ARGUMENT, "cut off", farjump_handle_from_bytes(bytes, cut, &forged));
        CHECK(forged == NULL);
    }
    FAILS(FARJUMP_ERROR_ARGUMENT, "more bytes follow", farjump_handle_from_bytes(bytes, size + 1, &forged));
    bytes[3]++;
    FAILS(FARJUMP_ERROR_ARGUMENT, "of version 2", farjump_handle_from_bytes(bytes, size, &forged));
    bytes[3]--;
    for (size_t at = 4; at < 44; at++) {
        bytes[at] ^= 0x10;
        WORKS(farjump_handle_from_bytes(bytes, size, &forged));
        int status = farjump_client_get(client, forged, &view);
        if (at >= 20 && at < 28) {
            /* The length in a handle is for users. The length at the owner counts. */
            WORKS(status);
            has_contents(view, TABLE);
            WORKS(farjump_view_release(&view));
        } else {
            /* Each number has a key of its own, even if there never was an object of that number. */
            bool key = at >= 12;
            GIVES(key ? FARJUMP_ERROR_WRONG_KEY : FARJUMP_ERROR_GONE, status);
            CHECK(view == NULL);
            GIVES(key ? FARJUMP_ERROR_WRONG_KEY : FARJUMP_OK, farjump_client_evict(client, forged, &is_there));
            CHECK(key || !is_there);
        }
        WORKS(farjump_handle_free(&forged));
        bytes[at] ^= 0x10;
    }
}

static void what_is_evicted_or_loses_its_owner_stays_while_it_is_read(const farjump_handle_t *table)
{
    farjump_view_t *view, *none;
    farjump_handle_t *other;
    char zeros[5000] = {0};
    int status;
    WORKS(farjump_client_get(client, table, &view));
    order("evict");
    FAILS(FARJUMP_ERROR_GONE, "is gone", farjump_client_get(client, table, &none));
    /* It is not overwritten, even if the store gets full. */
    do {
        status = farjump_client_put(client, NULL, zeros, sizeof zeros, PATIENCE, &other);
        if (status == FARJUMP_OK)
            WORKS(farjump_handle_free(&other));
    } while (status == FARJUMP_OK);
    CHECK(status == FARJUMP_ERROR_STORE_FULL);
    has_contents(view, TABLE);
    order("kill");
    has_contents(view, TABLE);
    GIVES(FARJUMP_ERROR_PEER_GONE, farjump_client_get(client, table, &none));
    CHECK(none == NULL);
    has_contents(view, TABLE);
    WORKS(farjump_client_close(&client));
    has_contents(view, TABLE);
    GIVES(FARJUMP_ERROR_CONNECT, farjump_client_connect_to_owner(table, NULL, &client));
    WORKS(farjump_view_release(&view));

    order("restart");
    WORKS(farjump_client_connect_to_owner(table, NULL, &client));
    FAILS(FARJUMP_ERROR_GONE, "has restarted", farjump_client_get(client, table, &view));
    WORKS(farjump_client_close(&client));
}

int main(int argc, char **argv)
{
    farjump_handle_t *table, *reserved, *gone;
    CHECK(argc == 6);
    table = read_handle(argv[1]);
    reserved = read_handle(argv[2]);
    gone = read_handle(argv[3]);
    mapped = strcmp(argv[4], "mapped") == 0;
    connect_to(table);

    objects_are_read_put_and_evicted(table, gone);
    a_reserved_object_is_waited_for(reserved);
    leases_and_counts_end_objects();
    functions_run_where_the_object_is(table, gone, argv[5]);
    a_full_store_refuses();
    forged_handles_are_refused(argv[1]);
    what_is_evicted_or_loses_its_owner_stays_while_it_is_read(table);

    WORKS(farjump_handle_free(&table));
    WORKS(farjump_handle_free(&reserved));
    WORKS(farjump_handle_free(&gone));
    return all_done();
}
