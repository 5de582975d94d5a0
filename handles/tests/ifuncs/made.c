/* Makes an object of as many bytes as the first word of the payload says. Runs again if the store has none to give yet. */
#include <farjump_ifunc.h>
#include <stdint.h>
#include <string.h>

FARJUMP_COPY_ARGS(made)

FARJUMP_IFUNC void made_main(void *payload, size_t payload_size, void *target_args)
{
    uint64_t len;
    void *data;
    (void)target_args;
    if (payload_size < sizeof len)
        farjump_panic("no length", 9);
    memcpy(&len, payload, sizeof len);
    int failed = farjump_new_object(len, &data);
    if (failed == FARJUMP_SPILLED && farjump_again(payload, payload_size) == 0)
        return;
    if (failed != 0)
        farjump_panic("no object", 9);
    memset(data, 7, len);
}
