/* chase - follows a permutation that lies in the tables of several shards: reads while the next word is in this
 * shard's table, sends itself on to the shard that has it otherwise, and to the client after the last word. */
#include <farjump_ifunc.h>

struct chase_message {
    uint64_t sent;     /* when the message left, for the model of a wire */
    uint32_t index;    /* the next word, or after the last read the result */
    uint32_t left;     /* words still to be read */
    uint32_t slot;     /* which of the chases that are under way this one is */
    uint32_t messages; /* messages so far */
};

struct chase_place {
    const uint64_t *words; /* this shard's part of the table; NULL at the client */
    uint32_t first;        /* index of its first word */
    uint32_t log2;         /* of the number of words of a shard */
    uint32_t client;       /* number of the client's destination, behind those of the shards */
};

uint64_t perf_wire_stamp(void);
void perf_wire_wait(uint64_t sent);
void perf_chase_ended(const struct chase_message *message, const struct chase_place *place);
void perf_chase_lost(int why);

FARJUMP_COPY_ARGS(chase)

FARJUMP_IFUNC void chase_main(void *payload, size_t payload_size, void *target_args)
{
    const struct chase_place *place = target_args;
    struct chase_message message = *(const struct chase_message *)payload;
    uint32_t owner;
    char name[2];
    int why;

    (void)payload_size;
    perf_wire_wait(message.sent);
    if (place->words == NULL) {
        perf_chase_ended(&message, place);
        return;
    }
    while (message.left != 0 && (message.index - place->first) >> place->log2 == 0) {
        message.index = (uint32_t)place->words[message.index - place->first];
        message.left--;
    }
    owner = message.left == 0 ? place->client : message.index >> place->log2;
    name[0] = (char)('0' + owner / 10);
    name[1] = (char)('0' + owner % 10);
    message.messages++;
    message.sent = perf_wire_stamp();
    why = farjump_forward(name, sizeof name, &message, sizeof message);
    if (why != 0)
        perf_chase_lost(why);
}
