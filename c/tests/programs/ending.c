/* Ends while an injected function runs and never returns.
 *
 *     ending ADDRESS FOLDER-OF-IFUNC-LIBRARIES
 */
#include <pthread.h>
#include <unistd.h>

#include "check.h"

static pthread_barrier_t runs;
static const uint64_t store_limit = 1;

static uint64_t store_get(void *store, uint64_t key)
{
    (void)store;
    pthread_barrier_wait(&runs);
    while (key == 0)
        pause();
    return 0;
}

static void at_exit(void)
{
    printf("an exit handler ran\n");
}

/* The compiler complains if this function could return. */
static int end(void)
{
    farjump_end_process(7);
}

int main(int argc, char **argv)
{
    const uint64_t key = 0;
    farjump_target_config_t *config;
    farjump_target_t *target;
    farjump_target_thread_t *thread;
    farjump_link_t *link;
    CHECK(argc == 3 && atexit(at_exit) == 0 && pthread_barrier_init(&runs, NULL, 2) == 0);
    farjump_library_t *sum = open_library(argv[2], "sum");
    WORKS(farjump_target_config_new(&config));
    WORKS(farjump_target_config_export_function(config, "store_get", (farjump_function_t)store_get));
    WORKS(farjump_target_config_export_data(config, "store_limit", &store_limit));
    WORKS(farjump_target_listen(argv[1], config, &target));
    WORKS(farjump_target_spawn(&target, &thread));
    WORKS(farjump_link_connect(argv[1], NULL, &link));
    WORKS(farjump_link_send(link, sum, &key, sizeof key));
    pthread_barrier_wait(&runs);
    CHECK(access(argv[1] + strlen("unix:"), F_OK) == 0);
    return end();
}
