/* A target in C: serves at an address, by the given method, until its standard input ends. Then it prints its
 * statistics.
 *
 *     target ADDRESS poll|run|thread|epoll
 */
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "check.h"

struct store {
    uint64_t rows[1000];
};

static uint64_t store_get(const struct store *store, uint64_t key)
{
    return key < 1000 ? store->rows[key] : 0;
}

static const uint64_t store_limit = 1000;

static int joined, gone, refused, refused_for;

static void on_joined(void *user, const farjump_peer_t *peer)
{
    CHECK(user == &joined && peer->pid != 0 && peer->uid == geteuid() && peer->name[0] != 0);
    joined++;
}

static void on_gone(void *user, const farjump_peer_t *peer, const char *why)
{
    CHECK(user == &gone && peer->text[0] != 0 && why[0] != 0);
    gone++;
}

static void on_refused(void *user, const farjump_peer_t *peer, int cause, const char *text)
{
    CHECK(user == &refused && peer != NULL && text[0] != 0);
    refused++;
    refused_for |= 1 << cause;
}

static farjump_target_t *listen_at(const char *address, struct store *store)
{
    farjump_target_config_t *config;
    farjump_target_t *target;
    WORKS(farjump_target_config_new(&config));
    WORKS(farjump_target_config_set_args(config, store));
    WORKS(farjump_target_config_export_function(config, "store_get", (farjump_function_t)store_get));
    WORKS(farjump_target_config_export_data(config, "store_limit", &store_limit));
    WORKS(farjump_target_config_on_joined(config, on_joined, &joined));
    WORKS(farjump_target_config_on_gone(config, on_gone, &gone));
    WORKS(farjump_target_config_on_refused(config, on_refused, &refused));
    WORKS(farjump_target_config_set(config, "max-sources", "8"));
    WORKS(farjump_target_config_set(config, "rights", "+drop"));
    WORKS(farjump_target_listen(address, config, &target));
    /* The target has copied the configuration. */
    WORKS(farjump_target_config_free(&config));
    CHECK(strcmp(farjump_target_address(target), address) == 0);
    return target;
}

/* Returns whether standard input has ended. */
static int over(int timeout_ms)
{
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    char byte;
    return poll(&input, 1, timeout_ms) > 0 && read(STDIN_FILENO, &byte, 1) == 0;
}

static void *stop_when_over(void *stopper)
{
    while (!over(1000))
        ;
    WORKS(farjump_stopper_stop(stopper));
    return NULL;
}

static void serve_polled(farjump_target_t *target)
{
    size_t ran = 0;
    for (unsigned turn = 0;; turn++) {
        WORKS(farjump_target_poll(target, &ran));
        if (ran == 0 && turn % 64 == 0) {
            int status = farjump_target_wait(target, 1000000);
            CHECK(status == FARJUMP_OK || status == FARJUMP_NOT_YET);
            if (over(0))
                return;
        }
    }
}

/* Serves in an event loop of the program's own that includes farjump. */
static void serve_in_epoll(farjump_target_t *target)
{
    struct epoll_event event = {.events = EPOLLIN};
    int loop = epoll_create1(EPOLL_CLOEXEC);
    CHECK(loop >= 0);
    event.data.fd = farjump_target_fd(target);
    CHECK(epoll_ctl(loop, EPOLL_CTL_ADD, event.data.fd, &event) == 0);
    event.data.fd = STDIN_FILENO;
    CHECK(epoll_ctl(loop, EPOLL_CTL_ADD, STDIN_FILENO, &event) == 0);
    for (;;) {
        uint64_t longest_ns;
        size_t ran;
        do
            WORKS(farjump_target_poll(target, &ran));
        while (ran != 0);
        WORKS(farjump_target_arm(target, &longest_ns));
        int ready = epoll_wait(loop, &event, 1, (int)(longest_ns / 1000000));
        WORKS(farjump_target_disarm(target));
        if (ready > 0 && event.data.fd == STDIN_FILENO && over(0))
            break;
    }
    close(loop);
}

int main(int argc, char **argv)
{
    static struct store store;
    farjump_target_stats_t stats;
    farjump_stopper_t *stopper;
    farjump_target_thread_t *thread;
    pthread_t waiter;
    CHECK(argc == 3);
    for (uint64_t key = 0; key < 1000; key++)
        store.rows[key] = key * key;
    farjump_target_t *target = listen_at(argv[1], &store);
    CHECK(farjump_target_epoch(target) != 0);
    printf("ready\n");
    fflush(stdout);

    if (strcmp(argv[2], "poll") == 0) {
        serve_polled(target);
    } else if (strcmp(argv[2], "epoll") == 0) {
        serve_in_epoll(target);
    } else if (strcmp(argv[2], "run") == 0) {
        WORKS(farjump_stopper_new(target, &stopper));
        CHECK(pthread_create(&waiter, NULL, stop_when_over, stopper) == 0);
        WORKS(farjump_target_run(target));
        CHECK(pthread_join(waiter, NULL) == 0);
        WORKS(farjump_stopper_free(&stopper));
    } else {
        WORKS(farjump_target_spawn(&target, &thread));
        CHECK(target == NULL && thread != NULL);
        while (!over(1000))
            ;
        WORKS(farjump_target_thread_stop(&thread, &target));
        CHECK(target != NULL && thread == NULL);
    }

    WORKS(farjump_target_end_links(target, "the test is over"));
    WORKS(farjump_target_stats(target, &stats, sizeof stats));
    CHECK(stats.calls > 0 && stats.frames > 0 && stats.images_linked > 0 && stats.room > 0);
    printf("calls %llu, joined %d, refused %d for %#x\n", (unsigned long long)stats.calls, joined, refused, refused_for);
    CHECK(stats.links == (uint64_t)joined);
    WORKS(farjump_target_close(&target));
    CHECK(gone <= joined);
    return 0;
}
