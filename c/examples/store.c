/* A target: it has rows, and exports a function that injected code reads them by. */
#include <farjump.h>
#include <stdio.h>

struct store {
    uint64_t rows[1000000];
};

static uint64_t store_get(const struct store *store, uint64_t key)
{
    return key < 1000000 ? store->rows[key] : 0;
}

int main(void)
{
    static struct store store;
    for (uint64_t key = 0; key < 1000000; key++)
        store.rows[key] = key * key;

    farjump_target_config_t *config;
    farjump_target_t *target;
    farjump_target_config_new(&config);
    farjump_target_config_set_args(config, &store); /* what NAME_main gets as target_args */
    farjump_target_config_export_function(config, "store_get", (farjump_function_t)store_get); /* what it may call */
    if (farjump_target_listen("unix:store.sock", config, &target) != FARJUMP_OK) {
        fprintf(stderr, "%s\n", farjump_last_error());
        return 1;
    }
    farjump_target_config_free(&config);
    puts("ready");
    fflush(stdout);
    farjump_target_run(target); /* or farjump_target_poll() in a loop of your own, or farjump_target_spawn() for a thread */
    farjump_target_close(&target);
    return 0;
}
