/* Forwards itself to the peer, and from there again, until its hops are made. */
#include <stdint.h>

#include "world.h"

/* Whether it came from bitcode, as the source's compiler says. */
#ifndef TEST_LLVM_BC
#define TEST_LLVM_BC 0
#endif

#ifdef IFUNC_API_THREE_CHAINS
size_t nomad_payload_bound(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return source_args_size;
}

int nomad_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size)
{
    *(uint64_t *)payload = *(uint64_t *)source_args;
    *payload_size = source_args_size;
    return 0;
}
#else
size_t nomad_payload_get_max_size(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return source_args_size;
}

int nomad_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size)
{
    (void)payload_size, (void)source_args_size;
    *(uint64_t *)payload = *(uint64_t *)source_args;
    return 0;
}
#endif

void nomad_main(void *payload, size_t payload_size, void *target_args)
{
    struct world *world = target_args;
    uint64_t left = *(uint64_t *)payload - 1;
    ucp_ifunc_h self;
    ucp_ifunc_msg_t message;
    ucs_status_t status;
#ifdef IFUNC_API_THREE_CHAINS
    ucp_ifunc_reg_param_t param = { "nomad", 0, TEST_LLVM_BC };
#endif
    (void)payload_size;
    world->visits++;
    if (left == 0)
        return;
#ifdef IFUNC_API_THREE_CHAINS
    status = ucp_register_ifunc(world->context, param, &self);
#else
    status = ucp_register_ifunc(world->context, "nomad", &self);
#endif
    if (status != UCS_OK || ucp_ifunc_msg_create(self, &left, sizeof left, &message) != UCS_OK) {
        world->failed++;
        return;
    }
    status = ucp_ifunc_msg_send_nbix(world->ep, message, world->remote, world->rkey);
    if (status != UCS_OK && status != UCS_INPROGRESS)
        world->failed++;
    ucp_ifunc_msg_free(message);
}
