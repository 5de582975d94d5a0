/*
 * The sequence of the later prototype's test program: a function that prints, one that needs libraries,
 * throughput over a ring, ping-pong by the programs, ping-pong by the functions.
 * `medley target|source PATH ROUNDS`
 */
#include "game.h"
#include "peer.h"

#define SLOT 1024
#define SLOTS 64
#define LENGTH 5000

static ucs_status_t poll_one(struct peer *peer, char *slot, size_t length, void *args)
{
    ucs_status_t status;
    do {
        status = peer_poll(peer, slot, length, args);
    } while (status == UCS_ERR_NO_MESSAGE);
    return status;
}

/* Waits until both processes are here, and UCX has made progress. */
static void synchronise(struct peer *peer)
{
    char byte = 0;
    peer_flush(peer);
    peer_send(peer->socket, &byte, 1);
    while (recv(peer->socket, &byte, 1, MSG_DONTWAIT) != 1)
        peer_idle(peer);
}

static void deliver(struct peer *peer, ucp_ifunc_msg_t message, size_t offset)
{
    ucs_status_t status = ucp_ifunc_send_nbix(peer->ep, message, peer->remote + offset, peer->rkey);
    CHECK(status == UCS_OK || status == UCS_INPROGRESS);
    peer_flush(peer);
}

static void send_one(struct peer *peer, const char *name, void *args, size_t length)
{
    ucp_ifunc_h ifunc;
    ucp_ifunc_msg_t message;
    OK(peer_register(peer, name, &ifunc));
    OK(ucp_ifunc_msg_create(ifunc, args, length, &message));
    deliver(peer, message, 0);
    ucp_ifunc_msg_free(message);
    ucp_deregister_ifunc(peer->context, ifunc);
}

/* Returns the library's expected result for the bytes that are sent: FNV-1a. */
static uint64_t digest(const unsigned char *bytes, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325;
    while (length-- > 0)
        hash = (hash ^ *bytes++) * 0x100000001b3;
    return hash;
}

static void ping_pong(struct peer *peer, int is_target, uint64_t rounds)
{
    uint64_t round, number = 1, counted[2] = { 0, 0 };
    ucp_ifunc_h ifunc;
    ucp_ifunc_msg_t message;
    OK(peer_register(peer, "tally", &ifunc));
    OK(ucp_ifunc_msg_create(ifunc, &number, sizeof number, &message));
    synchronise(peer);
    for (round = 0; round < rounds; round++) {
        if (!is_target)
            deliver(peer, message, 0);
        OK(poll_one(peer, peer->region, SLOT, counted));
        if (is_target)
            deliver(peer, message, 0);
    }
    ucp_ifunc_msg_free(message);
    ucp_deregister_ifunc(peer->context, ifunc);
    printf("ping-pong %llu\n", (unsigned long long)counted[0]);
}

static void ping_pong_by_functions(struct peer *peer, int is_target, uint64_t rounds)
{
    struct game game;
    ucp_ifunc_h ifunc;
    uint64_t begun = is_target ? 0 : 1;
    memset(&game, 0, sizeof game);
    game.ep = peer->ep;
    game.rkey = peer->rkey;
    game.remote = peer->remote;
    OK(peer_register(peer, "rally", &ifunc));
    OK(ucp_ifunc_msg_create(ifunc, NULL, 0, &game.message));
    synchronise(peer);
    if (!is_target)
        deliver(peer, game.message, 0);
    /* The source begins with its own ball. Its last one is not returned, as the target has ended by then. */
    for (; begun < rounds; begun++)
        OK(poll_one(peer, peer->region, SLOT, &game));
    CHECK(game.failed == 0);
    peer_flush(peer);
    ucp_ifunc_msg_free(game.message);
    ucp_deregister_ifunc(peer->context, ifunc);
    printf("rally %llu\n", (unsigned long long)game.seen);
}

int main(int argc, char **argv)
{
    struct peer peer;
    int is_target, lap, slot;
    uint64_t rounds;
    static unsigned char bytes[LENGTH];

    CHECK(argc == 4);
    is_target = strcmp(argv[1], "target") == 0;
    rounds = strtoull(argv[3], NULL, 10);
    peer_open(&peer, argv[2], is_target, SLOT * SLOTS);
    for (slot = 0; slot < LENGTH; slot++)
        bytes[slot] = (unsigned char)(slot * 7);

    if (is_target) {
        uint64_t counted[2] = { 0, 0 }, found = 0;
        ucs_status_t status;
        OK(poll_one(&peer, peer.region, SLOT * SLOTS, counted));
        synchronise(&peer);
        /* As in the prototype's program, a function whose libraries are missing ends the loop too. */
        do {
            status = peer_poll(&peer, peer.region, SLOT * SLOTS, &found);
        } while (status != UCS_OK && status != UCS_ERR_CANCELED);
        if (status == UCS_OK)
            printf("errand %s\n", found == digest(bytes, LENGTH) ? "equal" : "different");
        else
            printf("errand canceled\n");
        synchronise(&peer);
        counted[0] = 0;
        for (lap = 0; lap < 4; lap++) {
            for (slot = 0; slot < SLOTS; slot++)
                OK(poll_one(&peer, peer.region + SLOT * slot, SLOT, counted));
            synchronise(&peer);
        }
        printf("ring %llu\n", (unsigned long long)counted[0]);
    } else {
        uint64_t number = 1000;
        ucp_ifunc_h ifunc;
        ucp_ifunc_msg_t message;
        send_one(&peer, "tally", &number, sizeof number);
        synchronise(&peer);
        send_one(&peer, "errand", bytes, sizeof bytes);
        synchronise(&peer);
        OK(peer_register(&peer, "tally", &ifunc));
        number = 1;
        OK(ucp_ifunc_msg_create(ifunc, &number, sizeof number, &message));
        for (lap = 0; lap < 4; lap++) {
            for (slot = 0; slot < SLOTS; slot++)
                deliver(&peer, message, (size_t)(SLOT * slot));
            synchronise(&peer);
        }
        ucp_ifunc_msg_free(message);
        ucp_deregister_ifunc(peer.context, ifunc);
    }
    ping_pong(&peer, is_target, rounds);
    ping_pong_by_functions(&peer, is_target, rounds);
    synchronise(&peer);
    peer_close(&peer);
    return 0;
}
