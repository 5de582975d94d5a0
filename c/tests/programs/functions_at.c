/* Functions at the objects of two owners: started calls, an event loop, calls at many objects, and the choice of a place.
 *
 *     functions_at FOLDER-OF-IFUNC-LIBRARIES TABLE-OF-ONE RESERVED-OF-ONE GONE-OF-ONE TABLE-OF-THE-OTHER
 *
 * The handles are those that two owners printed. It prints a line with each request to the test, and reads a line when the
 * test has handled the request.
 */
#include <poll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hex.h"

#define TABLE 300000
#define MANY 3000
#define IS_NULL(words, call) FAILS(FARJUMP_ERROR_ARGUMENT, "`" words "` is NULL", call)

static farjump_client_t *client;
static farjump_library_t *sum;
static farjump_bytes_t *reply;
static uint64_t total;

/* Sends the test a request, and waits until it is done. */
static void order(const char *what)
{
    char line[64];
    printf("%s\n", what);
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
}

static uint64_t number_in(const void *data, size_t size)
{
    uint64_t number;
    CHECK(size == sizeof number);
    memcpy(&number, data, size);
    return number;
}

static uint64_t replied(void)
{
    return number_in(farjump_bytes_data(reply), farjump_bytes_size(reply));
}

static farjump_object_call_t *start(const farjump_handle_t *handle, uint64_t factor)
{
    farjump_object_call_t *call;
    WORKS(farjump_client_start_call(client, sum, handle, &factor, sizeof factor, &call));
    return call;
}

static void a_started_call_is_polled_waited_for_and_cancelled(const farjump_handle_t *table, const farjump_handle_t *gone)
{
    farjump_object_call_t *call, *second, *third;
    int status;
    /* The code is there before the owner stops. */
    WORKS(farjump_object_call_wait(call = start(table, 1), PATIENCE, reply));
    CHECK(replied() == total);
    FAILS(FARJUMP_ERROR_NO_CALL, "taken before", farjump_object_call_wait(call, PATIENCE, reply));
    WORKS(farjump_object_call_free(&call));
    CHECK(call == NULL);
    WORKS(farjump_object_call_free(&call));

    order("stop");
    call = start(table, 2);
    second = start(table, 3);
    third = start(table, 4);
    GIVES(FARJUMP_NOT_YET, farjump_object_call_poll(call, reply));
    CHECK(replied() == total);
    FAILS(FARJUMP_ERROR_TIMEOUT, "did not answer", farjump_object_call_wait(second, 1000000, reply));
    CHECK(farjump_bytes_size(reply) == 0);
    FAILS(FARJUMP_ERROR_NO_CALL, "start another", farjump_object_call_poll(second, reply));
    WORKS(farjump_object_call_cancel(third));
    FAILS(FARJUMP_ERROR_NO_CALL, "cancelled", farjump_object_call_cancel(third));
    /* Freeing a call cancels it too. */
    farjump_object_call_t *fourth = start(table, 5);
    WORKS(farjump_object_call_free(&fourth));
    order("continue");
    do
        status = farjump_object_call_poll(call, reply);
    while (status == FARJUMP_NOT_YET);
    GIVES(FARJUMP_OK, status);
    CHECK(replied() == 2 * total);
    FAILS(FARJUMP_ERROR_NO_CALL, "taken before", farjump_object_call_poll(call, NULL));
    WORKS(farjump_object_call_free(&call));
    WORKS(farjump_object_call_free(&second));
    WORKS(farjump_object_call_free(&third));

    call = start(gone, 1);
    FAILS(FARJUMP_ERROR_PANICKED, "no object", farjump_object_call_wait(call, PATIENCE, reply));
    CHECK(farjump_bytes_size(reply) == 0);
    WORKS(farjump_object_call_free(&call));
    /* A call keeps its client. */
    farjump_client_t *other;
    uint64_t factor = 7;
    WORKS(farjump_client_connect_to_owner(table, NULL, &other));
    WORKS(farjump_client_start_call(other, sum, table, &factor, sizeof factor, &call));
    WORKS(farjump_client_close(&other));
    WORKS(farjump_object_call_wait(call, PATIENCE, reply));
    CHECK(replied() == 7 * total);
    WORKS(farjump_object_call_free(&call));
}

/* A child has its parent's calls, but can neither use nor disturb them. */
static void a_child_leaves_its_parents_calls_alone(const farjump_handle_t *table)
{
    farjump_object_call_t *polled = start(table, 2), *awaited = start(table, 3), *unused = start(table, 4);
    uint64_t longest;
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FAILS(FARJUMP_ERROR_ARGUMENT, "was forked", farjump_object_call_poll(polled, reply));
        FAILS(FARJUMP_ERROR_ARGUMENT, "was forked", farjump_object_call_wait(awaited, PATIENCE, reply));
        FAILS(FARJUMP_ERROR_ARGUMENT, "was forked", farjump_client_start_call(client, sum, table, NULL, 0, &(farjump_object_call_t *){NULL}));
        FAILS(FARJUMP_ERROR_ARGUMENT, "was forked", farjump_client_arm(client, &longest));
        FAILS(FARJUMP_ERROR_ARGUMENT, "was forked", farjump_client_disarm(client));
        CHECK(farjump_client_fd(client) == -1);
        WORKS(farjump_object_call_free(&unused));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    WORKS(farjump_object_call_wait(polled, PATIENCE, reply));
    CHECK(replied() == 2 * total);
    WORKS(farjump_object_call_wait(awaited, PATIENCE, reply));
    CHECK(replied() == 3 * total);
    WORKS(farjump_object_call_wait(unused, PATIENCE, reply));
    CHECK(replied() == 4 * total);
    WORKS(farjump_object_call_free(&polled));
    WORKS(farjump_object_call_free(&awaited));
    WORKS(farjump_object_call_free(&unused));
}

static uint64_t now_ns(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void an_event_loop_holds_calls(const farjump_handle_t *table)
{
    farjump_object_call_t *calls[8];
    struct pollfd watched = {.fd = farjump_client_fd(client), .events = POLLIN};
    uint64_t longest, end = now_ns() + PATIENCE;
    int left = 8;
    CHECK(watched.fd >= 0 && farjump_client_fd(client) == watched.fd);
    order("stop");
    for (int call = 0; call < 8; call++)
        calls[call] = start(table, (uint64_t)call);
    do {
        WORKS(farjump_client_disarm(client));
        WORKS(farjump_client_arm(client, &longest));
    } while (longest == 0);
    CHECK(poll(&watched, 1, 0) == 0);
    order("continue");
    /* The first outcome ends a sleep that is longer than any in the loop. */
    CHECK(poll(&watched, 1, (int)(PATIENCE / 1000000)) == 1);
    WORKS(farjump_client_disarm(client));
    while (left > 0) {
        CHECK(now_ns() < end);
        WORKS(farjump_client_arm(client, &longest));
        CHECK(longest <= 1000000000);
        /* A program would also wait for its other descriptors here. */
        CHECK(longest == 0 || poll(&watched, 1, (int)(longest / 1000000) + 1) >= 0);
        WORKS(farjump_client_disarm(client));
        for (int call = 0; call < 8; call++) {
            int status = calls[call] == NULL ? FARJUMP_NOT_YET : farjump_object_call_poll(calls[call], reply);
            if (status == FARJUMP_NOT_YET)
                continue;
            GIVES(FARJUMP_OK, status);
            CHECK(replied() == (uint64_t)call * total);
            WORKS(farjump_object_call_free(&calls[call]));
            left--;
        }
    }
    WORKS(farjump_client_disarm(client));
}

static void outcome_works(const farjump_outcomes_t *outcomes, size_t index, uint64_t expected)
{
    const void *data;
    size_t size;
    WORKS(farjump_outcomes_get(outcomes, index, &data, &size));
    CHECK(number_in(data, size) == expected);
}

static void outcome_fails(const farjump_outcomes_t *outcomes, size_t index, int status, const char *words)
{
    const void *data = NULL;
    size_t size = 1;
    FAILS(status, words, farjump_outcomes_get(outcomes, index, &data, &size));
    CHECK(data != NULL && size == 0 && farjump_last_cause() == -1);
}

static void one_call_fails_and_the_others_have_outcomes_in_order(farjump_handle_t **all)
{
    farjump_handle_t *table = all[0], *reserved = all[1], *gone = all[2], *foreign = all[3];
    const farjump_handle_t *handles[] = {table, gone, table, foreign, reserved, table};
    const farjump_handle_t **many = malloc(MANY * sizeof *many);
    farjump_outcomes_t *outcomes, *none;
    farjump_handle_t *little;
    uint64_t factor = 2;
    WORKS(farjump_client_map(client, sum, handles, 6, &factor, sizeof factor, &outcomes));
    CHECK(farjump_outcomes_count(outcomes) == 6);
    outcome_works(outcomes, 0, 2 * total);
    outcome_fails(outcomes, 1, FARJUMP_ERROR_PANICKED, "no object");
    outcome_works(outcomes, 2, 2 * total);
    outcome_fails(outcomes, 3, FARJUMP_ERROR_GONE, "another one");
    outcome_fails(outcomes, 4, FARJUMP_ERROR_PANICKED, "no object");
    outcome_works(outcomes, 5, 2 * total);
    /* Outcomes can be read again. */
    outcome_fails(outcomes, 1, FARJUMP_ERROR_PANICKED, "no object");
    WORKS(farjump_outcomes_get(outcomes, 0, NULL, NULL));
    FAILS(FARJUMP_ERROR_ARGUMENT, "no outcome 6: they are 6", farjump_outcomes_get(outcomes, 6, NULL, NULL));
    WORKS(farjump_outcomes_free(&outcomes));
    CHECK(outcomes == NULL);
    WORKS(farjump_outcomes_free(&outcomes));

    /* More calls than can be under way at once. */
    CHECK(many != NULL);
    WORKS(farjump_client_put(client, NULL, "\1\2\3", 3, PATIENCE, &little));
    for (int index = 0; index < MANY; index++)
        many[index] = index % 100 == 99 ? gone : little;
    WORKS(farjump_client_map(client, sum, many, MANY, &factor, sizeof factor, &outcomes));
    for (size_t index = 0; index < MANY; index++) {
        if (index % 100 == 99)
            outcome_fails(outcomes, index, FARJUMP_ERROR_PANICKED, "no object");
        else
            outcome_works(outcomes, index, 12);
    }
    WORKS(farjump_outcomes_free(&outcomes));
    WORKS(farjump_client_evict(client, little, NULL));
    WORKS(farjump_handle_free(&little));

    WORKS(farjump_client_map(client, sum, NULL, 0, NULL, 0, &outcomes));
    CHECK(farjump_outcomes_count(outcomes) == 0);
    WORKS(farjump_outcomes_free(&outcomes));
    many[1] = NULL;
    FAILS(FARJUMP_ERROR_ARGUMENT, "`handles[1]` is NULL", farjump_client_map(client, sum, many, 3, NULL, 0, &none));
    CHECK(none == NULL);
    FAILS(FARJUMP_ERROR_ARGUMENT, "nothing at NULL", farjump_client_map(client, sum, NULL, 3, NULL, 0, &none));
    FAILS(FARJUMP_ERROR_ARGUMENT, "no memory has so many", farjump_client_map(client, sum, many, SIZE_MAX / 4, NULL, 0, &none));
    FAILS(FARJUMP_ERROR_ARGUMENT, "nothing at NULL", farjump_client_map(client, sum, many, 1, NULL, 8, &none));
    free(many);
}

static void functions_run_at_the_owners_of_all(farjump_handle_t **all)
{
    const farjump_handle_t *handles[] = {all[0], all[3], all[2], all[3], all[0]};
    farjump_resolver_t *resolver;
    farjump_outcomes_t *outcomes;
    farjump_client_t *resolved, *again;
    farjump_view_t *view;
    uint64_t factor = 1;
    int status;
    WORKS(farjump_resolver_new(&resolver));
    WORKS(farjump_resolver_map(resolver, sum, handles, 5, &factor, sizeof factor, &outcomes));
    for (size_t index = 0; index < 5; index++) {
        if (index == 2)
            outcome_fails(outcomes, index, FARJUMP_ERROR_PANICKED, "no object");
        else
            outcome_works(outcomes, index, total);
    }
    WORKS(farjump_outcomes_free(&outcomes));
    WORKS(farjump_resolver_get(resolver, all[3], &view));
    has_contents(view, TABLE);
    WORKS(farjump_view_release(&view));
    WORKS(farjump_resolver_client(resolver, all[3], &resolved));
    CHECK(strcmp(farjump_client_address(resolved), farjump_handle_address(all[3], 0)) == 0);
    WORKS(farjump_client_close(&resolved));

    /* Calls at an owner that ends fail. Others do not. */
    order("kill the other");
    WORKS(farjump_resolver_map(resolver, sum, handles, 5, &factor, sizeof factor, &outcomes));
    outcome_works(outcomes, 0, total);
    /* The call notices the end. If the last look for ended owners is 100 ms ago, the next look notices it before. */
    status = farjump_outcomes_get(outcomes, 1, NULL, NULL);
    CHECK(status == FARJUMP_ERROR_PEER_GONE || status == FARJUMP_ERROR_CONNECT);
    outcome_works(outcomes, 4, total);
    WORKS(farjump_outcomes_free(&outcomes));
    WORKS(farjump_resolver_map(resolver, sum, handles, 5, &factor, sizeof factor, &outcomes));
    outcome_works(outcomes, 0, total);
    outcome_fails(outcomes, 3, FARJUMP_ERROR_CONNECT, "none of its addresses");
    WORKS(farjump_outcomes_free(&outcomes));
    GIVES(FARJUMP_ERROR_CONNECT, farjump_resolver_client(resolver, all[3], &resolved));
    GIVES(FARJUMP_ERROR_CONNECT, farjump_resolver_get(resolver, all[3], &view));
    CHECK(resolved == NULL && view == NULL);
    FAILS(FARJUMP_ERROR_CONNECT, "/nowhere", farjump_resolver_set_key_file(resolver, "tcp:host:7", "/nowhere"));
    /* A client outlives its resolver. */
    WORKS(farjump_resolver_client(resolver, all[0], &again));
    WORKS(farjump_resolver_free(&resolver));
    WORKS(farjump_client_get(again, all[0], &view));
    WORKS(farjump_view_release(&view));
    WORKS(farjump_client_close(&again));
}

static void a_place_is_chosen_and_said(const farjump_handle_t *table, const farjump_handle_t *gone)
{
    farjump_placement_t *placement;
    farjump_choice_t choice;
    farjump_bytes_t *why;
    farjump_handle_t *little;
    const char *address = farjump_client_address(client);
    uint64_t factor = 2;
    WORKS(farjump_bytes_new(&why));
    WORKS(farjump_placement_new(&placement));
    /* Over a slow path the function goes to a long object. */
    WORKS(farjump_placement_set_wire(placement, address, 1000000, 1000));
    WORKS(farjump_client_call_auto(client, placement, sum, table, &factor, sizeof factor, reply, &choice, sizeof choice, why));
    CHECK(replied() == 2 * total);
    CHECK(choice.place == FARJUMP_PLACE_OWNER && !choice.is_trial);
    CHECK(choice.owner_ns < choice.here_ns && choice.latency_ns == 1000000 && choice.bytes_per_second == 1000);
    CHECK(strstr(farjump_bytes_text(why), "ran at the data, where it is expected to take ") != NULL);
    CHECK(strstr(farjump_bytes_text(why), "The object has 300000 bytes, the arguments 8;") != NULL);

    /* A short object comes here, as a call would send more bytes than the object has. */
    WORKS(farjump_client_put(client, NULL, "\1\2\3", 3, PATIENCE, &little));
    WORKS(farjump_placement_set_wire(placement, address, 1000000, 1000));
    WORKS(farjump_client_call_auto(client, placement, sum, little, &factor, sizeof factor, reply, &choice, sizeof choice, why));
    CHECK(replied() == 12 && choice.place == FARJUMP_PLACE_HERE && choice.here_ns < choice.owner_ns);
    CHECK(strstr(farjump_bytes_text(why), "ran here, where it is expected to take ") != NULL);

    /* A path that was not set is measured. The other times come from calls. */
    WORKS(farjump_placement_free(&placement));
    WORKS(farjump_placement_new(&placement));
    for (int round = 0; round < 40; round++) {
        WORKS(farjump_client_call_auto(client, placement, sum, table, &factor, sizeof factor, reply, &choice, sizeof choice, why));
        CHECK(replied() == 2 * total && choice.bytes_per_second > 0);
        const char *place = choice.place == FARJUMP_PLACE_HERE ? "the function ran here, " : "the function ran at the data, ";
        CHECK(strncmp(farjump_bytes_text(why), place, strlen(place)) == 0);
        CHECK(choice.is_trial == (strstr(farjump_bytes_text(why), "to learn what it takes") != NULL));
    }
    WORKS(farjump_client_call_auto(client, placement, sum, table, &factor, sizeof factor, NULL, NULL, 0, NULL));

    /* The failure is that of the call or of the fetch, depending on the chosen place. */
    int status = farjump_client_call_auto(client, placement, sum, gone, &factor, sizeof factor, reply, &choice, sizeof choice, why);
    CHECK(status == FARJUMP_ERROR_PANICKED || status == FARJUMP_ERROR_GONE);
    CHECK(farjump_bytes_size(reply) == 0 && choice.here_ns == 0 && choice.latency_ns == 0);
    CHECK(strncmp(farjump_bytes_text(why), "the function ran", 16) == 0);

    FAILS(FARJUMP_ERROR_ARGUMENT, "sizeof",
          farjump_client_call_auto(client, placement, sum, table, &factor, sizeof factor, reply, &choice, 8, why));
    FAILS(FARJUMP_ERROR_ARGUMENT, "nothing at NULL",
          farjump_client_call_auto(client, placement, sum, table, NULL, 8, reply, NULL, 0, NULL));
    FAILS(FARJUMP_ERROR_ARGUMENT, "`bytes_per_second` is 0", farjump_placement_set_wire(placement, address, 1, 0));
    IS_NULL("address", farjump_placement_set_wire(placement, NULL, 1, 1));
    IS_NULL("placement", farjump_placement_set_wire(NULL, address, 1, 1));
    IS_NULL("placement", farjump_client_call_auto(client, NULL, sum, table, NULL, 0, NULL, NULL, 0, NULL));
    IS_NULL("library", farjump_client_call_auto(client, placement, NULL, table, NULL, 0, NULL, NULL, 0, NULL));
    IS_NULL("client", farjump_client_call_auto(NULL, placement, sum, table, NULL, 0, NULL, NULL, 0, NULL));
    IS_NULL("placement", farjump_placement_new(NULL));
    IS_NULL("placement", farjump_placement_free(NULL));
    WORKS(farjump_placement_free(&placement));
    WORKS(farjump_placement_free(&placement));
    WORKS(farjump_client_evict(client, little, NULL));
    WORKS(farjump_handle_free(&little));
    WORKS(farjump_bytes_free(&why));
}

static void a_null_where_something_must_be(const farjump_handle_t *table)
{
    farjump_object_call_t *call;
    farjump_outcomes_t *outcomes;
    farjump_resolver_t *resolver;
    farjump_client_t *none;
    farjump_view_t *view;
    uint64_t longest;
    WORKS(farjump_resolver_new(&resolver));
    IS_NULL("client", farjump_client_start_call(NULL, sum, table, NULL, 0, &call));
    IS_NULL("library", farjump_client_start_call(client, NULL, table, NULL, 0, &call));
    IS_NULL("handle", farjump_client_start_call(client, sum, NULL, NULL, 0, &call));
    IS_NULL("call", farjump_client_start_call(client, sum, table, NULL, 0, NULL));
    FAILS(FARJUMP_ERROR_ARGUMENT, "nothing at NULL", farjump_client_start_call(client, sum, table, NULL, 1, &call));
    FAILS(FARJUMP_ERROR_ARGUMENT, "no memory has so many", farjump_client_start_call(client, sum, table, "", SIZE_MAX, &call));
    CHECK(call == NULL);
    IS_NULL("call", farjump_object_call_poll(NULL, reply));
    IS_NULL("call", farjump_object_call_wait(NULL, 0, reply));
    IS_NULL("call", farjump_object_call_cancel(NULL));
    IS_NULL("call", farjump_object_call_free(NULL));
    CHECK(farjump_client_fd(NULL) == -1 && strstr(farjump_last_error(), "`client` is NULL") != NULL);
    IS_NULL("client", farjump_client_arm(NULL, &longest));
    IS_NULL("longest_ns", farjump_client_arm(client, NULL));
    IS_NULL("client", farjump_client_disarm(NULL));
    IS_NULL("client", farjump_client_map(NULL, sum, NULL, 0, NULL, 0, &outcomes));
    IS_NULL("library", farjump_client_map(client, NULL, NULL, 0, NULL, 0, &outcomes));
    IS_NULL("outcomes", farjump_client_map(client, sum, NULL, 0, NULL, 0, NULL));
    CHECK(farjump_outcomes_count(NULL) == 0);
    IS_NULL("outcomes", farjump_outcomes_get(NULL, 0, NULL, NULL));
    IS_NULL("outcomes", farjump_outcomes_free(NULL));
    IS_NULL("resolver", farjump_resolver_new(NULL));
    IS_NULL("resolver", farjump_resolver_free(NULL));
    IS_NULL("resolver", farjump_resolver_set_key_file(NULL, "tcp:host:7", "x"));
    IS_NULL("address", farjump_resolver_set_key_file(resolver, NULL, "x"));
    IS_NULL("path", farjump_resolver_set_key_file(resolver, "tcp:host:7", NULL));
    IS_NULL("resolver", farjump_resolver_client(NULL, table, &none));
    IS_NULL("handle", farjump_resolver_client(resolver, NULL, &none));
    IS_NULL("client", farjump_resolver_client(resolver, table, NULL));
    IS_NULL("handle", farjump_resolver_get(resolver, NULL, &view));
    IS_NULL("resolver", farjump_resolver_map(NULL, sum, NULL, 0, NULL, 0, &outcomes));
    IS_NULL("library", farjump_resolver_map(resolver, NULL, NULL, 0, NULL, 0, &outcomes));
    WORKS(farjump_resolver_free(&resolver));
}

int main(int argc, char **argv)
{
    farjump_handle_t *all[4];
    CHECK(argc == 6);
    for (int handle = 0; handle < 4; handle++)
        all[handle] = read_handle(argv[2 + handle]);
    for (size_t at = 0; at < TABLE; at++)
        total += content_at(at);
    sum = open_library(argv[1], "sum_at");
    WORKS(farjump_bytes_new(&reply));
    WORKS(farjump_client_connect_to_owner(all[0], NULL, &client));

    a_null_where_something_must_be(all[0]);
    a_started_call_is_polled_waited_for_and_cancelled(all[0], all[2]);
    a_child_leaves_its_parents_calls_alone(all[0]);
    an_event_loop_holds_calls(all[0]);
    one_call_fails_and_the_others_have_outcomes_in_order(all);
    a_place_is_chosen_and_said(all[0], all[2]);
    functions_run_at_the_owners_of_all(all);

    WORKS(farjump_client_close(&client));
    WORKS(farjump_bytes_free(&reply));
    WORKS(farjump_library_close(&sum));
    for (int handle = 0; handle < 4; handle++)
        WORKS(farjump_handle_free(&all[handle]));
    return all_done();
}
