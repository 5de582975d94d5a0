/*
 * One-way time and rate of messages through ucp_ifunc.h, beside the library over the same path (ucx-put) and
 * UCX's active messages. Each round measures all three, one after the other, in one pair of processes.
 * `ucp_ifunc target|source PATH FOLDER ROUNDS MOST`
 *
 * FOLDER has libmark.so, mark.so and bounce.so; MOST is the longest payload in bytes. As in `farjump perf`,
 * payloads go one way: a call's time is that of its round trip less half an empty one of the same round. The
 * result of a round is the median of its batches, or of its streams.
 */
#include <time.h>

#include <farjump.h>

#include "peer.h"

#include "measured.h"

#define AM_ID 1
/* As long as the library's mailbox, so that both use as much memory; and the page before it. */
#define RING ((4u << 20) + 4096)
#define SLOTS 256
#define BATCH 32
#define BATCHES 31
#define STREAMS 11
#define ROUNDS 99

enum contestant { LIBRARY, IFUNC, MESSAGES, CONTESTANTS };
enum figure { ROUND_TRIP, RATE, FIGURES };

static const char *const names[] = { "library", "ucp_ifunc", "messages" };

/* Phases that the source requests of the target. */
struct phase {
    uint64_t contestant, figure, size, count;
};

/* UCX's active messages, in a context of their own with the one feature that they need. */
struct messages {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    uint64_t came, answers;
    char *room;
    size_t length;
    int sending;
};

static struct messages am;
static struct peer peer;
static struct measured measured;
static char *source_bytes;

#define FINE(call)                                                                                                    \
    do {                                                                                                              \
        if ((call) < 0) {                                                                                             \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, farjump_last_error());                      \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int smaller(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, smaller);
    return values[count / 2];
}

/* Active messages. */

static void am_sent(void *request, ucs_status_t status, void *user)
{
    (void)user;
    CHECK(status == UCS_OK);
    am.sending--;
    ucp_request_free(request);
}

static void am_send(const void *bytes, size_t length)
{
    ucp_request_param_t params;
    ucs_status_ptr_t request;
    memset(&params, 0, sizeof params);
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK;
    params.cb.send = am_sent;
    request = ucp_am_send_nbx(am.ep, AM_ID, NULL, 0, bytes, length, &params);
    CHECK(!UCS_PTR_IS_ERR(request));
    am.sending += request != NULL;
}

static void am_done(void)
{
    am.came++;
    if (am.answers)
        am_send(source_bytes, 0);
}

static void am_fetched(void *request, ucs_status_t status, size_t length, void *user)
{
    (void)length, (void)user;
    CHECK(status == UCS_OK);
    am_done();
    ucp_request_free(request);
}

static ucs_status_t am_came(void *user, const void *header, size_t header_length, void *data, size_t length,
                            const ucp_am_recv_param_t *param)
{
    (void)user, (void)header, (void)header_length;
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        ucp_request_param_t params;
        ucs_status_ptr_t request;
        memset(&params, 0, sizeof params);
        params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK;
        params.cb.recv_am = am_fetched;
        request = ucp_am_recv_data_nbx(am.worker, data, am.room, length, &params);
        CHECK(!UCS_PTR_IS_ERR(request));
        if (request == NULL)
            am_done();
        return UCS_INPROGRESS;
    }
    am_done();
    return UCS_OK;
}

static void am_open(size_t longest)
{
    ucp_params_t params;
    ucp_worker_params_t worker_params;
    ucp_am_handler_param_t handler;
    ucp_ep_params_t ep_params;
    ucp_config_t *config;
    ucp_address_t *address;
    size_t length, got;
    void *theirs;

    memset(&params, 0, sizeof params);
    memset(&worker_params, 0, sizeof worker_params);
    memset(&handler, 0, sizeof handler);
    memset(&ep_params, 0, sizeof ep_params);
    OK(ucp_config_read(NULL, NULL, &config));
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM;
    OK(ucp_init(&params, config, &am.context));
    ucp_config_release(config);
    OK(ucp_worker_create(am.context, &worker_params, &am.worker));
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
    handler.id = AM_ID;
    handler.cb = am_came;
    OK(ucp_worker_set_am_recv_handler(am.worker, &handler));
    OK(ucp_worker_get_address(am.worker, &address, &length));
    theirs = peer_swap(peer.socket, address, length, &got);
    ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    ep_params.address = (const ucp_address_t *)theirs;
    OK(ucp_ep_create(am.worker, &ep_params, &am.ep));
    free(theirs);
    ucp_worker_release_address(am.worker, address);
    am.room = (char *)calloc(1, longest);
    CHECK(am.room != NULL);
}

/* The ring: as many slots as fit behind the target's first page. The source has its reply slot there. */

static size_t stride(size_t frame)
{
    return (frame + 63) / 64 * 64;
}

static size_t slots(size_t frame)
{
    size_t fit = (RING - 4096) / stride(frame);
    return fit < SLOTS ? fit : SLOTS;
}

/* The target. */

static void take_part(const struct phase *phase, farjump_target_t *target)
{
    uint64_t goal;
    measured.answers = am.answers = phase->figure == ROUND_TRIP;
    if (phase->contestant == LIBRARY) {
        /* Until the source has had its last reply, and requests the next phase. */
        char next;
        goal = measured.calls + phase->count;
        while (measured.calls < goal)
            FINE(farjump_target_poll(target, NULL));
        while (recv(peer.socket, &next, 1, MSG_DONTWAIT | MSG_PEEK) != 1)
            FINE(farjump_target_poll(target, NULL));
        return;
    }
    if (phase->contestant == MESSAGES) {
        goal = am.came + phase->count;
        while (am.came < goal || am.sending > 0)
            ucp_worker_progress(am.worker);
        if (phase->figure == RATE)
            am_send(source_bytes, 0);
        while (am.sending > 0)
            ucp_worker_progress(am.worker);
        return;
    }
    goal = measured.calls + phase->count;
    if (phase->figure == ROUND_TRIP) {
        while (measured.calls < goal)
            (void)ucp_poll_ifunc(peer.context, peer.region + 4096, RING - 4096, &measured);
        return;
    }
    {
        /* Reports its position to the source by a word in its memory, a quarter of the ring at a time. */
        size_t each = stride(phase->size), fit = slots(phase->size), slot = 0, told = fit / 4 > 0 ? fit / 4 : 1;
        uint64_t first = measured.calls;
        void *word;
        OK(ucp_rkey_ptr(peer.rkey, peer.remote + 2048, &word));
        while (measured.calls < goal) {
            if (ucp_poll_ifunc(peer.context, peer.region + 4096 + each * slot, each, &measured) != UCS_OK)
                continue;
            slot = slot + 1 == fit ? 0 : slot + 1;
            if ((measured.calls - first) % told == 0 || measured.calls == goal)
                __atomic_store_n((uint64_t *)word, measured.calls - first, __ATOMIC_RELEASE);
        }
    }
}

/* The source. */

struct source {
    farjump_link_t *link;
    farjump_library_t *library;
    ucp_ifunc_h bounce;
};

static void round_trips(struct source *source, enum contestant contestant, size_t size, ucp_ifunc_msg_t message, int count)
{
    for (int turn = 0; turn < count; turn++) {
        if (contestant == LIBRARY) {
            FINE(farjump_link_call(source->link, source->library, source_bytes, size, UINT64_MAX, NULL));
        } else if (contestant == IFUNC) {
            uint64_t before = measured.calls;
            OK(ucp_ifunc_send_nbix(peer.ep, message, peer.remote + 4096, peer.rkey));
            while (measured.calls == before)
                (void)ucp_poll_ifunc(peer.context, peer.region, 2048, &measured);
        } else {
            uint64_t before = am.came;
            am_send(source_bytes, size);
            while (am.came == before || am.sending > 0)
                ucp_worker_progress(am.worker);
        }
    }
}

static void stream(struct source *source, enum contestant contestant, size_t size, ucp_ifunc_msg_t message, int count)
{
    if (contestant == LIBRARY) {
        for (int turn = 0; turn < count; turn++)
            FINE(farjump_link_send(source->link, source->library, source_bytes, size));
        FINE(farjump_link_flush(source->link, UINT64_MAX));
    } else if (contestant == IFUNC) {
        volatile uint64_t *told = (volatile uint64_t *)(peer.region + 2048);
        size_t each = stride(message.frame_size), fit = slots(message.frame_size), slot = 0;
        for (int turn = 0; turn < count; turn++) {
            while ((uint64_t)turn - *told >= fit)
                ;
            OK(ucp_ifunc_send_nbix(peer.ep, message, peer.remote + 4096 + each * slot, peer.rkey));
            slot = slot + 1 == fit ? 0 : slot + 1;
        }
        while (*told < (uint64_t)count)
            ;
    } else {
        uint64_t before = am.came;
        for (int turn = 0; turn < count; turn++) {
            am_send(source_bytes, size);
            while (am.sending > 64)
                ucp_worker_progress(am.worker);
        }
        while (am.came == before || am.sending > 0)
            ucp_worker_progress(am.worker);
    }
}

static void announce(enum contestant contestant, enum figure figure, size_t size, uint64_t count)
{
    struct phase phase = { contestant, figure, size, count };
    char ready;
    memset(peer.region + 2048, 0, 8);
    peer_send(peer.socket, &phase, sizeof phase);
    peer_receive(peer.socket, &ready, 1);
}

/* Nanoseconds for a round trip, or for each message of a stream. */
static double measure(struct source *source, enum contestant contestant, enum figure figure, size_t size, ucp_ifunc_msg_t message)
{
    /* Long payloads take long enough one by one. */
    int batch = size > 65536 ? 4 : BATCH, batches = size > 65536 ? 11 : BATCHES, many = size > 8192 ? 32 : 1024;
    double times[BATCHES];
    uint64_t start;
    if (figure == RATE) {
        for (int at = 0; at < STREAMS; at++) {
            announce(contestant, figure, contestant == IFUNC ? message.frame_size : size, (uint64_t)many);
            start = now();
            stream(source, contestant, size, message, many);
            times[at] = (double)(now() - start) / many;
        }
        return median(times, STREAMS);
    }
    announce(contestant, figure, size, (uint64_t)(batch * (batches + 1)));
    round_trips(source, contestant, size, message, batch);
    for (int at = 0; at < batches; at++) {
        start = now();
        round_trips(source, contestant, size, message, batch);
        times[at] = (double)(now() - start) / batch;
    }
    return median(times, batches);
}

static void compare(struct source *source, size_t size, int rounds)
{
    double found[FIGURES][CONTESTANTS][ROUNDS], ratios[FIGURES][2][ROUNDS];
    ucp_ifunc_msg_t message, empty;
    OK(ucp_ifunc_msg_create(source->bounce, source_bytes, size, &message));
    OK(ucp_ifunc_msg_create(source->bounce, source_bytes, 0, &empty));
    for (int round = 0; round < rounds; round++) {
        for (int turn = 0; turn < CONTESTANTS; turn++) {
            enum contestant contestant = (enum contestant)((turn + round) % CONTESTANTS);
            double half = measure(source, contestant, ROUND_TRIP, 0, empty) / 2;
            double whole = measure(source, contestant, ROUND_TRIP, size, message);
            found[ROUND_TRIP][contestant][round] = whole - (half < whole / 2 ? half : whole / 2);
            found[RATE][contestant][round] = measure(source, contestant, RATE, size, message);
        }
        for (int figure = 0; figure < FIGURES; figure++) {
            double own = found[figure][IFUNC][round];
            ratios[figure][0][round] = own / found[figure][LIBRARY][round];
            ratios[figure][1][round] = own / found[figure][MESSAGES][round];
        }
    }
    printf("%8zu B", size);
    for (int figure = 0; figure < FIGURES; figure++) {
        for (int contestant = 0; contestant < CONTESTANTS; contestant++)
            printf("  %10.1f", median(found[figure][contestant], rounds));
        printf("  %6.2f %6.2f", median(ratios[figure][0], rounds), median(ratios[figure][1], rounds));
    }
    printf("\n");
    fflush(stdout);
    ucp_ifunc_msg_free(message);
    ucp_ifunc_msg_free(empty);
}

int main(int argc, char **argv)
{
    struct source source;
    char address[256], library[512], ready = 0;
    size_t most;
    int is_target, rounds;

    CHECK(argc == 6);
    is_target = strcmp(argv[1], "target") == 0;
    rounds = atoi(argv[4]);
    most = (size_t)strtoull(argv[5], NULL, 10);
    CHECK(rounds > 0 && rounds <= ROUNDS && most <= RING / 4);
    snprintf(address, sizeof address, "unix:%s.farjump", argv[2]);
    snprintf(library, sizeof library, "%s/libmark.so", argv[3]);
    source_bytes = (char *)calloc(1, most + 1);
    CHECK(source_bytes != NULL);
    peer_open(&peer, argv[2], is_target, RING);
    am_open(most + 1);
    measured.ep = peer.ep;
    measured.rkey = peer.rkey;
    measured.remote = peer.remote;
    if (is_target) {
        farjump_target_config_t *config = NULL;
        farjump_target_t *target = NULL;
        ucp_ifunc_h mark;
        struct phase phase;
        FINE(farjump_target_config_new(&config));
        FINE(farjump_target_config_set_args(config, &measured));
        FINE(farjump_target_config_set(config, "transport", "ucx-put"));
        FINE(farjump_target_listen(address, config, &target));
        OK(ucp_register_ifunc(peer.context, "mark", &mark));
        OK(ucp_ifunc_msg_create(mark, NULL, 0, &measured.answer));
        peer_send(peer.socket, &ready, 1);
        while (recv(peer.socket, &phase, sizeof phase, MSG_DONTWAIT | MSG_PEEK) != (ssize_t)sizeof phase)
            FINE(farjump_target_poll(target, NULL));
        for (;;) {
            peer_receive(peer.socket, &phase, sizeof phase);
            if (phase.count == 0)
                break;
            peer_send(peer.socket, &ready, 1);
            take_part(&phase, target);
        }
        FINE(farjump_target_close(&target));
        FINE(farjump_target_config_free(&config));
    } else {
        farjump_link_config_t *config = NULL;
        static const size_t sizes[] = { 1, 8, 40, 64, 256, 1024, 4096, 8192, 65536, 1048576 };
        peer_receive(peer.socket, &ready, 1);
        FINE(farjump_link_config_new(&config));
        FINE(farjump_link_config_set(config, "transport", "ucx-put"));
        FINE(farjump_link_connect(address, config, &source.link));
        FINE(farjump_library_open(library, &source.library));
        OK(ucp_register_ifunc(peer.context, "bounce", &source.bounce));
        printf("%10s", "");
        for (int figure = 0; figure < FIGURES; figure++) {
            printf("  %s, ns:", figure == ROUND_TRIP ? "one way" : "each of many");
            for (int contestant = 0; contestant < CONTESTANTS; contestant++)
                printf(" %s", names[contestant]);
            printf(", ucp_ifunc to library, to messages");
        }
        printf("\n");
        for (size_t at = 0; at < sizeof sizes / sizeof *sizes && sizes[at] <= most; at++)
            compare(&source, sizes[at], rounds);
        {
            struct phase end = { 0, 0, 0, 0 };
            peer_send(peer.socket, &end, sizeof end);
        }
        FINE(farjump_link_close(&source.link));
        FINE(farjump_library_close(&source.library));
        FINE(farjump_link_config_free(&config));
    }
    peer_close(&peer);
    return 0;
}
