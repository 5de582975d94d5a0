/* A process that uses UCT, the lower half of UCX, and knows a TCP port and an address of another process: puts
 * eight bytes there. Ends with 0 if UCX reports the put as done, with 3 if the port could not be reached in
 * time, and with another number if UCX lacks something. Arguments: device, port, address. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uct/api/uct.h>

#define DO(call) do { ucs_status_t status = (call); \
    if (status != UCS_OK) { fprintf(stderr, "%s: %s\n", #call, ucs_status_string(status)); return 2; } } while (0)

static void done(uct_completion_t *completion) { (void)completion; }

static void kept_out(int signal) {
    (void)signal;
    _Exit(3);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    /* UCX waits for a connection as long as the system does, which is minutes. */
    signal(SIGALRM, kept_out);
    alarm(3);
    const char *device = arguments[1];
    const uint16_t port = (uint16_t)atoi(arguments[2]);
    const uint64_t address = strtoull(arguments[3], NULL, 0);

    uct_component_h *components, tcp = NULL;
    unsigned number;
    DO(uct_query_components(&components, &number));
    for (unsigned i = 0; i < number; i++) {
        uct_component_attr_t attributes = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME};
        DO(uct_component_query(components[i], &attributes));
        if (!strcmp(attributes.name, "tcp")) tcp = components[i];
    }
    if (!tcp) return 2;
    uct_md_config_t *md_config;
    uct_md_h md;
    DO(uct_md_config_read(tcp, NULL, NULL, &md_config));
    DO(uct_md_open(tcp, "tcp", md_config, &md));
    ucs_async_context_t *async;
    uct_worker_h worker;
    DO(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async));
    DO(uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &worker));
    uct_iface_config_t *config;
    uct_iface_h interface;
    DO(uct_md_iface_config_read(md, "tcp", NULL, NULL, &config));
    uct_iface_params_t parameters = {
        .field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE,
        .open_mode = UCT_IFACE_OPEN_MODE_DEVICE,
        .mode.device = {.tl_name = "tcp", .dev_name = device},
    };
    DO(uct_iface_open(md, worker, &parameters, config, &interface));
    uct_iface_progress_enable(interface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    uct_iface_attr_t attributes;
    DO(uct_iface_query(interface, &attributes));
    /* Its own addresses, with the other one's port: the device is the same. */
    void *device_address = calloc(1, attributes.device_addr_len + 64);
    unsigned char *iface_address = calloc(1, attributes.iface_addr_len + 64);
    DO(uct_iface_get_device_address(interface, device_address));
    DO(uct_iface_get_address(interface, (uct_iface_addr_t *)iface_address));
    iface_address[0] = (unsigned char)(port >> 8);
    iface_address[1] = (unsigned char)port;
    uct_ep_params_t to = {
        .field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR,
        .iface = interface,
        .dev_addr = device_address,
        .iface_addr = (uct_iface_addr_t *)iface_address,
    };
    uct_ep_h end;
    if (uct_ep_create(&to, &end) != UCS_OK) return 3;

    uint64_t what = 0x6e61727473a5a5a5;
    uct_iov_t piece = {.buffer = &what, .length = sizeof what, .memh = UCT_MEM_HANDLE_NULL, .count = 1};
    uct_completion_t completion = {.func = done, .count = 2, .status = UCS_OK};
    const double end_of_time = now() + 2;
    ucs_status_t status;
    do {
        uct_worker_progress(worker);
        status = uct_ep_put_zcopy(end, &piece, 1, address, 0, &completion);
    } while (status == UCS_ERR_NO_RESOURCE && now() < end_of_time);
    if (status == UCS_ERR_NO_RESOURCE) return 3;
    if (status != UCS_OK && status != UCS_INPROGRESS) { fprintf(stderr, "put: %s\n", ucs_status_string(status)); return 3; }
    completion.count = 2;
    status = uct_ep_flush(end, 0, &completion);
    while (now() < end_of_time && completion.count == 2 && status == UCS_INPROGRESS) uct_worker_progress(worker);
    /* The other process carries out the put. */
    _Exit(completion.count < 2 || status == UCS_OK ? 0 : 3);
}
