/*
 * The rounding of a program after functions that change it. It is its own peer. `tilted NAME`: an ifunc that rounds upward,
 * and panics if its payload is a 1.
 */
#include <fenv.h>

#include "peer.h"

#define SLOT 1024

/* Returns a third of 1, as this program rounds it. */
static double third(void)
{
    volatile double one = 1, three = 3;
    return one / three;
}

static void call(struct peer *peer, ucp_ifunc_h ifunc, uint64_t panics, int mode)
{
    ucp_ifunc_msg_t message;
    ucs_status_t status;
    double before, behind;

    OK(ucp_ifunc_msg_create(ifunc, &panics, sizeof panics, &message));
    status = ucp_ifunc_send_nbix(peer->ep, message, peer->remote, peer->rkey);
    CHECK(status == UCS_OK || status == UCS_INPROGRESS);
    ucp_ifunc_msg_free(message);
    peer_flush(peer);

    CHECK(fesetround(mode) == 0);
    before = third();
    do {
        status = peer_poll(peer, peer->region, SLOT, NULL);
    } while (status == UCS_ERR_NO_MESSAGE);
    behind = third();
    CHECK(status == (panics ? UCS_ERR_CANCELED : UCS_OK));
    CHECK(fegetround() == mode && behind == before);
    CHECK(fesetround(FE_TONEAREST) == 0);
}

int main(int argc, char **argv)
{
    struct peer peer;
    ucp_ifunc_h ifunc;
    uint64_t panics;

    CHECK(argc == 2);
    peer_open_self(&peer, SLOT);
    OK(peer_register(&peer, argv[1], &ifunc));
    for (panics = 0; panics < 2; panics++) {
        call(&peer, ifunc, panics, FE_TONEAREST);
        /* The program's own choice. */
        call(&peer, ifunc, panics, FE_UPWARD);
    }
    ucp_deregister_ifunc(peer.context, ifunc);
    peer_close(&peer);
    printf("it rounds as before\n");
    return 0;
}
