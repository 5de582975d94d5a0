/*
 * Errors of a program, and their status codes. It is its own peer. `bad NAME LARGE mapped|put`: an existing
 * ifunc, one of more than 64 KiB, and the path of frames.
 */
#include "peer.h"

#define SLOT 1024
#define LENGTH (1 << 20)

#define IS(call, expected)                                                                                            \
    do {                                                                                                              \
        ucs_status_t is_status = (call);                                                                              \
        if (is_status != (expected)) {                                                                                \
            fprintf(stderr, "%s:%d: %s: %s, and not %s\n", __FILE__, __LINE__, #call, ucs_status_string(is_status),   \
                    #expected);                                                                                       \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)

static void sent(ucs_status_t status)
{
    CHECK(status == UCS_OK || status == UCS_INPROGRESS);
}

/* Runs the frame that was sent, and returns the status. */
static ucs_status_t poll_one(struct peer *peer, char *slot, size_t length, void *args)
{
    ucs_status_t status;
    peer_flush(peer);
    do {
        status = peer_poll(peer, slot, length, args);
    } while (status == UCS_ERR_NO_MESSAGE);
    return status;
}

static void names(struct peer *peer)
{
    static const size_t lengths[] = { 1, 7, 8, 63, 64, 255, 256, 4096 };
    static const char *const wrong[] = { "", "a/b", "..", "../tally", "/tally", "9lives", "a b", "a.so" };
    char name[4097];
    ucp_ifunc_h ifunc;
    size_t at;

    for (at = 0; at < sizeof lengths / sizeof *lengths; at++) {
        memset(name, 'x', lengths[at]);
        name[lengths[at]] = 0;
        ifunc = (ucp_ifunc_h)&name;
        IS(peer_register(peer, name, &ifunc), lengths[at] > 255 ? UCS_ERR_EXCEEDS_LIMIT : UCS_ERR_IO_ERROR);
        CHECK(ifunc == NULL);
    }
    for (at = 0; at < sizeof wrong / sizeof *wrong; at++) {
        ifunc = (ucp_ifunc_h)&name;
        IS(peer_register(peer, wrong[at], &ifunc), UCS_ERR_INVALID_PARAM);
        CHECK(ifunc == NULL);
    }
    ifunc = (ucp_ifunc_h)&name;
    IS(peer_register(peer, NULL, &ifunc), UCS_ERR_INVALID_PARAM);
    CHECK(ifunc == NULL);
}

static void handles(struct peer *peer, const char *name)
{
    struct peer none = *peer;
    ucp_ifunc_h ifunc, again;
    ucp_ifunc_msg_t message, nothing;
    uint64_t number = 1, counted[2] = { 0, 0 };

    none.context = NULL;
    ifunc = (ucp_ifunc_h)&none;
    IS(peer_register(&none, name, &ifunc), UCS_ERR_INVALID_PARAM);
    CHECK(ifunc == NULL);
    IS(peer_register(peer, name, NULL), UCS_ERR_INVALID_PARAM);
    OK(peer_register(peer, name, &ifunc));
    OK(peer_register(peer, name, &again));
    CHECK(ifunc == again);

    IS(ucp_ifunc_msg_create(NULL, &number, sizeof number, &message), UCS_ERR_INVALID_PARAM);
    IS(ucp_ifunc_msg_create(ifunc, &number, sizeof number, NULL), UCS_ERR_INVALID_PARAM);
    OK(ucp_ifunc_msg_create(ifunc, &number, sizeof number, &message));
    IS(ucp_ifunc_send_nbix(NULL, message, peer->remote, peer->rkey), UCS_ERR_INVALID_PARAM);
    IS(ucp_ifunc_send_nbix(peer->ep, message, 0, peer->rkey), UCS_ERR_INVALID_PARAM);
    IS(ucp_ifunc_send_nbix(peer->ep, message, peer->remote, NULL), UCS_ERR_INVALID_PARAM);
    IS(ucp_ifunc_send_nbix(peer->ep, message, peer->remote + 4, peer->rkey), UCS_ERR_INVALID_ADDR);
    memset(&nothing, 0, sizeof nothing);
    IS(ucp_ifunc_send_nbix(peer->ep, nothing, peer->remote, peer->rkey), UCS_ERR_INVALID_PARAM);
    ucp_ifunc_msg_free(nothing);

    /* A message outlives its handle. A deregistered handle makes no new message. Deregistering it again has no effect. */
    ucp_deregister_ifunc(peer->context, ifunc);
    ucp_deregister_ifunc(peer->context, ifunc);
    ucp_deregister_ifunc(peer->context, NULL);
    IS(ucp_ifunc_msg_create(ifunc, &number, sizeof number, &nothing), UCS_ERR_INVALID_PARAM);
    sent(ucp_ifunc_send_nbix(peer->ep, message, peer->remote, peer->rkey));
    /* Freed in flight, and twice. */
    ucp_ifunc_msg_free(message);
    ucp_ifunc_msg_free(message);
    IS(ucp_ifunc_send_nbix(peer->ep, message, peer->remote, peer->rkey), UCS_ERR_INVALID_PARAM);
    OK(poll_one(peer, peer->region, SLOT, counted));
    CHECK(counted[0] == 1 && counted[1] == 1);
    OK(peer_register(peer, name, &ifunc));
    CHECK(ifunc != again);
    ucp_deregister_ifunc(peer->context, ifunc);
}

static void buffers(struct peer *peer, const char *name, int mapped)
{
    struct peer none = *peer;
    uint64_t number = 5, counted[2] = { 0, 0 };
    ucp_ifunc_h ifunc;
    ucp_ifunc_msg_t message;

    none.context = NULL;
    IS(peer_poll(&none, peer->region, SLOT, NULL), UCS_ERR_INVALID_PARAM);
    IS(peer_poll(peer, NULL, SLOT, NULL), UCS_ERR_INVALID_PARAM);
    IS(peer_poll(peer, peer->region, 0, NULL), UCS_ERR_INVALID_PARAM);
    IS(peer_poll(peer, peer->region, 23, NULL), UCS_ERR_INVALID_PARAM);
    IS(peer_poll(peer, peer->region + 1, SLOT, NULL), UCS_ERR_INVALID_PARAM);
    IS(peer_poll(peer, peer->region, 24, NULL), UCS_ERR_NO_MESSAGE);

    OK(peer_register(peer, name, &ifunc));
    OK(ucp_ifunc_msg_create(ifunc, &number, sizeof number, &message));
    sent(ucp_ifunc_send_nbix(peer->ep, message, peer->remote, peer->rkey));
    if (mapped) {
        /* A sender sees the contents and the end of the target's memory only if that is mapped. */
        IS(ucp_ifunc_send_nbix(peer->ep, message, peer->remote, peer->rkey), UCS_ERR_NO_RESOURCE);
        IS(ucp_ifunc_send_nbix(peer->ep, message, peer->remote + (1 << 30), peer->rkey), UCS_ERR_INVALID_ADDR);
        IS(ucp_ifunc_send_nbix(peer->ep, message, peer->remote - (1 << 30), peer->rkey), UCS_ERR_INVALID_ADDR);
    }
    /* Too small for the frame: it is discarded. */
    IS(poll_one(peer, peer->region, 24, counted), UCS_ERR_CANCELED);
    IS(peer_poll(peer, peer->region, SLOT, counted), UCS_ERR_NO_MESSAGE);
    sent(ucp_ifunc_send_nbix(peer->ep, message, peer->remote, peer->rkey));
    OK(poll_one(peer, peer->region, SLOT, counted));
    CHECK(counted[0] == 1 && counted[1] == 5);
    ucp_ifunc_msg_free(message);
    ucp_deregister_ifunc(peer->context, ifunc);
}

static void large(struct peer *peer, const char *name)
{
    uint64_t sum = 0;
    ucp_ifunc_h ifunc;
    ucp_ifunc_msg_t message;

    OK(peer_register(peer, name, &ifunc));
    OK(ucp_ifunc_msg_create(ifunc, NULL, 0, &message));
    CHECK(message.frame_size > 65536 && message.frame_size < LENGTH);
    sent(ucp_ifunc_send_nbix(peer->ep, message, peer->remote, peer->rkey));
    OK(poll_one(peer, peer->region, LENGTH, &sum));
    CHECK(sum == 100000);
    ucp_ifunc_msg_free(message);
    ucp_deregister_ifunc(peer->context, ifunc);
}

int main(int argc, char **argv)
{
    struct peer peer;

    CHECK(argc == 4);
    peer_open_self(&peer, LENGTH);
    names(&peer);
    handles(&peer, argv[1]);
    buffers(&peer, argv[1], strcmp(argv[3], "mapped") == 0);
    large(&peer, argv[2]);
#ifdef IFUNC_API_THREE_CHAINS
    {
        ucp_ifunc_reg_param_t param = { argv[1], 0, 0 };
        ucp_ifunc_h ifunc;
        ucp_ifunc_msg_t message;
        uint64_t number = 5, counted[2] = { 0, 0 };
        void *payload;
        size_t size;

        ifunc = (ucp_ifunc_h)&param;
        IS(ucp_register_ifunc_im(peer.context, param, NULL, 0, NULL, 0, &ifunc), UCS_ERR_NO_ELEM);
        CHECK(ifunc == NULL);
        OK(ucp_register_ifunc(peer.context, param, &ifunc));
        OK(ucp_ifunc_msg_create(ifunc, &number, sizeof number, &message));
        IS(ucp_ifunc_msg_get_payload_ptr(NULL, &payload, &size), UCS_ERR_INVALID_PARAM);
        IS(ucp_ifunc_msg_get_payload_ptr(&message, NULL, &size), UCS_ERR_INVALID_PARAM);
        OK(ucp_ifunc_msg_get_payload_ptr(&message, &payload, NULL));
        OK(ucp_ifunc_msg_get_payload_ptr(&message, &payload, &size));
        CHECK(size == sizeof number);
        number = 9;
        memcpy(payload, &number, sizeof number);
        sent(ucp_ifunc_send_nbix(peer.ep, message, peer.remote, peer.rkey));
        OK(poll_one(&peer, peer.region, SLOT, counted));
        CHECK(counted[1] == 9);
        ucp_ifunc_msg_free(message);
        IS(ucp_ifunc_msg_get_payload_ptr(&message, &payload, &size), UCS_ERR_INVALID_PARAM);
        IS(ucp_poll_ifunc(peer.context, peer.region, SLOT, NULL, NULL), UCS_ERR_INVALID_PARAM);
    }
#endif
    peer_close(&peer);
    printf("all of it was reported\n");
    return 0;
}
