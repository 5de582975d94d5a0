/* triangles - counts the triangles in which some vertices come first. At the shard that has their lists it counts what it
 * can there, and sends itself on with the lists to all other shards that have one of their neighbours. */
#include "graph_shard.h"

enum { OF_VERTICES, OF_LISTS };

struct triangles_call {
    uint64_t due;
    uint32_t kind;
    uint32_t count;   /* words */
    uint32_t words[]; /* vertices; or lists, the length of each before it */
};

struct triangles_reply {
    uint64_t sent;
    uint64_t hops; /* that it has on its way back */
    uint64_t took;
    uint64_t triangles;
};

FARJUMP_COPY_ARGS(triangles)

/* Counts how many of the later neighbours of a list's vertices are in the list, for those vertices that are here. */
static uint64_t count_list(struct graph_shard *shard, const uint32_t *list, uint32_t len)
{
    uint64_t triangles = 0, *marks = shard->marks;
    uint32_t i;

    for (i = 0; i < len; i++)
        marks[list[i] >> 6] |= (uint64_t)1 << (list[i] & 63);
    for (i = 0; i < len; i++) {
        const uint32_t *next, *end;
        uint32_t number = list[i] / shard->shards;
        if (list[i] - number * shard->shards != shard->shard)
            continue;
        end = shard->later + shard->later_offsets[number + 1];
        for (next = shard->later + shard->later_offsets[number]; next != end; next++)
            triangles += (uint64_t)graph_bit(marks, *next);
    }
    for (i = 0; i < len; i++)
        marks[list[i] >> 6] = 0;
    return triangles;
}

/* Sends lists on. There is space for a message's head before them. */
static void send_on(uint32_t to, uint32_t *lists, uint32_t words)
{
    static const char lost[] = "a list was not sent on";
    struct triangles_call *call = (struct triangles_call *)(lists - 4);
    char name[2];

    name[0] = (char)('0' + to / 10);
    name[1] = (char)('0' + to % 10);
    call->due = graph_now() + graph_latency();
    call->kind = OF_LISTS;
    call->count = words;
    if (farjump_forward(name, sizeof name, call, sizeof *call + (size_t)words * 4) != 0)
        farjump_panic(lost, sizeof lost - 1);
}

FARJUMP_IFUNC void triangles_main(void *payload, size_t payload_size, void *target_args)
{
    struct graph_shard *shard = target_args;
    const struct triangles_call *call = payload;
    struct triangles_reply reply = {0};
    uint64_t began;
    uint32_t at, i, to;

    (void)payload_size;
    graph_wait(call->due);
    began = graph_now();
    if (call->kind == OF_LISTS) {
        for (at = 0; at < call->count; at += call->words[at] + 1)
            reply.triangles += count_list(shard, &call->words[at + 1], call->words[at]);
        reply.hops = 2;
    } else {
        /* The first word of each shard's space counts those of its lists, which stand behind the head of a message. */
        for (to = 0; to < shard->shards; to++)
            shard->out[(size_t)to * shard->space] = 0;
        for (at = 0; at < call->count; at++) {
            uint32_t number = call->words[at] / shard->shards;
            uint32_t first = shard->later_offsets[number], len = shard->later_offsets[number + 1] - first;
            const uint32_t *list = shard->later + first;
            uint64_t owners = 0;

            for (i = 0; i < len; i++)
                owners |= (uint64_t)1 << list[i] % shard->shards;
            if (owners >> shard->shard & 1)
                reply.triangles += count_list(shard, list, len);
            for (to = 0; to < shard->shards; to++) {
                uint32_t *space = shard->out + (size_t)to * shard->space, *words = space;
                if (to == shard->shard || !(owners >> to & 1))
                    continue;
                space += 6 + *words;
                *space = len;
                memcpy(space + 1, list, (size_t)len * 4);
                *words += 1 + len;
            }
        }
        for (to = 0; to < shard->shards; to++) {
            uint32_t *space = shard->out + (size_t)to * shard->space, words = *space;
            if (words != 0)
                send_on(to, space + 6, words);
        }
        reply.hops = 1;
    }
    reply.sent = graph_now();
    reply.took = reply.sent - began;
    farjump_reply(&reply, sizeof reply);
}
