/* The target_args of the ping-pong's function, in both processes. */
#ifndef GAME_H
#define GAME_H

struct game {
    ucp_ep_h ep;
    ucp_rkey_h rkey;
    uint64_t remote;
    ucp_ifunc_msg_t message; /* the next one to the peer */
    uint64_t seen, rounds, failed;
};

#endif
