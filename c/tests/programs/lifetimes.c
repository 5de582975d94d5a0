/* An owner of objects with lifetimes, a client in the same process, and a child that takes over a reference.
 *
 *     lifetimes FOLDER-OF-IFUNC-LIBRARIES EMPTY-FOLDER
 */
#include <sys/wait.h>
#include <unistd.h>

#include "hex.h"

#define IS_NULL(words, call) FAILS(FARJUMP_ERROR_ARGUMENT, "`" words "` is NULL", call)

static farjump_store_t *store;
static farjump_client_t *client;

static bool is_there(const farjump_handle_t *handle)
{
    bool exists;
    WORKS(farjump_store_exists(store, handle, &exists));
    return exists;
}

static farjump_handle_t *put(void)
{
    farjump_handle_t *handle;
    WORKS(farjump_store_put(store, "text", "contents", 8, &handle));
    return handle;
}

static void an_owned_object_goes_with_its_owner(void)
{
    farjump_handle_t *handle = put();
    farjump_owned_t *owned;
    farjump_view_t *view;
    bool was_there = false;
    WORKS(farjump_store_own(store, handle, &owned));
    CHECK(farjump_handle_equals(farjump_owned_handle(owned), handle));
    CHECK(strcmp(farjump_handle_type_name(farjump_owned_handle(owned)), "text") == 0);
    WORKS(farjump_client_get(client, farjump_owned_handle(owned), &view));
    WORKS(farjump_owned_release(&owned, &was_there));
    CHECK(was_there && owned == NULL && !is_there(handle));
    CHECK(memcmp(farjump_view_data(view), "contents", 8) == 0);
    WORKS(farjump_view_release(&view));
    WORKS(farjump_owned_release(&owned, &was_there));
    CHECK(!was_there);
    /* An object that is gone already is no error. */
    WORKS(farjump_client_own(client, handle, &owned));
    was_there = true;
    WORKS(farjump_owned_release(&owned, &was_there));
    CHECK(!was_there);
    WORKS(farjump_handle_free(&handle));

    handle = put();
    WORKS(farjump_client_own(client, handle, &owned));
    WORKS(farjump_owned_release(&owned, NULL));
    CHECK(!is_there(handle));
    WORKS(farjump_handle_free(&handle));

    handle = put();
    WORKS(farjump_client_own(client, handle, &owned));
    WORKS(farjump_owned_into_static(&owned));
    CHECK(owned == NULL && is_there(handle));
    WORKS(farjump_owned_into_static(&owned));
    WORKS(farjump_store_evict(store, handle, NULL));
    WORKS(farjump_handle_free(&handle));
}

/* Uses and releases a received reference, in another process. */
static void receives(const unsigned char *bytes, size_t size)
{
    farjump_client_t *own;
    farjump_handle_t *handle;
    farjump_counted_t *reference, *another;
    farjump_view_t *view;
    uint64_t left;
    WORKS(farjump_handle_from_bytes(bytes, size, &handle));
    WORKS(farjump_client_connect_to_owner(handle, NULL, &own));
    WORKS(farjump_client_receive(own, handle, &reference));
    WORKS(farjump_counted_retain(reference, &another));
    WORKS(farjump_client_get(own, farjump_counted_handle(another), &view));
    CHECK(memcmp(farjump_view_data(view), "contents", 8) == 0);
    WORKS(farjump_view_release(&view));
    WORKS(farjump_counted_release(&reference, &left));
    CHECK(left == 1 && reference == NULL);
    WORKS(farjump_counted_release(&another, &left));
    CHECK(left == 0);
    FAILS(FARJUMP_ERROR_GONE, "is gone", farjump_client_get(own, handle, &view));
    WORKS(farjump_handle_free(&handle));
    WORKS(farjump_client_close(&own));
}

static void a_counted_object_goes_with_its_last_reference_in_any_process(void)
{
    farjump_handle_t *handle = put(), *sent;
    farjump_counted_t *first, *second, *third;
    farjump_bytes_t *bytes;
    uint64_t left = 9;
    int status;
    WORKS(farjump_store_retain(store, handle, &first));
    CHECK(farjump_handle_equals(farjump_counted_handle(first), handle));
    WORKS(farjump_client_retain(client, handle, &second));
    WORKS(farjump_counted_retain(second, &third));
    WORKS(farjump_store_count(store, handle, 0, &left));
    CHECK(left == 3);
    WORKS(farjump_counted_release(&second, &left));
    CHECK(left == 2 && second == NULL && is_there(handle));
    WORKS(farjump_counted_release(&second, &left));
    CHECK(left == 0);

    /* The third reference travels, and keeps the object until its receiver has released it. */
    WORKS(farjump_counted_send(&third, &sent));
    CHECK(third == NULL && farjump_handle_equals(sent, handle));
    FAILS(FARJUMP_ERROR_ARGUMENT, "`reference` is NULL", farjump_counted_send(&third, &(farjump_handle_t *){NULL}));
    WORKS(farjump_counted_release(&first, &left));
    CHECK(left == 1 && is_there(handle));
    WORKS(farjump_bytes_new(&bytes));
    WORKS(farjump_handle_to_bytes(sent, bytes));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        receives(farjump_bytes_data(bytes), farjump_bytes_size(bytes));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(!is_there(handle));
    FAILS(FARJUMP_ERROR_GONE, "is gone", farjump_client_retain(client, handle, &first));
    FAILS(FARJUMP_ERROR_GONE, "is gone", farjump_store_retain(store, handle, &first));
    FAILS(FARJUMP_ERROR_GONE, "is gone", farjump_store_count(store, handle, 1, &left));
    CHECK(first == NULL);
    /* Releasing a reference too often is an error. Its variable becomes NULL nevertheless. */
    WORKS(farjump_store_receive(store, handle, &first));
    FAILS(FARJUMP_ERROR_GONE, "is gone", farjump_counted_retain(first, &second));
    FAILS(FARJUMP_ERROR_GONE, "is gone", farjump_counted_release(&first, NULL));
    CHECK(first == NULL);
    WORKS(farjump_bytes_free(&bytes));
    WORKS(farjump_handle_free(&sent));
    WORKS(farjump_handle_free(&handle));
}

static uint64_t lease_left;

static void note_lease(void *number, const farjump_object_t *object)
{
    if (object->number == *(const uint64_t *)number)
        lease_left = object->lease_ns;
}

static uint64_t lease_of(const farjump_handle_t *handle)
{
    uint64_t number = farjump_handle_number(handle);
    lease_left = 0;
    WORKS(farjump_store_objects(store, note_lease, &number));
    return lease_left;
}

static void a_leased_object_goes_at_its_time_and_a_renewal_counts_anew(void)
{
    farjump_handle_t *handle = put();
    CHECK(lease_of(handle) == FARJUMP_FOREVER);
    WORKS(farjump_store_lease(store, handle, PATIENCE));
    CHECK(lease_of(handle) <= PATIENCE);
    /* Renewals may be longer and shorter. */
    WORKS(farjump_client_lease(client, handle, 10 * PATIENCE));
    CHECK(lease_of(handle) > PATIENCE && lease_of(handle) <= 10 * PATIENCE);
    WORKS(farjump_store_lease(store, handle, FARJUMP_FOREVER));
    CHECK(lease_of(handle) == FARJUMP_FOREVER);
    WORKS(farjump_store_lease(store, handle, 1));
    while (is_there(handle))
        ;
    FAILS(FARJUMP_ERROR_GONE, "its lease ended", farjump_store_lease(store, handle, PATIENCE));
    FAILS(FARJUMP_ERROR_GONE, "its lease ended", farjump_client_lease(client, handle, PATIENCE));
    WORKS(farjump_handle_free(&handle));
}

static void a_null_where_something_must_be(void)
{
    farjump_handle_t *handle = put(), *sent;
    farjump_owned_t *owned;
    farjump_counted_t *reference;
    IS_NULL("store", farjump_store_own(NULL, handle, &owned));
    IS_NULL("handle", farjump_store_own(store, NULL, &owned));
    IS_NULL("owned", farjump_store_own(store, handle, NULL));
    IS_NULL("client", farjump_client_own(NULL, handle, &owned));
    IS_NULL("handle", farjump_client_own(client, NULL, &owned));
    CHECK(owned == NULL && farjump_owned_handle(NULL) == NULL && farjump_counted_handle(NULL) == NULL);
    IS_NULL("owned", farjump_owned_release(NULL, NULL));
    IS_NULL("owned", farjump_owned_into_static(NULL));
    IS_NULL("store", farjump_store_retain(NULL, handle, &reference));
    IS_NULL("handle", farjump_store_retain(store, NULL, &reference));
    IS_NULL("reference", farjump_store_retain(store, handle, NULL));
    IS_NULL("client", farjump_client_retain(NULL, handle, &reference));
    IS_NULL("reference", farjump_client_retain(client, handle, NULL));
    IS_NULL("store", farjump_store_receive(NULL, handle, &reference));
    IS_NULL("client", farjump_client_receive(NULL, handle, &reference));
    IS_NULL("handle", farjump_client_receive(client, NULL, &reference));
    CHECK(reference == NULL);
    IS_NULL("reference", farjump_counted_retain(NULL, &reference));
    IS_NULL("reference", farjump_counted_release(NULL, NULL));
    IS_NULL("reference", farjump_counted_send(NULL, &sent));
    WORKS(farjump_store_retain(store, handle, &reference));
    IS_NULL("another", farjump_counted_retain(reference, NULL));
    IS_NULL("handle", farjump_counted_send(&reference, NULL));
    CHECK(reference != NULL);
    WORKS(farjump_counted_release(&reference, NULL));
    IS_NULL("store", farjump_store_count(NULL, handle, 1, NULL));
    IS_NULL("handle", farjump_store_count(store, NULL, 1, NULL));
    WORKS(farjump_handle_free(&handle));
}

int main(int argc, char **argv)
{
    farjump_target_thread_t *thread;
    farjump_store_stats_t stats;
    char address[4096];
    CHECK(argc == 3);
    snprintf(address, sizeof address, "unix:%s/t.sock", argv[2]);
    WORKS(farjump_store_open(NULL, &store));
    thread = own_store(address, store);
    WORKS(farjump_client_connect(address, NULL, &client));

    an_owned_object_goes_with_its_owner();
    a_counted_object_goes_with_its_last_reference_in_any_process();
    a_leased_object_goes_at_its_time_and_a_renewal_counts_anew();
    a_null_where_something_must_be();

    /* Owned objects and references keep the store and the client that made them. */
    farjump_handle_t *kept = put();
    farjump_owned_t *owned;
    bool was_there;
    WORKS(farjump_client_own(client, kept, &owned));
    WORKS(farjump_client_close(&client));
    WORKS(farjump_owned_release(&owned, &was_there));
    CHECK(was_there);
    WORKS(farjump_handle_free(&kept));
    WORKS(farjump_store_stats(store, &stats, sizeof stats));
    CHECK(stats.objects == 0 && stats.used == 0);
    WORKS(farjump_store_close(&store));
    WORKS(farjump_target_thread_stop(&thread, NULL));
    return all_done();
}
