/* The target_args of the function that forwards itself. */
#ifndef WORLD_H
#define WORLD_H

struct world {
    ucp_context_h context;
    ucp_ep_h ep;
    ucp_rkey_h rkey;
    uint64_t remote;
    uint64_t visits, failed;
};

#endif
