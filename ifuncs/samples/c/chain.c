/* chain - forwards itself from target to target, and collects the length of each one's data. Each target knows
 * the one after it as `next`. The arguments are the number of targets to visit, in decimal digits. target_args
 * is a struct farjump_data. The last target replies a 64-bit number for each visited target, in order. */
#include <farjump_ifunc.h>

#define MOST 256
#define FAIL(text) farjump_panic(text, sizeof text - 1)

/* The payload: the number of targets visited, and space for the length of each one's data. */
struct journey {
    uint64_t visited;
    uint64_t bytes[];
};

/* Returns the number of targets in the arguments; 0 if they are malformed. */
static size_t targets(const char *digits, size_t len)
{
    size_t count = 0;

    for (size_t i = 0; i < len; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return 0;
        count = 10 * count + (size_t)(digits[i] - '0');
        if (count > MOST)
            return 0;
    }
    return count;
}

FARJUMP_IFUNC size_t chain_payload_get_max_size(void *source_args, size_t source_args_size)
{
    return sizeof(struct journey) + targets(source_args, source_args_size) * sizeof(uint64_t);
}

FARJUMP_IFUNC int chain_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size)
{
    __builtin_memset(payload, 0, payload_size);
    return targets(source_args, source_args_size) == 0;
}

FARJUMP_IFUNC void chain_main(void *payload, size_t payload_size, void *target_args)
{
    const struct farjump_data *data = target_args;
    struct journey *journey = payload;
    uint64_t visited, count;

    if (payload_size < sizeof *journey || payload_size % sizeof(uint64_t) != 0)
        FAIL("the payload is no journey: it is not a row of 64-bit numbers");
    count = (payload_size - sizeof *journey) / sizeof(uint64_t);
    visited = journey->visited;
    if (visited >= count)
        FAIL("the journey was over before");
    journey->bytes[visited++] = data->len;
    if (visited == count) {
        farjump_reply(journey->bytes, count * sizeof(uint64_t));
        return;
    }
    journey->visited = visited;
    switch (farjump_forward("next", 4, payload, payload_size)) {
    case 0:
        return;
    case FARJUMP_UNKNOWN_PEER:
        FAIL("this target has no destination `next`, and there are more to visit");
    default:
        FAIL("the destination `next` has too much to do: try again later");
    }
}
