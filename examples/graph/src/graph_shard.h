/* graph_shard.h - what the functions share with the program that they run in. */
#include <farjump_ifunc.h>
#include <string.h>

/* The target_args: one shard. shard.rs has the same. */
struct graph_shard {
    const uint32_t *all_offsets;
    const uint32_t *all;
    const uint32_t *later_offsets;
    const uint32_t *later;
    uint64_t *seen;       /* a bit for each vertex of the graph: those that this shard has replied in a run */
    uint64_t *marks;      /* likewise, clear between calls */
    uint32_t *out;        /* for each shard `space` words */
    uint32_t space;
    uint32_t vertices;
    uint32_t shard;       /* number of this shard */
    uint32_t shards;
    uint32_t run;         /* the run whose bits are in `seen` */
};

/* The clock of all processors here, in nanoseconds; waiting until it shows a time; and the latency of the modelled wire. */
uint64_t graph_now(void);
void graph_wait(uint64_t until);
uint64_t graph_latency(void);

static inline int graph_bit(const uint64_t *bits, uint32_t number)
{
    return (int)(bits[number >> 6] >> (number & 63) & 1);
}
