/* A program's own traffic over UCX, independent of farjump: numbers that are sent as active messages, and
 * come back.
 *
 * The program's event loop drives it. pings_work() does the pending work; pings_arm() prepares to sleep on
 * pings_fd().
 */
#ifndef PINGS_H
#define PINGS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucp/api/ucp.h>

enum { PING, PONG };

struct pings {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h peer; /* set in the process that sends pings, else NULL */
    uint64_t received, last;
};

static inline void pings_check(const char *what, ucs_status_t status)
{
    if (status != UCS_OK) {
        fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
        exit(1);
    }
}

static inline void pings_sent(void *request, ucs_status_t status, void *number)
{
    free(number);
    pings_check("sending a ping", status);
    ucp_request_free(request);
}

/* Sends a number. The number is freed once UCX has taken it, which is at once if UCX has space. */
static inline void pings_send(ucp_ep_h to, unsigned id, uint64_t value)
{
    uint64_t *number = malloc(sizeof *number);
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_REPLY,
        .cb.send = pings_sent,
        .user_data = number,
    };
    if (number == NULL)
        abort();
    *number = value;
    ucs_status_ptr_t sent = ucp_am_send_nbx(to, id, NULL, 0, number, sizeof *number, &param);
    if (!UCS_PTR_IS_PTR(sent)) {
        free(number);
        pings_check("sending a ping", UCS_PTR_STATUS(sent));
    }
}

static inline ucs_status_t pings_on_ping(void *pings_, const void *header, size_t header_size, void *data, size_t size,
                                         const ucp_am_recv_param_t *param)
{
    struct pings *pings = pings_;
    (void)header, (void)header_size;
    if (size == sizeof pings->last) {
        pings->received++;
        pings->last = *(uint64_t *)data;
        pings_send(param->reply_ep, PONG, pings->last);
    }
    return UCS_OK;
}

static inline ucs_status_t pings_on_pong(void *pings_, const void *header, size_t header_size, void *data, size_t size,
                                         const ucp_am_recv_param_t *param)
{
    struct pings *pings = pings_;
    (void)header, (void)header_size, (void)param;
    if (size == sizeof pings->last) {
        pings->received++;
        pings->last = *(uint64_t *)data;
    }
    return UCS_OK;
}

static inline void pings_handle(struct pings *pings, unsigned id, ucp_am_recv_callback_t callback)
{
    ucp_am_handler_param_t param = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = id,
        .cb = callback,
        .arg = pings,
    };
    pings_check("ucp_worker_set_am_recv_handler", ucp_worker_set_am_recv_handler(pings->worker, &param));
}

static inline void pings_open(struct pings *pings)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
    *pings = (struct pings){0};
    pings_check("ucp_init", ucp_init(&params, NULL, &pings->context));
    pings_check("ucp_worker_create", ucp_worker_create(pings->context, &worker, &pings->worker));
    pings_handle(pings, PING, pings_on_ping);
    pings_handle(pings, PONG, pings_on_pong);
}

static inline int pings_fd(struct pings *pings)
{
    int fd;
    pings_check("ucp_worker_get_efd", ucp_worker_get_efd(pings->worker, &fd));
    return fd;
}

/* Does the pending work. Returns whether there was any. */
static inline int pings_work(struct pings *pings)
{
    return ucp_worker_progress(pings->worker) != 0;
}

/* Returns whether the program may sleep: a later event makes the descriptor readable. If not, an event is
 * pending. */
static inline int pings_arm(struct pings *pings)
{
    ucs_status_t armed = ucp_worker_arm(pings->worker);
    if (armed != UCS_ERR_BUSY)
        pings_check("ucp_worker_arm", armed);
    return armed != UCS_ERR_BUSY;
}

/* Prints the worker's address for another process. */
static inline void pings_print_address(struct pings *pings, FILE *out)
{
    ucp_address_t *address;
    size_t size;
    pings_check("ucp_worker_get_address", ucp_worker_get_address(pings->worker, &address, &size));
    for (size_t at = 0; at < size; at++)
        fprintf(out, "%02x", ((unsigned char *)address)[at]);
    ucp_worker_release_address(pings->worker, address);
}

/* Connects to the worker with this address, as pings_print_address() printed it. */
static inline void pings_connect(struct pings *pings, const char *text)
{
    static unsigned char address[1 << 16];
    size_t size = 0;
    while (size < sizeof address && sscanf(text + 2 * size, "%2hhx", &address[size]) == 1)
        size++;
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = (ucp_address_t *)address};
    pings_check("ucp_ep_create", ucp_ep_create(pings->worker, &params, &pings->peer));
}

static inline void pings_close(struct pings *pings)
{
    if (pings->peer != NULL) {
        ucp_request_param_t param = {0};
        ucs_status_ptr_t closing = ucp_ep_close_nbx(pings->peer, &param);
        if (UCS_PTR_IS_PTR(closing)) {
            while (ucp_request_check_status(closing) == UCS_INPROGRESS)
                ucp_worker_progress(pings->worker);
            ucp_request_free(closing);
        }
    }
    ucp_worker_destroy(pings->worker);
    ucp_cleanup(pings->context);
}

#endif
