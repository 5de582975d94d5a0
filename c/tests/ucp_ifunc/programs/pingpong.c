/*
 * A ping-pong by functions: each function that runs sends the next message to the peer. Each process has one
 * slot of 1 KiB. `pingpong target|source PATH NAME ROUNDS`
 */
#include "peer.h"
#include "game.h"

#define SLOT 1024

int main(int argc, char **argv)
{
    struct peer peer;
    struct game game;
    int is_target;
    uint64_t rounds;
    ucp_ifunc_h ifunc;

    CHECK(argc == 5);
    is_target = strcmp(argv[1], "target") == 0;
    rounds = strtoull(argv[4], NULL, 10);
    peer_open(&peer, argv[2], is_target, SLOT);
    OK(peer_register(&peer, argv[3], &ifunc));
    memset(&game, 0, sizeof game);
    game.ep = peer.ep;
    game.rkey = peer.rkey;
    game.remote = peer.remote;
    game.rounds = rounds;
    OK(ucp_ifunc_msg_create(ifunc, NULL, 0, &game.message));
    CHECK(game.message.frame_size <= SLOT);
    if (!is_target) {
        ucs_status_t status = ucp_ifunc_send_nbix(peer.ep, game.message, peer.remote, peer.rkey);
        CHECK(status == UCS_OK || status == UCS_INPROGRESS);
    }
    while (game.seen < rounds) {
        ucs_status_t status = peer_poll(&peer, peer.region, SLOT, &game);
        CHECK(status == UCS_OK || status == UCS_ERR_NO_MESSAGE);
        CHECK(game.failed == 0);
    }
    peer_close(&peer);
    ucp_ifunc_msg_free(game.message);
    printf("saw %llu\n", (unsigned long long)game.seen);
    return 0;
}
