/*
 * Throughput as in the papers. The source fills a ring of slots of 1 KiB. The target runs their frames, and
 * reports its position after each lap by a put into the source's memory. `throughput target|source PATH
 * NAME LAPS`
 */
#include "peer.h"

#define SLOT 1024
#define SLOTS 64

int main(int argc, char **argv)
{
    struct peer peer;
    int is_target, laps, lap, slot;
    volatile uint64_t *done;

    CHECK(argc == 5);
    is_target = strcmp(argv[1], "target") == 0;
    laps = atoi(argv[4]);
    peer_open(&peer, argv[2], is_target, SLOT * SLOTS);
    done = (volatile uint64_t *)peer.region;
    if (is_target) {
        /* The counter of NAME_main. */
        uint64_t counted[2] = { 0, 0 };
        for (lap = 0; lap < laps; lap++) {
            ucp_request_param_t params;
            ucs_status_ptr_t request;
            uint64_t told = (uint64_t)lap + 1;
            for (slot = 0; slot < SLOTS; slot++) {
                ucs_status_t status;
                do {
                    status = peer_poll(&peer, peer.region + SLOT * slot, SLOT, counted);
                } while (status == UCS_ERR_NO_MESSAGE);
                OK(status);
                OK(peer_poll(&peer, peer.region + SLOT * slot, SLOT, counted) == UCS_ERR_NO_MESSAGE ? UCS_OK
                                                                                                   : UCS_ERR_LAST);
            }
            memset(&params, 0, sizeof params);
            request = ucp_put_nbx(peer.ep, &told, sizeof told, peer.remote, peer.rkey, &params);
            CHECK(!UCS_PTR_IS_ERR(request));
            peer_flush(&peer);
            if (request != NULL)
                ucp_request_free(request);
        }
        printf("ran %llu, sum %llu\n", (unsigned long long)counted[0], (unsigned long long)counted[1]);
        fflush(stdout);
    } else {
        ucp_ifunc_h ifunc;
        OK(peer_register(&peer, argv[3], &ifunc));
        for (lap = 0; lap < laps; lap++) {
            for (slot = 0; slot < SLOTS; slot++) {
                ucp_ifunc_msg_t message;
                ucs_status_t status;
                uint64_t number = (uint64_t)(lap * SLOTS + slot);
                OK(ucp_ifunc_msg_create(ifunc, &number, sizeof number, &message));
                CHECK(message.frame_size <= SLOT);
                status = ucp_ifunc_send_nbix(peer.ep, message, peer.remote + (uint64_t)(SLOT * slot), peer.rkey);
                CHECK(status == UCS_OK || status == UCS_INPROGRESS);
                ucp_ifunc_msg_free(message);
            }
            peer_flush(&peer);
            while (*done != (uint64_t)lap + 1)
                peer_idle(&peer);
        }
        ucp_deregister_ifunc(peer.context, ifunc);
    }
    peer_close(&peer);
    return 0;
}
