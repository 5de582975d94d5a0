/* Fixture of the test programs: a check that prints the place of its failure and farjump's last error. */
#ifndef CHECK_H
#define CHECK_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <farjump.h>

/* Limit of waits that should end at once. */
#define PATIENCE (60 * UINT64_C(1000000000))

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not so: %s\nfarjump said last: %s\n", __FILE__, __LINE__, #condition, \
                    farjump_last_error()); \
            exit(1); \
        } \
    } while (0)

/* Checks that a call returns this status. */
#define GIVES(status, call) \
    do { \
        int came = (call); \
        if (came != (status)) { \
            fprintf(stderr, "%s:%d: %s came to %d (%s), not %d\nfarjump said last: %s\n", __FILE__, __LINE__, #call, came, \
                    farjump_status_string(came), (status), farjump_last_error()); \
            exit(1); \
        } \
    } while (0)

#define WORKS(call) GIVES(FARJUMP_OK, call)

/* Checks that a call fails with this status, and that the message contains these words. */
#define FAILS(status, words, call) \
    do { \
        GIVES(status, call); \
        CHECK(strstr(farjump_last_error(), words) != NULL); \
    } while (0)

/* Loads the library NAME from the folder of ifunc libraries: some have payload routines of their own. */
static inline farjump_library_t *open_library(const char *folder, const char *name)
{
    char path[4096];
    farjump_library_t *library;
    snprintf(path, sizeof path, "%s/lib%s.so", folder, name);
    WORKS(farjump_library_load(path, &library));
    return library;
}

/* Starts a thread with a target that has the objects of `store`. */
static inline farjump_target_thread_t *own_store(const char *address, farjump_store_t *store)
{
    farjump_target_config_t *config;
    farjump_target_t *target;
    farjump_target_thread_t *thread;
    WORKS(farjump_target_config_new(&config));
    WORKS(farjump_target_config_set_objects(config, store));
    WORKS(farjump_target_listen(address, config, &target));
    WORKS(farjump_target_config_free(&config));
    WORKS(farjump_target_spawn(&target, &thread));
    return thread;
}

/* Ends a successful program with a message. A joined thread stays in the system's list of threads for a moment.
 * LeakSanitizer faults if it looks at a thread that vanishes meanwhile. So this waits until the list has not changed for 200
 * looks. It does not wait for threads that continue. */
static inline int all_done(void)
{
    struct timespec moment = {0, 1000000};
    int threads = 2, before = 0, same = 0;
    for (int look = 0; look < 20000 && threads > 1 && same < 200; look++) {
        DIR *tasks = opendir("/proc/self/task");
        if (tasks == NULL)
            break;
        threads = -2; /* `.` and `..` */
        while (readdir(tasks) != NULL)
            threads++;
        closedir(tasks);
        same = threads == before ? same + 1 : 0;
        before = threads;
        if (threads > 1)
            nanosleep(&moment, NULL);
    }
    puts("all is as it should be");
    return 0;
}

#endif
