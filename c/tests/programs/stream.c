/* A publisher or a subscriber of a topic at another process's store.
 *
 *     stream publish HANDLE TOPIC COUNT
 *     stream subscribe HANDLE TOPIC PUBLISHERS
 *
 * HANDLE is that of an object of the owner. A publisher prints its number, publishes COUNT texts, prints `published`, and
 * finishes when it reads a line. A subscriber prints a line for each entry, for each publisher that is gone, and for the end.
 */
#include <inttypes.h>

#include "hex.h"

static farjump_client_t *client;

static void publish(const farjump_handle_t *handle, const char *topic, int count)
{
    farjump_publisher_t *publisher;
    uint64_t entry, last = 0;
    char text[64], line[64];
    WORKS(farjump_client_publisher(client, topic, NULL, &publisher));
    printf("publisher %" PRIu64 "\n", farjump_publisher_number(publisher));
    for (int number = 0; number < count; number++) {
        int size = snprintf(text, sizeof text, "text %d", number);
        WORKS(farjump_publisher_publish_bytes(publisher, "text", text, (size_t)size, PATIENCE, &entry));
        CHECK(number == 0 || entry > last);
        last = entry;
    }
    WORKS(farjump_publisher_publish(publisher, handle, PATIENCE, NULL));
    printf("published\n");
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
    WORKS(farjump_publisher_finish(publisher, PATIENCE));
    WORKS(farjump_publisher_close(&publisher));
}

static void show(const farjump_item_t *item)
{
    const farjump_handle_t *handle = farjump_item_handle(item);
    farjump_view_t *view;
    WORKS(farjump_client_get(client, handle, &view));
    printf("%" PRIu64 " %s ", farjump_item_publisher(item), farjump_item_is_owned(item) ? "owned" : "published");
    if (farjump_item_is_owned(item))
        printf("%.*s\n", (int)farjump_view_size(view), (const char *)farjump_view_data(view));
    else
        printf("%zu bytes\n", farjump_view_size(view));
    fflush(stdout);
    WORKS(farjump_view_release(&view));
}

static void subscribe(const char *topic, const char *publishers)
{
    farjump_subscriber_config_t *config;
    farjump_subscriber_t *subscriber;
    farjump_item_t *item;
    uint64_t published, last = 0;
    int status;
    WORKS(farjump_subscriber_config_new(&config));
    WORKS(farjump_subscriber_config_set(config, "publishers", publishers));
    WORKS(farjump_client_subscribe(client, topic, config, &subscriber));
    WORKS(farjump_subscriber_config_free(&config));
    GIVES(FARJUMP_NOT_YET, farjump_subscriber_next(subscriber, 0, &item));
    CHECK(item == NULL);
    printf("subscribed\n");
    fflush(stdout);
    do {
        status = farjump_subscriber_next(subscriber, PATIENCE, &item);
        if (status == FARJUMP_OK) {
            CHECK(last == 0 || farjump_item_number(item) > last);
            last = farjump_item_number(item);
            CHECK(farjump_item_lost(item) == 0);
            show(item);
            WORKS(farjump_item_release(&item));
        } else if (status == FARJUMP_ERROR_PUBLISHER_GONE) {
            uint64_t gone = farjump_subscriber_gone(subscriber, &published);
            CHECK(item == NULL && strstr(farjump_last_error(), "ended without finishing") != NULL);
            printf("%" PRIu64 " gone after %" PRIu64 "\n", gone, published);
            fflush(stdout);
        }
    } while (status == FARJUMP_OK || status == FARJUMP_ERROR_PUBLISHER_GONE);
    if (status == FARJUMP_STREAM_END)
        printf("end\n");
    else
        printf("%s: %s\n", farjump_status_string(status), farjump_last_error());
    WORKS(farjump_subscriber_close(&subscriber));
}

int main(int argc, char **argv)
{
    farjump_handle_t *handle;
    CHECK(argc == 5);
    handle = read_handle(argv[2]);
    WORKS(farjump_client_connect_to_owner(handle, NULL, &client));
    if (strcmp(argv[1], "publish") == 0)
        publish(handle, argv[3], atoi(argv[4]));
    else
        subscribe(argv[3], argv[4]);
    WORKS(farjump_client_close(&client));
    WORKS(farjump_handle_free(&handle));
    return 0;
}
