/* A client that owns its event loop. It waits for numbers over UCX and for replies over farjump at the same
 * time, and sleeps on one epoll descriptor until either comes.
 *
 *     client ADDRESS TRANSPORT LIBSUM.SO UCX-ADDRESS
 *
 * It prints `connected`. For each line of input, a number, it exchanges that many numbers and requests that
 * many sums, and prints `done`. When the input ends, it prints the number of turns of its loop.
 */
#include <errno.h>
#include <farjump.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loop.h"
#include "pings.h"

/* Work left, and work done. */
struct work {
    uint64_t wanted, pongs, sums, said;
    farjump_pending_t call; /* 0: none is pending */
};

static void expect(const char *what, uint64_t came, uint64_t expected)
{
    if (came != expected) {
        fprintf(stderr, "%s is %llu, not %llu\n", what, (unsigned long long)came, (unsigned long long)expected);
        exit(1);
    }
}

static farjump_link_t *connect_to(const char *address, const char *transport)
{
    farjump_link_config_t *config;
    farjump_link_t *link;
    check(farjump_link_config_new(&config));
    check(farjump_link_config_set(config, "transport", transport));
    check(farjump_link_connect(address, config, &link));
    check(farjump_link_config_free(&config));
    return link;
}

/* Keeps one ping under way as long as some are wanted. Returns whether there was work. */
static int ping(struct pings *pings, struct work *work)
{
    int worked = pings_work(pings);
    if (pings->received == work->pongs)
        return worked;
    expect("what came back", pings->last, work->pongs);
    work->pongs = pings->received;
    if (work->pongs < work->wanted)
        pings_send(pings->peer, PING, work->pongs);
    return 1;
}

/* Keeps one call under way as long as some are wanted. Returns whether there was work. */
static int sum(farjump_link_t *link, const farjump_library_t *library, farjump_bytes_t *reply, struct work *work)
{
    int answered = 0;
    uint64_t total;
    if (work->call != 0) {
        int status = farjump_pending_poll(link, work->call, reply);
        if (status == FARJUMP_NOT_YET)
            return 0;
        check(status);
        uint64_t key = work->sums % 998;
        expect("the length of the answer", farjump_bytes_size(reply), sizeof total);
        memcpy(&total, farjump_bytes_data(reply), sizeof total);
        expect("the sum", total, key * key + (key + 1) * (key + 1) + (key + 2) * (key + 2));
        work->sums++;
        work->call = 0;
        answered = 1;
    }
    if (work->sums < work->wanted) {
        uint64_t first = work->sums % 998, keys[] = {first, first + 1, first + 2};
        int status = farjump_link_try_inject(link, library, keys, sizeof keys, &work->call);
        if (status != FARJUMP_ERROR_FULL)
            check(status);
    }
    return answered;
}

int main(int argc, char **argv)
{
    farjump_library_t *library;
    farjump_bytes_t *reply;
    struct pings pings;
    struct work work = {0};
    uint64_t turns = 0;
    int over = 0;
    if (argc != 5) {
        fprintf(stderr, "usage: client ADDRESS TRANSPORT LIBSUM.SO UCX-ADDRESS\n");
        return 2;
    }
    check(farjump_library_open(argv[3], &library));
    check(farjump_bytes_new(&reply));
    farjump_link_t *link = connect_to(argv[1], argv[2]);
    pings_open(&pings);
    pings_connect(&pings, argv[4]);
    int loop = epoll_create1(EPOLL_CLOEXEC);
    watch(loop, farjump_link_fd(link));
    watch(loop, pings_fd(&pings));
    watch(loop, STDIN_FILENO);
    printf("connected\n");
    fflush(stdout);

    while (!over) {
        struct epoll_event events[3];
        uint64_t longest_ns = 0;
        turns++;

        /* All work that needs no waiting. */
        int busy = ping(&pings, &work);
        busy |= sum(link, library, reply, &work);
        if (work.pongs == work.wanted && work.sums == work.wanted && work.said != work.wanted) {
            work.said = work.wanted;
            printf("done %llu\n", (unsigned long long)work.wanted);
            fflush(stdout);
        }

        /* Arm both when idle: a later event makes the descriptor readable. If arming finds an event, the loop
         * stays awake. */
        if (!busy) {
            check(farjump_link_arm(link, &longest_ns));
            if (!pings_arm(&pings))
                longest_ns = 0;
        }
        int ready = epoll_wait(loop, events, 3, (int)(longest_ns / 1000000));
        check(farjump_link_disarm(link));
        if (ready < 0 && errno != EINTR) {
            perror("epoll_wait");
            return 1;
        }
        for (int at = 0; at < ready; at++) {
            char line[64] = "";
            if (events[at].data.fd != STDIN_FILENO)
                continue;
            over = read(STDIN_FILENO, line, sizeof line - 1) <= 0;
            uint64_t more = strtoull(line, NULL, 10);
            if (more != 0 && work.pongs == work.wanted)
                pings_send(pings.peer, PING, work.pongs);
            work.wanted += more;
        }
    }
    printf("%llu numbers came back and %llu sums were right, in %llu turns\n", (unsigned long long)work.pongs,
           (unsigned long long)work.sums, (unsigned long long)turns);
    close(loop);
    pings_close(&pings);
    check(farjump_link_close(&link));
    check(farjump_bytes_free(&reply));
    check(farjump_library_close(&library));
    return 0;
}
