/* An owner of objects in C: a store, and a target on a thread of its own.
 *
 *     owner ADDRESS
 *
 * It prints the handles of a table, of a reserved object, and of an evicted one. Then it handles the requests of its input, a
 * word a line, and prints a line for each.
 */
#include <inttypes.h>

#include "hex.h"

#define TABLE 300000

static int write_table(void *user, void *data, size_t size)
{
    unsigned char *bytes = data;
    CHECK(size == TABLE && (uintptr_t)data % 64 == 0);
    for (size_t at = 0; at < size; at++)
        bytes[at] = content_at(at);
    ++*(int *)user;
    return 0;
}

static void show(void *user, const farjump_object_t *object)
{
    (void)user;
    printf("%" PRIu64 ":%" PRIu64 ":%s:%d:%d;", object->number, object->size, object->type_name, object->state,
           object->claims != 0);
}

int main(int argc, char **argv)
{
    farjump_store_config_t *store_config;
    farjump_target_config_t *config;
    farjump_store_t *store;
    farjump_target_t *target;
    farjump_target_thread_t *thread;
    farjump_handle_t *table, *reserved, *gone;
    char word[64];
    int written = 0;
    CHECK(argc == 2);
    WORKS(farjump_store_config_new(&store_config));
    WORKS(farjump_store_config_set(store_config, "capacity", "1M"));
    WORKS(farjump_store_open(store_config, &store));
    WORKS(farjump_store_config_free(&store_config));
    WORKS(farjump_target_config_new(&config));
    WORKS(farjump_target_config_set_objects(config, store));
    WORKS(farjump_target_listen(argv[1], config, &target));
    WORKS(farjump_target_config_free(&config));
    WORKS(farjump_target_spawn(&target, &thread));

    WORKS(farjump_store_put_with(store, "u8", TABLE, write_table, &written, &table));
    CHECK(written == 1);
    WORKS(farjump_store_reserve(store, "later", &reserved));
    WORKS(farjump_store_put(store, NULL, "gone", 4, &gone));
    WORKS(farjump_store_evict(store, gone, NULL));
    print_handle(table);
    print_handle(reserved);
    print_handle(gone);

    while (fgets(word, sizeof word, stdin) != NULL) {
        word[strcspn(word, "\n")] = 0;
        if (strcmp(word, "set") == 0)
            WORKS(farjump_store_set(store, reserved, "contents", 8));
        else if (strcmp(word, "evict") == 0)
            WORKS(farjump_store_evict(store, table, NULL));
        else if (strcmp(word, "list") == 0)
            WORKS(farjump_store_objects(store, show, NULL));
        else
            CHECK(!"a word that is known");
        printf("%s done\n", word);
        fflush(stdout);
    }
    WORKS(farjump_handle_free(&table));
    WORKS(farjump_handle_free(&reserved));
    WORKS(farjump_handle_free(&gone));
    WORKS(farjump_store_close(&store));
    WORKS(farjump_target_thread_stop(&thread, NULL));
    return 0;
}
