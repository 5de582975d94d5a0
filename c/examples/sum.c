/* A source: injects `sum` into the store. */
#include <farjump.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    const uint64_t keys[] = {3, 4, 5}, second = 1000000000;
    uint64_t total = 0;
    farjump_library_t *sum = NULL;
    farjump_link_t *link = NULL;
    farjump_bytes_t *reply = NULL;
    int status = 1;

    if (farjump_library_open("libsum.so", &sum) == FARJUMP_OK
        && farjump_link_connect("unix:store.sock", NULL, &link) == FARJUMP_OK
        && farjump_bytes_new(&reply) == FARJUMP_OK
        && farjump_link_call(link, sum, keys, sizeof keys, second, reply) == FARJUMP_OK
        && farjump_bytes_size(reply) == sizeof total) {
        memcpy(&total, farjump_bytes_data(reply), sizeof total);
        printf("rows 3, 4 and 5 sum up to %llu\n", (unsigned long long)total);
        status = 0;
    } else {
        fprintf(stderr, "%s\n", farjump_last_error());
    }
    farjump_bytes_free(&reply);
    farjump_link_close(&link);
    farjump_library_close(&sum);
    return status;
}
