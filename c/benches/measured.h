/* The target_args of the measured functions. */
#ifndef MEASURED_H
#define MEASURED_H

#include <stdint.h>

struct measured {
    uint64_t calls;   /* first, for the function that only counts */
    uint64_t answers; /* whether each call is answered */
    ucp_ep_h ep;
    ucp_rkey_h rkey;
    uint64_t remote;
    ucp_ifunc_msg_t answer;
};

#endif
