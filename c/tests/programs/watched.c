/* A target and a link in one process, small enough to run in a program that watches each instruction: calls of every mode
 * and length, sleeps, and an end that frees everything.
 *
 *     watched FOLDER-OF-IFUNC-LIBRARIES EMPTY-FOLDER
 */
#include <poll.h>

#include "check.h"

static void is_echoed(farjump_link_t *link, farjump_library_t *echo, size_t size)
{
    unsigned char *args = malloc(size);
    farjump_bytes_t *reply;
    CHECK(args != NULL);
    memset(args, (int)size, size);
    WORKS(farjump_bytes_new(&reply));
    WORKS(farjump_link_call(link, echo, args, size, PATIENCE, reply));
    CHECK(farjump_bytes_size(reply) == size && memcmp(farjump_bytes_data(reply), args, size) == 0);
    WORKS(farjump_bytes_free(&reply));
    free(args);
}

int main(int argc, char **argv)
{
    static const int modes[] = {FARJUMP_MODE_CACHED, FARJUMP_MODE_ALWAYS, FARJUMP_MODE_IN_PLACE};
    char address[4096];
    farjump_target_t *target;
    farjump_target_thread_t *thread;
    farjump_target_config_t *config;
    farjump_library_t *echo;
    farjump_link_t *link;
    CHECK(argc == 3);
    snprintf(address, sizeof address, "unix:%s/t.sock", argv[2]);
    echo = open_library(argv[1], "echo");
    WORKS(farjump_target_config_new(&config));
    WORKS(farjump_target_config_set(config, "modes", "cached,always,in-place"));
    WORKS(farjump_target_listen(address, config, &target));
    WORKS(farjump_target_config_free(&config));
    WORKS(farjump_target_spawn(&target, &thread));
    WORKS(farjump_link_connect(address, NULL, &link));
    for (size_t mode = 0; mode < sizeof modes / sizeof *modes; mode++) {
        WORKS(farjump_link_set_mode(link, modes[mode]));
        for (size_t size = 1; size <= 1 << 16; size *= 16)
            is_echoed(link, echo, size);
    }
    /* The target falls asleep, and is woken. */
    poll(NULL, 0, 50);
    is_echoed(link, echo, 8);
    WORKS(farjump_link_close(&link));
    WORKS(farjump_library_close(&echo));
    WORKS(farjump_target_thread_stop(&thread, &target));
    WORKS(farjump_target_close(&target));
    return all_done();
}
