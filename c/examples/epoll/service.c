/* A service that owns its event loop. Numbers over UCX, functions over farjump, a clock and commands share
 * one epoll descriptor, and nothing spins.
 *
 *     service ADDRESS TRANSPORT
 *
 * It prints `ready` and the address of its UCX worker. For each line of input it prints its counters, until
 * the input ends.
 */
#include <errno.h>
#include <farjump.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "loop.h"
#include "pings.h"

struct store {
    uint64_t rows[1000];
};

static uint64_t store_get(const struct store *store, uint64_t key)
{
    return key < 1000 ? store->rows[key] : 0;
}

static farjump_target_t *listen_at(const char *address, const char *transport, struct store *store)
{
    farjump_target_config_t *config;
    farjump_target_t *target;
    check(farjump_target_config_new(&config));
    check(farjump_target_config_set(config, "transport", transport));
    check(farjump_target_config_set_args(config, store));
    check(farjump_target_config_export_function(config, "store_get", (farjump_function_t)store_get));
    check(farjump_target_listen(address, config, &target));
    check(farjump_target_config_free(&config));
    return target;
}

/* The program's own clock: 20 ticks a second. */
static int clock_fd(void)
{
    const struct itimerspec ticks = {{0, 50000000}, {0, 50000000}};
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fd < 0 || timerfd_settime(fd, 0, &ticks, NULL) != 0) {
        perror("timerfd");
        exit(1);
    }
    return fd;
}

int main(int argc, char **argv)
{
    static struct store store;
    struct pings pings;
    uint64_t turns = 0, ticks = 0, calls = 0;
    int over = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: service ADDRESS TRANSPORT\n");
        return 2;
    }
    for (uint64_t key = 0; key < 1000; key++)
        store.rows[key] = key * key;
    farjump_target_t *target = listen_at(argv[1], argv[2], &store);
    pings_open(&pings);
    int clock = clock_fd(), loop = epoll_create1(EPOLL_CLOEXEC);
    watch(loop, farjump_target_fd(target));
    watch(loop, pings_fd(&pings));
    watch(loop, clock);
    watch(loop, STDIN_FILENO);
    printf("ready ");
    pings_print_address(&pings, stdout);
    printf("\n");
    fflush(stdout);

    while (!over) {
        struct epoll_event events[4];
        uint64_t longest_ns = 0;
        size_t ran;
        turns++;

        /* Part of the pending work, without waiting. */
        int busy = pings_work(&pings);
        check(farjump_target_poll(target, &ran));
        calls += ran;

        /* Arm both when idle: a later event makes the descriptor readable. If arming finds an event, the loop
         * stays awake. */
        if (!busy && ran == 0) {
            check(farjump_target_arm(target, &longest_ns));
            if (!pings_arm(&pings))
                longest_ns = 0;
        }
        int ready = epoll_wait(loop, events, 4, (int)(longest_ns / 1000000));
        check(farjump_target_disarm(target));
        if (ready < 0 && errno != EINTR) {
            perror("epoll_wait");
            return 1;
        }

        /* farjump and UCX are polled above, whatever woke the loop. */
        for (int at = 0; at < ready; at++) {
            char line[64];
            uint64_t expired;
            if (events[at].data.fd == clock && read(clock, &expired, sizeof expired) == sizeof expired) {
                ticks += expired;
            } else if (events[at].data.fd == STDIN_FILENO) {
                over = read(STDIN_FILENO, line, sizeof line) <= 0;
                printf("turns %llu ticks %llu calls %llu pings %llu\n", (unsigned long long)turns, (unsigned long long)ticks,
                       (unsigned long long)calls, (unsigned long long)pings.received);
                fflush(stdout);
            }
        }
    }
    close(loop);
    close(clock);
    pings_close(&pings);
    check(farjump_target_close(&target));
    return 0;
}
