/* Streams in one process, through its store and through a client: bounds, slow and late subscribers, and errors of C programs.
 *
 *     streams FOLDER-OF-IFUNC-LIBRARIES EMPTY-FOLDER
 */
#include "hex.h"

#define IS_NULL(words, call) FAILS(FARJUMP_ERROR_ARGUMENT, "`" words "` is NULL", call)

static farjump_store_t *store;
static farjump_client_t *client;

static farjump_publisher_t *publisher_of(const char *topic, const char *capacity, const char *overflow)
{
    farjump_publisher_config_t *config;
    farjump_publisher_t *publisher;
    WORKS(farjump_publisher_config_new(&config));
    WORKS(farjump_publisher_config_set(config, "capacity", capacity));
    WORKS(farjump_publisher_config_set(config, "overflow", overflow));
    WORKS(farjump_client_publisher(client, topic, config, &publisher));
    WORKS(farjump_publisher_config_free(&config));
    CHECK(strcmp(farjump_publisher_topic(publisher), topic) == 0 && farjump_publisher_number(publisher) != 0);
    return publisher;
}

static farjump_subscriber_t *subscriber_of(const char *topic, bool from_now)
{
    farjump_subscriber_config_t *config;
    farjump_subscriber_t *subscriber;
    WORKS(farjump_subscriber_config_new(&config));
    WORKS(farjump_subscriber_config_set(config, "from-now", from_now ? "yes" : "no"));
    WORKS(farjump_store_subscribe(store, topic, config, &subscriber));
    WORKS(farjump_subscriber_config_free(&config));
    CHECK(strcmp(farjump_subscriber_topic(subscriber), topic) == 0);
    return subscriber;
}

static void publish(farjump_publisher_t *publisher, unsigned char byte)
{
    WORKS(farjump_publisher_publish_bytes(publisher, "byte", &byte, 1, PATIENCE, NULL));
}

/* Returns the next item. It must have this byte. */
static farjump_item_t *next_is(farjump_subscriber_t *subscriber, unsigned char byte)
{
    farjump_item_t *item;
    farjump_view_t *view;
    WORKS(farjump_subscriber_next(subscriber, PATIENCE, &item));
    CHECK(farjump_item_is_owned(item));
    WORKS(farjump_store_get(store, farjump_item_handle(item), &view));
    CHECK(farjump_view_size(view) == 1 && *(const unsigned char *)farjump_view_data(view) == byte);
    WORKS(farjump_view_release(&view));
    return item;
}

static void takes(farjump_subscriber_t *subscriber, unsigned char byte)
{
    farjump_item_t *item = next_is(subscriber, byte);
    WORKS(farjump_item_release(&item));
}

static void a_full_topic_is_a_status(void)
{
    farjump_subscriber_t *slow = subscriber_of("full", false);
    farjump_publisher_t *waits = publisher_of("full", "2", "wait");
    farjump_publisher_t *refuses = publisher_of("full", "2", "refuse");
    farjump_handle_t *handle;
    farjump_item_t *item;
    uint64_t number = 77;
    WORKS(farjump_store_put(store, NULL, "x", 1, &handle));
    publish(waits, 1);
    publish(waits, 2);
    FAILS(FARJUMP_ERROR_TOPIC_FULL, "its slowest subscriber", farjump_publisher_publish(waits, handle, 1000000, &number));
    FAILS(FARJUMP_ERROR_TOPIC_FULL, "its slowest subscriber", farjump_publisher_publish(refuses, handle, PATIENCE, &number));
    FAILS(FARJUMP_ERROR_TOPIC_FULL, "choose a larger capacity",
          farjump_publisher_publish_bytes(refuses, NULL, "y", 1, PATIENCE, &number));
    CHECK(number == 77);
    takes(slow, 1);
    /* A subscriber is done with an entry when it requests the next one. */
    item = next_is(slow, 2);
    WORKS(farjump_publisher_publish(refuses, handle, PATIENCE, &number));
    WORKS(farjump_publisher_finish(waits, PATIENCE));
    WORKS(farjump_publisher_finish(waits, PATIENCE));
    FAILS(FARJUMP_ERROR_ARGUMENT, "open the topic again", farjump_publisher_publish(waits, handle, PATIENCE, NULL));
    WORKS(farjump_publisher_close(&waits));
    CHECK(waits == NULL);
    WORKS(farjump_publisher_finish(refuses, PATIENCE));
    WORKS(farjump_publisher_close(&refuses));
    WORKS(farjump_item_release(&item));
    WORKS(farjump_subscriber_next(slow, PATIENCE, &item));
    CHECK(farjump_item_number(item) == number && !farjump_item_is_owned(item));
    CHECK(farjump_handle_equals(farjump_item_handle(item), handle));
    WORKS(farjump_item_release(&item));
    GIVES(FARJUMP_STREAM_END, farjump_subscriber_next(slow, PATIENCE, &item));
    GIVES(FARJUMP_STREAM_END, farjump_subscriber_next(slow, 0, &item));
    CHECK(item == NULL);
    WORKS(farjump_subscriber_close(&slow));
    /* Its maker evicts an object that was published and not given. */
    WORKS(farjump_store_evict(store, handle, NULL));
    WORKS(farjump_handle_free(&handle));
}

static void a_slow_subscriber_learns_its_loss_a_late_one_gets_the_rest(void)
{
    farjump_subscriber_t *slow = subscriber_of("drops", false), *late, *new;
    farjump_publisher_t *publisher = publisher_of("drops", "3", "drop-oldest");
    farjump_item_t *item;
    for (unsigned char byte = 0; byte < 10; byte++)
        publish(publisher, byte);
    late = subscriber_of("drops", false);
    new = subscriber_of("drops", true);
    item = next_is(slow, 7);
    CHECK(farjump_item_lost(item) == 7 && farjump_subscriber_lost(slow) == 7);
    CHECK(farjump_item_publisher(item) == farjump_publisher_number(publisher));
    WORKS(farjump_item_release(&item));
    item = next_is(slow, 8);
    CHECK(farjump_item_lost(item) == 0 && farjump_subscriber_lost(slow) == 7);
    WORKS(farjump_item_release(&item));
    takes(late, 7);
    CHECK(farjump_subscriber_lost(late) == 0);
    GIVES(FARJUMP_NOT_YET, farjump_subscriber_next(new, 0, &item));
    publish(publisher, 10);
    takes(new, 10);
    WORKS(farjump_publisher_finish(publisher, PATIENCE));
    WORKS(farjump_publisher_close(&publisher));
    GIVES(FARJUMP_STREAM_END, farjump_subscriber_next(new, PATIENCE, &item));
    WORKS(farjump_subscriber_close(&new));
    WORKS(farjump_subscriber_close(&late));
    WORKS(farjump_subscriber_close(&slow));
}

static void a_publisher_closed_without_finishing_is_reported_once(void)
{
    farjump_subscriber_t *subscriber = subscriber_of("dead", false);
    farjump_publisher_t *dead = publisher_of("dead", "8", "wait"), *other;
    uint64_t number = farjump_publisher_number(dead), published = 9;
    farjump_item_t *item;
    CHECK(farjump_subscriber_gone(subscriber, &published) == 0 && published == 0);
    publish(dead, 1);
    publish(dead, 2);
    WORKS(farjump_publisher_close(&dead));
    WORKS(farjump_publisher_close(&dead));
    WORKS(farjump_client_publisher(client, "dead", NULL, &other));
    takes(subscriber, 1);
    takes(subscriber, 2);
    FAILS(FARJUMP_ERROR_PUBLISHER_GONE, "after 2 entries", farjump_subscriber_next(subscriber, PATIENCE, &item));
    CHECK(item == NULL && farjump_subscriber_gone(subscriber, &published) == number && published == 2);
    publish(other, 3);
    takes(subscriber, 3);
    GIVES(FARJUMP_NOT_YET, farjump_subscriber_next(subscriber, 1000000, &item));
    WORKS(farjump_publisher_finish(other, PATIENCE));
    WORKS(farjump_publisher_close(&other));
    GIVES(FARJUMP_STREAM_END, farjump_subscriber_next(subscriber, PATIENCE, &item));
    CHECK(farjump_subscriber_gone(subscriber, NULL) == number);
    WORKS(farjump_subscriber_close(&subscriber));
}

static void a_topic_owns_what_it_was_given_until_all_have_released_it(void)
{
    farjump_subscriber_t *subscriber = subscriber_of("given", false);
    farjump_publisher_t *publisher = publisher_of("given", "2", "wait"), *here;
    farjump_handle_t *given, *foreign, *copy;
    farjump_item_t *items[4], *item;
    farjump_store_t *other;
    bool is_there;
    WORKS(farjump_store_put(store, "byte", "\1", 1, &given));
    WORKS(farjump_publisher_give(publisher, given, PATIENCE, NULL));
    items[0] = next_is(subscriber, 1);
    for (unsigned char byte = 2; byte < 4; byte++) {
        publish(publisher, byte);
        items[byte - 1] = next_is(subscriber, byte);
    }
    publish(publisher, 4);
    /* The subscriber holds as many items as it may. */
    FAILS(FARJUMP_ERROR_TOO_MANY, "may hold no more", farjump_subscriber_next(subscriber, PATIENCE, &item));
    CHECK(item == NULL);
    WORKS(farjump_store_exists(store, given, &is_there));
    CHECK(is_there);
    WORKS(farjump_item_release(&items[0]));
    CHECK(items[0] == NULL);
    WORKS(farjump_item_release(&items[0]));
    items[3] = next_is(subscriber, 4);
    WORKS(farjump_store_exists(store, given, &is_there));
    CHECK(!is_there);
    GIVES(FARJUMP_ERROR_GONE, farjump_publisher_publish(publisher, given, PATIENCE, NULL));

    /* A topic owns only objects of its own store, and passes handles of any store. */
    WORKS(farjump_store_open(NULL, &other));
    WORKS(farjump_store_put(other, NULL, "elsewhere", 9, &foreign));
    FAILS(FARJUMP_ERROR_ARGUMENT, "another store's", farjump_publisher_give(publisher, foreign, PATIENCE, NULL));
    WORKS(farjump_publisher_publish(publisher, foreign, PATIENCE, NULL));
    WORKS(farjump_subscriber_next(subscriber, PATIENCE, &item));
    CHECK(farjump_handle_equals(farjump_item_handle(item), foreign));
    WORKS(farjump_item_release(&item));
    WORKS(farjump_store_close(&other));

    /* Items outlive their subscriber, and keep the objects of the handles that they lend. */
    WORKS(farjump_store_publisher(store, "given", NULL, &here));
    WORKS(farjump_subscriber_close(&subscriber));
    farjump_bytes_t *bytes;
    WORKS(farjump_bytes_new(&bytes));
    WORKS(farjump_handle_to_bytes(farjump_item_handle(items[3]), bytes));
    WORKS(farjump_handle_from_bytes(farjump_bytes_data(bytes), farjump_bytes_size(bytes), &copy));
    WORKS(farjump_bytes_free(&bytes));
    WORKS(farjump_store_exists(store, copy, &is_there));
    CHECK(is_there);
    for (int kept = 1; kept < 4; kept++)
        WORKS(farjump_item_release(&items[kept]));
    WORKS(farjump_store_exists(store, copy, &is_there));
    CHECK(!is_there);
    WORKS(farjump_publisher_finish(here, PATIENCE));
    WORKS(farjump_publisher_finish(publisher, PATIENCE));
    WORKS(farjump_publisher_close(&here));
    WORKS(farjump_publisher_close(&publisher));
    WORKS(farjump_handle_free(&copy));
    WORKS(farjump_handle_free(&given));
    WORKS(farjump_handle_free(&foreign));
}

static void topics_are_bounded_and_discarded(void)
{
    farjump_publisher_config_t *config;
    farjump_publisher_t *publisher = publisher_of("unread", "4", "wait"), *none;
    farjump_subscriber_t *no_subscriber;
    farjump_handle_t *handle;
    farjump_store_config_t *store_config;
    farjump_store_t *far;
    char name[300], address[1001];
    bool was_there = false;
    WORKS(farjump_publisher_config_new(&config));
    WORKS(farjump_publisher_config_set(config, "capacity", "5"));
    FAILS(FARJUMP_ERROR_ARGUMENT, "chose a capacity of 4", farjump_store_publisher(store, "unread", config, &none));
    WORKS(farjump_publisher_config_set(config, "capacity", "0"));
    FAILS(FARJUMP_ERROR_ARGUMENT, "must be 1 to 65536", farjump_store_publisher(store, "other", config, &none));
    WORKS(farjump_publisher_config_set(config, "capacity", "131072"));
    FAILS(FARJUMP_ERROR_ARGUMENT, "must be 1 to 65536", farjump_client_publisher(client, "other", config, &none));
    FAILS(FARJUMP_ERROR_ARGUMENT, "drop-oldest", farjump_publisher_config_set(config, "overflow", "sometimes"));
    WORKS(farjump_publisher_config_free(&config));
    CHECK(config == NULL && none == NULL);
    memset(name, 'n', sizeof name);
    name[256] = 0;
    FAILS(FARJUMP_ERROR_ARGUMENT, "has 256 bytes", farjump_client_publisher(client, name, NULL, &none));
    FAILS(FARJUMP_ERROR_ARGUMENT, "has 0 bytes", farjump_store_subscribe(store, "", NULL, &no_subscriber));
    FAILS(FARJUMP_ERROR_ARGUMENT, "no UTF-8", farjump_client_subscribe(client, "\xff", NULL, &no_subscriber));
    CHECK(none == NULL && no_subscriber == NULL);

    /* A handle with a long address is too long for a stream. */
    memset(address, 'a', sizeof address);
    memcpy(address, "tcp:", 4);
    memcpy(address + 998, ":7", 3);
    WORKS(farjump_store_config_new(&store_config));
    WORKS(farjump_store_config_set(store_config, "address", address));
    WORKS(farjump_store_open(store_config, &far));
    WORKS(farjump_store_config_free(&store_config));
    WORKS(farjump_store_put(far, NULL, "x", 1, &handle));
    FAILS(FARJUMP_ERROR_TOO_LARGE, "1024 are allowed", farjump_publisher_publish(publisher, handle, PATIENCE, NULL));
    WORKS(farjump_handle_free(&handle));
    WORKS(farjump_store_close(&far));

    publish(publisher, 1);
    FAILS(FARJUMP_ERROR_BUSY, "let them end", farjump_client_discard_topic(client, "unread", &was_there));
    WORKS(farjump_publisher_finish(publisher, PATIENCE));
    WORKS(farjump_publisher_close(&publisher));
    WORKS(farjump_client_discard_topic(client, "unread", &was_there));
    CHECK(was_there);
    WORKS(farjump_store_discard_topic(store, "unread", &was_there));
    CHECK(!was_there);
    WORKS(farjump_store_discard_topic(store, "never", NULL));
}

static void a_null_where_something_must_be(void)
{
    farjump_publisher_config_t *publisher_config;
    farjump_subscriber_config_t *subscriber_config;
    farjump_publisher_t *publisher, *no_publisher;
    farjump_subscriber_t *subscriber, *no_subscriber;
    farjump_item_t *item;
    const char *value;
    uint64_t published = 9;
    IS_NULL("config", farjump_publisher_config_new(NULL));
    IS_NULL("config", farjump_publisher_config_free(NULL));
    IS_NULL("config", farjump_publisher_config_set(NULL, "capacity", "1"));
    IS_NULL("config", farjump_publisher_config_get(NULL, "capacity", &value));
    IS_NULL("config", farjump_subscriber_config_new(NULL));
    IS_NULL("config", farjump_subscriber_config_free(NULL));
    IS_NULL("config", farjump_subscriber_config_set(NULL, "from-now", "yes"));
    IS_NULL("config", farjump_subscriber_config_get(NULL, "from-now", &value));
    WORKS(farjump_publisher_config_new(&publisher_config));
    WORKS(farjump_subscriber_config_new(&subscriber_config));
    WORKS(farjump_store_publisher(store, "null", publisher_config, &publisher));
    WORKS(farjump_client_subscribe(client, "null", subscriber_config, &subscriber));
    WORKS(farjump_publisher_config_free(&publisher_config));
    WORKS(farjump_subscriber_config_free(&subscriber_config));
    IS_NULL("store", farjump_store_publisher(NULL, "null", NULL, &no_publisher));
    IS_NULL("topic", farjump_store_publisher(store, NULL, NULL, &no_publisher));
    IS_NULL("publisher", farjump_store_publisher(store, "null", NULL, NULL));
    IS_NULL("client", farjump_client_publisher(NULL, "null", NULL, &no_publisher));
    IS_NULL("topic", farjump_client_publisher(client, NULL, NULL, &no_publisher));
    IS_NULL("store", farjump_store_subscribe(NULL, "null", NULL, &no_subscriber));
    IS_NULL("topic", farjump_store_subscribe(store, NULL, NULL, &no_subscriber));
    IS_NULL("client", farjump_client_subscribe(NULL, "null", NULL, &no_subscriber));
    IS_NULL("subscriber", farjump_client_subscribe(client, "null", NULL, NULL));
    IS_NULL("publisher", farjump_publisher_close(NULL));
    IS_NULL("publisher", farjump_publisher_finish(NULL, 0));
    IS_NULL("handle", farjump_publisher_publish(publisher, NULL, 0, NULL));
    IS_NULL("handle", farjump_publisher_give(publisher, NULL, 0, NULL));
    IS_NULL("publisher", farjump_publisher_publish_bytes(NULL, NULL, "x", 1, 0, NULL));
    FAILS(FARJUMP_ERROR_ARGUMENT, "nothing at NULL", farjump_publisher_publish_bytes(publisher, NULL, NULL, 1, 0, NULL));
    FAILS(FARJUMP_ERROR_ARGUMENT, "no memory has so many",
          farjump_publisher_publish_bytes(publisher, NULL, "", SIZE_MAX, 0, NULL));
    IS_NULL("subscriber", farjump_subscriber_close(NULL));
    IS_NULL("subscriber", farjump_subscriber_next(NULL, 0, &item));
    IS_NULL("item", farjump_subscriber_next(subscriber, 0, NULL));
    IS_NULL("item", farjump_item_release(NULL));
    CHECK(farjump_publisher_topic(NULL) == NULL && farjump_publisher_number(NULL) == 0);
    CHECK(farjump_subscriber_topic(NULL) == NULL && farjump_subscriber_lost(NULL) == 0);
    CHECK(farjump_subscriber_gone(NULL, &published) == 0 && published == 0);
    CHECK(farjump_item_handle(NULL) == NULL && farjump_item_number(NULL) == 0 && farjump_item_publisher(NULL) == 0);
    CHECK(farjump_item_lost(NULL) == 0 && !farjump_item_is_owned(NULL));
    IS_NULL("store", farjump_store_discard_topic(NULL, "null", NULL));
    IS_NULL("topic", farjump_store_discard_topic(store, NULL, NULL));
    IS_NULL("client", farjump_client_discard_topic(NULL, "null", NULL));
    IS_NULL("topic", farjump_client_discard_topic(client, NULL, NULL));
    WORKS(farjump_publisher_finish(publisher, PATIENCE));
    WORKS(farjump_publisher_close(&publisher));
    WORKS(farjump_subscriber_close(&subscriber));
}

int main(int argc, char **argv)
{
    farjump_target_thread_t *thread;
    farjump_store_stats_t stats;
    farjump_publisher_t *publisher;
    farjump_subscriber_t *subscriber;
    farjump_item_t *item;
    char address[4096];
    CHECK(argc == 3);
    snprintf(address, sizeof address, "unix:%s/t.sock", argv[2]);
    WORKS(farjump_store_open(NULL, &store));
    thread = own_store(address, store);
    WORKS(farjump_client_connect(address, NULL, &client));

    a_full_topic_is_a_status();
    a_slow_subscriber_learns_its_loss_a_late_one_gets_the_rest();
    a_publisher_closed_without_finishing_is_reported_once();
    a_topic_owns_what_it_was_given_until_all_have_released_it();
    topics_are_bounded_and_discarded();
    a_null_where_something_must_be();
    WORKS(farjump_store_stats(store, &stats, sizeof stats));
    CHECK(stats.objects == 0);

    /* Publisher and subscriber keep the client, and report that the owner is gone. */
    WORKS(farjump_client_publisher(client, "orphans", NULL, &publisher));
    WORKS(farjump_client_subscribe(client, "orphans", NULL, &subscriber));
    WORKS(farjump_client_close(&client));
    publish(publisher, 1);
    takes(subscriber, 1);
    WORKS(farjump_target_thread_stop(&thread, NULL));
    GIVES(FARJUMP_ERROR_PEER_GONE, farjump_publisher_publish_bytes(publisher, NULL, "x", 1, PATIENCE, NULL));
    GIVES(FARJUMP_ERROR_PEER_GONE, farjump_subscriber_next(subscriber, PATIENCE, &item));
    CHECK(item == NULL);
    WORKS(farjump_publisher_close(&publisher));
    WORKS(farjump_subscriber_close(&subscriber));
    WORKS(farjump_store_close(&store));
    return all_done();
}
