/*
 * A function that forwards itself. It arrives in a frame, registers itself, makes a message of itself and
 * sends it, until it has made its hops. Only the source has its library. `roaming target|source PATH NAME HOPS`
 */
#include "peer.h"
#include "world.h"

int main(int argc, char **argv)
{
    struct peer peer;
    struct world world;
    int is_target;
    uint64_t hops;

    CHECK(argc == 5);
    is_target = strcmp(argv[1], "target") == 0;
    hops = strtoull(argv[4], NULL, 10);
    peer_open(&peer, argv[2], is_target, 4096);
    memset(&world, 0, sizeof world);
    world.context = peer.context;
    world.ep = peer.ep;
    world.rkey = peer.rkey;
    world.remote = peer.remote;
    if (!is_target) {
        ucp_ifunc_h ifunc;
        ucp_ifunc_msg_t message;
        ucs_status_t status;
        OK(peer_register(&peer, argv[3], &ifunc));
        OK(ucp_ifunc_msg_create(ifunc, &hops, sizeof hops, &message));
        status = ucp_ifunc_msg_send_nbix(peer.ep, message, peer.remote, peer.rkey);
        CHECK(status == UCS_OK || status == UCS_INPROGRESS);
        ucp_ifunc_msg_free(message);
    } else {
        ucp_ifunc_h ifunc;
        CHECK(peer_register(&peer, argv[3], &ifunc) == UCS_ERR_IO_ERROR);
    }
    /* An even number of hops ends at the source, where the last one is not forwarded. */
    while (world.visits < hops / 2) {
        ucs_status_t status = peer_poll(&peer, peer.region, 4096, &world);
        CHECK(status == UCS_OK || status == UCS_ERR_NO_MESSAGE);
        CHECK(world.failed == 0);
    }
    peer_close(&peer);
    printf("%llu visits\n", (unsigned long long)world.visits);
    return 0;
}
