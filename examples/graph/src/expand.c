/* expand - one step of a breadth-first search at a shard: replies the neighbours of some of its vertices, each vertex once
 * a run. */
#include "graph_shard.h"

struct part {
    uint32_t vertex;
    uint32_t first; /* of its list, which may be long, only these */
    uint32_t count;
};

struct expand_call {
    uint64_t due; /* when it arrives over the modelled wire */
    uint32_t run;
    uint32_t count;
    struct part parts[];
};

struct expand_reply {
    uint64_t sent;
    uint64_t took;
};

FARJUMP_COPY_ARGS(expand)

FARJUMP_IFUNC void expand_main(void *payload, size_t payload_size, void *target_args)
{
    struct graph_shard *shard = target_args;
    const struct expand_call *call = payload;
    struct expand_reply reply;
    uint64_t began, *seen = shard->seen;
    uint32_t at, i, found = 0;

    (void)payload_size;
    graph_wait(call->due);
    began = graph_now();
    if (shard->run != call->run) {
        memset(seen, 0, ((size_t)shard->vertices + 63) / 64 * 8);
        shard->run = call->run;
    }
    for (at = 0; at < call->count; at++) {
        const struct part *part = &call->parts[at];
        const uint32_t *list = shard->all + shard->all_offsets[part->vertex / shard->shards] + part->first;
        for (i = 0; i < part->count; i++) {
            uint32_t next = list[i];
            shard->out[found] = next;
            found += !graph_bit(seen, next);
            seen[next >> 6] |= (uint64_t)1 << (next & 63);
        }
    }
    reply.sent = graph_now();
    reply.took = reply.sent - began;
    farjump_reply(&reply, sizeof reply);
    farjump_reply(shard->out, (size_t)found * 4);
}
