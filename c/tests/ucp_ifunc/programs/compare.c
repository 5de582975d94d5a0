/*
 * Sends frames of 8 B to 8 KiB, and now and then up to 128 KiB, so that copying takes longer than starting a
 * poll. Their pattern depends on their number. Slots are not cleared. The function compares every byte when it
 * runs. `compare target|source PATH NAME FRAMES`
 */
#include "peer.h"
#include "compared.h"

#define SLOT (144 << 10)
#define SLOTS 64

int main(int argc, char **argv)
{
    struct peer peer;
    struct compared compared;
    int is_target;
    uint64_t frames, number;
    volatile uint64_t *done;

    CHECK(argc == 5);
    is_target = strcmp(argv[1], "target") == 0;
    frames = strtoull(argv[4], NULL, 10);
    peer_open(&peer, argv[2], is_target, SLOT * SLOTS);
    done = (volatile uint64_t *)peer.region;
    memset(&compared, 0, sizeof compared);
    if (is_target) {
        ucp_request_param_t params;
        static uint64_t told[SLOTS];
        memset(&params, 0, sizeof params);
        while (compared.frames < frames) {
            char *slot = peer.region + SLOT * (compared.frames % SLOTS);
            ucs_status_t status = peer_poll(&peer, slot, SLOT, &compared);
            if (status == UCS_ERR_NO_MESSAGE)
                continue;
            OK(status);
            CHECK(compared.wrong == 0);
            /* The slot is free when its function has returned. Now and then the source gets the number of
             * frames that have run. */
            if (compared.frames % (SLOTS / 4) == 0) {
                uint64_t *word = &told[compared.frames / (SLOTS / 4) % SLOTS];
                ucs_status_ptr_t request;
                *word = compared.frames;
                request = ucp_put_nbx(peer.ep, word, sizeof *word, peer.remote, peer.rkey, &params);
                CHECK(!UCS_PTR_IS_ERR(request));
                peer_flush(&peer);
                if (request != NULL)
                    ucp_request_free(request);
            }
        }
        printf("compared %llu frames, %llu bytes\n", (unsigned long long)compared.frames,
               (unsigned long long)compared.bytes);
    } else {
        ucp_ifunc_h ifunc;
        uint64_t dice = 88172645463325252u;
        OK(peer_register(&peer, argv[3], &ifunc));
        for (number = 0; number < frames; number++) {
            ucp_ifunc_msg_t message;
            ucs_status_t status;
            struct wanted wanted;
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            wanted.number = number;
            wanted.words = 1 + dice % (number % 16 == 0 ? MOST_WORDS : 1024);
            OK(ucp_ifunc_msg_create(ifunc, &wanted, sizeof wanted, &message));
            CHECK(message.frame_size <= SLOT);
            while (number - *done >= SLOTS)
                peer_idle(&peer);
            status = ucp_ifunc_send_nbix(peer.ep, message, peer.remote + SLOT * (number % SLOTS), peer.rkey);
            CHECK(status == UCS_OK || status == UCS_INPROGRESS);
            /* The message can be freed: UCX sends from a copy. */
            ucp_ifunc_msg_free(message);
        }
    }
    peer_close(&peer);
    return 0;
}
