/* What the function that forwards itself gets as target_args. */
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
