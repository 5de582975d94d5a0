/* list - walks 64 nodes of a linked list in the target's memory from the payload's node on. The reply is the
 * sum of their values. */
#include <farjump_ifunc.h>

#define STEPS 64

struct node {
    uint64_t next; /* the number of the next node */
    uint64_t value;
    uint64_t unused[6]; /* each node has a line */
};

FARJUMP_COPY_ARGS(list)

FARJUMP_IFUNC void list_main(void *payload, size_t payload_size, void *target_args)
{
    const struct farjump_data *data = target_args;
    const struct node *nodes = (const void *)data->bytes;
    uint64_t at = *(const uint64_t *)payload, total = 0;

    (void)payload_size;
    for (int i = 0; i < STEPS; i++) {
        total += nodes[at].value;
        at = nodes[at].next;
    }
    farjump_reply(&total, sizeof total);
}
