/*
 * Two connected processes, the start of every program of the papers. One listens on a Unix socket. Over that
 * they exchange worker addresses and the keys of a region of memory. Then each has an endpoint to the other,
 * and a key of its region.
 *
 * Of ifuncs it uses only the two calls in which the variants differ.
 */
#ifndef PEER_H
#define PEER_H

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                           \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)

#define OK(call)                                                                                                      \
    do {                                                                                                              \
        ucs_status_t ok_status = (call);                                                                              \
        if (ok_status != UCS_OK) {                                                                                    \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, ucs_status_string(ok_status));              \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)

struct peer {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_mem_h memory;
    char *region; /* this process's own; the peer writes it */
    size_t length;
    ucp_ep_h ep; /* to the peer */
    ucp_rkey_h rkey;
    uint64_t remote; /* address of the peer's region, there */
    int socket;
};

static inline void peer_send(int socket, const void *bytes, size_t length)
{
    const char *at = (const char *)bytes;
    while (length > 0) {
        ssize_t sent = send(socket, at, length, MSG_NOSIGNAL);
        CHECK(sent > 0);
        at += sent;
        length -= (size_t)sent;
    }
}

static inline void peer_receive(int socket, void *bytes, size_t length)
{
    char *at = (char *)bytes;
    while (length > 0) {
        ssize_t received = recv(socket, at, length, 0);
        CHECK(received > 0);
        at += received;
        length -= (size_t)received;
    }
}

/* Exchanges byte strings of any length with the peer. The caller frees the result. */
static inline void *peer_swap(int socket, const void *mine, size_t length, size_t *theirs)
{
    uint64_t lengths[2];
    void *got;
    lengths[0] = length;
    peer_send(socket, &lengths[0], sizeof lengths[0]);
    peer_send(socket, mine, length);
    peer_receive(socket, &lengths[1], sizeof lengths[1]);
    got = malloc(lengths[1]);
    CHECK(got != NULL);
    peer_receive(socket, got, lengths[1]);
    *theirs = lengths[1];
    return got;
}

static inline int peer_connect(const char *path, int listens)
{
    struct sockaddr_un address;
    int made = socket(AF_UNIX, SOCK_STREAM, 0), met;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    CHECK(made >= 0);
    if (!listens) {
        while (connect(made, (struct sockaddr *)&address, sizeof address) != 0)
            usleep(1000); /* the parent process ends this one if it takes too long */
        return made;
    }
    CHECK(bind(made, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(made, 1) == 0);
    met = accept(made, NULL, NULL);
    CHECK(met >= 0);
    close(made);
    return met;
}

/* Makes a context with this many bytes of memory, and no peer. */
static inline void peer_alone(struct peer *peer, size_t length)
{
    ucp_params_t params;
    ucp_worker_params_t worker_params;
    ucp_mem_map_params_t map;
    ucp_mem_attr_t attributes;
    ucp_config_t *config;

    memset(peer, 0, sizeof *peer);
    memset(&params, 0, sizeof params);
    memset(&worker_params, 0, sizeof worker_params);
    memset(&map, 0, sizeof map);
    peer->socket = -1;
    peer->length = length;
    OK(ucp_config_read(NULL, NULL, &config));
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_RMA;
    OK(ucp_init(&params, config, &peer->context));
    ucp_config_release(config);
    OK(ucp_worker_create(peer->context, &worker_params, &peer->worker));
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    map.length = length;
    map.flags = UCP_MEM_MAP_ALLOCATE;
    OK(ucp_mem_map(peer->context, &map, &peer->memory));
    attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    OK(ucp_mem_query(peer->memory, &attributes));
    peer->region = (char *)attributes.address;
    memset(peer->region, 0, length);
}

static inline void peer_join(struct peer *peer, const void *worker_address, const void *packed_key)
{
    ucp_ep_params_t params;
    memset(&params, 0, sizeof params);
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = (const ucp_address_t *)worker_address;
    OK(ucp_ep_create(peer->worker, &params, &peer->ep));
    OK(ucp_ep_rkey_unpack(peer->ep, packed_key, &peer->rkey));
}

/* Opens a region of this many bytes, and connects with the process of the other role at the same path. */
static inline void peer_open(struct peer *peer, const char *path, int listens, size_t length)
{
    ucp_address_t *address;
    size_t address_length, key_length, got;
    uint64_t region, *remote;
    void *key, *theirs, *their_key;

    peer_alone(peer, length);
    OK(ucp_worker_get_address(peer->worker, &address, &address_length));
    OK(ucp_rkey_pack(peer->context, peer->memory, &key, &key_length));
    peer->socket = peer_connect(path, listens);
    theirs = peer_swap(peer->socket, address, address_length, &got);
    their_key = peer_swap(peer->socket, key, key_length, &got);
    region = (uint64_t)(uintptr_t)peer->region;
    remote = (uint64_t *)peer_swap(peer->socket, &region, sizeof region, &got);
    peer->remote = *remote;
    peer_join(peer, theirs, their_key);
    free(theirs);
    free(their_key);
    free(remote);
    ucp_rkey_buffer_release(key);
    ucp_worker_release_address(peer->worker, address);
}

/* Connects the process with itself. Maps existing memory of the program instead of UCX's. */
static inline void peer_open_self_over(struct peer *peer, void *memory, size_t length)
{
    ucp_mem_map_params_t map;
    ucp_address_t *address;
    size_t address_length, key_length;
    void *key;

    peer_alone(peer, length);
    OK(ucp_mem_unmap(peer->context, peer->memory));
    memset(&map, 0, sizeof map);
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    map.address = memory;
    map.length = length;
    OK(ucp_mem_map(peer->context, &map, &peer->memory));
    peer->region = (char *)memory;
    OK(ucp_worker_get_address(peer->worker, &address, &address_length));
    OK(ucp_rkey_pack(peer->context, peer->memory, &key, &key_length));
    peer->remote = (uint64_t)(uintptr_t)memory;
    peer_join(peer, address, key);
    ucp_rkey_buffer_release(key);
    ucp_worker_release_address(peer->worker, address);
}

/* Connects the process with itself. */
static inline void peer_open_self(struct peer *peer, size_t length)
{
    ucp_address_t *address;
    size_t address_length, key_length;
    void *key;

    peer_alone(peer, length);
    OK(ucp_worker_get_address(peer->worker, &address, &address_length));
    OK(ucp_rkey_pack(peer->context, peer->memory, &key, &key_length));
    peer->remote = (uint64_t)(uintptr_t)peer->region;
    peer_join(peer, address, key);
    ucp_rkey_buffer_release(key);
    ucp_worker_release_address(peer->worker, address);
}

/* Waits one turn for the peer, which may need this processor. */
static inline void peer_idle(struct peer *peer)
{
    ucp_worker_progress(peer->worker);
    sched_yield();
}

/* Waits until all sends are complete. */
static inline void peer_flush(struct peer *peer)
{
    ucp_request_param_t params;
    ucs_status_ptr_t request;
    memset(&params, 0, sizeof params);
    request = ucp_worker_flush_nbx(peer->worker, &params);
    if (request == NULL)
        return;
    CHECK(!UCS_PTR_IS_ERR(request));
    while (ucp_request_check_status(request) == UCS_INPROGRESS)
        peer_idle(peer);
    ucp_request_free(request);
}

/* Waits until the peer closes too, and closes. Until then, puts that UCX emulates need progress of both processes. */
static inline void peer_close(struct peer *peer)
{
    ucp_request_param_t params;
    ucs_status_ptr_t request;
    char byte = 0;

    peer_flush(peer);
    if (peer->socket >= 0) {
        peer_send(peer->socket, &byte, 1);
        while (recv(peer->socket, &byte, 1, MSG_DONTWAIT) != 1) {
            CHECK(errno == EAGAIN || errno == EWOULDBLOCK);
            peer_idle(peer);
        }
    }
    ucp_rkey_destroy(peer->rkey);
    memset(&params, 0, sizeof params);
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    request = ucp_ep_close_nbx(peer->ep, &params);
    if (UCS_PTR_IS_PTR(request)) {
        while (ucp_request_check_status(request) == UCS_INPROGRESS)
            ucp_worker_progress(peer->worker);
        ucp_request_free(request);
    }
    OK(ucp_mem_unmap(peer->context, peer->memory));
    ucp_worker_destroy(peer->worker);
    ucp_cleanup(peer->context);
    if (peer->socket >= 0)
        close(peer->socket);
}

/* The calls in which the prototypes differ. */
#ifdef IFUNC_API_THREE_CHAINS
static inline ucs_status_t peer_register(struct peer *peer, const char *name, ucp_ifunc_h *ifunc)
{
    ucp_ifunc_reg_param_t param;
    param.name = (char *)name;
    param.pure = 0;
    /* The test's choice: from the library, or from bitcode beside it. */
    param.llvm_bc = getenv("TEST_LLVM_BC") != NULL;
    return ucp_register_ifunc(peer->context, param, ifunc);
}

static inline ucs_status_t peer_poll(struct peer *peer, void *buffer, size_t length, void *target_args)
{
    ucs_status_t status = ucp_poll_ifunc(peer->context, buffer, length, target_args, peer->worker);
    if (status == UCS_ERR_NO_MESSAGE)
        sched_yield();
    return status;
}
#else
static inline ucs_status_t peer_register(struct peer *peer, const char *name, ucp_ifunc_h *ifunc)
{
    return ucp_register_ifunc(peer->context, name, ifunc);
}

static inline ucs_status_t peer_poll(struct peer *peer, void *buffer, size_t length, void *target_args)
{
    ucs_status_t status = ucp_poll_ifunc(peer->context, buffer, length, target_args);
    if (status == UCS_ERR_NO_MESSAGE)
        peer_idle(peer);
    return status;
}
#endif

#endif
