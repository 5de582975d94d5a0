/*
 * Sends to its own worker, into memory of three kinds: UCX's, the heap's and the program's own. `own NAME`:
 * an ifunc that sums.
 */
#include "peer.h"

#define SLOT 1024
#define SLOTS 4

static char statics[SLOT * SLOTS] __attribute__((aligned(4096)));

/* Runs the frame that was sent there, and returns the status. */
static ucs_status_t poll_one(struct peer *peer, char *slot, void *args)
{
    ucs_status_t status;
    peer_flush(peer);
    do {
        status = peer_poll(peer, slot, SLOT, args);
    } while (status == UCS_ERR_NO_MESSAGE);
    return status;
}

static void rounds(struct peer *peer, const char *name, const char *kind)
{
    uint64_t number, counted[2] = { 0, 0 };
    ucp_ifunc_h ifunc;

    OK(peer_register(peer, name, &ifunc));
    for (number = 0; number < 3 * SLOTS; number++) {
        uint64_t offset = number % SLOTS * SLOT;
        ucp_ifunc_msg_t message;
        ucs_status_t status;
        OK(ucp_ifunc_msg_create(ifunc, &number, sizeof number, &message));
        status = ucp_ifunc_send_nbix(peer->ep, message, peer->remote + offset, peer->rkey);
        if (status != UCS_OK && status != UCS_INPROGRESS) {
            fprintf(stderr, "%s memory: %s\n", kind, ucs_status_string(status));
            exit(1);
        }
        ucp_ifunc_msg_free(message);
        OK(poll_one(peer, peer->region + offset, counted));
    }
    CHECK(counted[0] == 3 * SLOTS && counted[1] == 3 * SLOTS * (3 * SLOTS - 1) / 2);
    ucp_deregister_ifunc(peer->context, ifunc);
    peer_close(peer);
}

int main(int argc, char **argv)
{
    struct peer peer;
    void *heap = NULL;

    CHECK(argc == 2);
    peer_open_self(&peer, SLOT * SLOTS);
    rounds(&peer, argv[1], "UCX's");
    CHECK(posix_memalign(&heap, 4096, SLOT * SLOTS) == 0);
    memset(heap, 0, SLOT * SLOTS);
    peer_open_self_over(&peer, heap, SLOT * SLOTS);
    rounds(&peer, argv[1], "the heap's");
    free(heap);
    peer_open_self_over(&peer, statics, SLOT * SLOTS);
    rounds(&peer, argv[1], "the program's");
    printf("all of it came\n");
    return 0;
}
