/* The data that the kills test and its functions share: `Pages` of tests/kills/journal.rs. */
#include <farjump_ifunc.h>

enum { LOG = 1 << 18 };

struct ledger {
    uint64_t begun; /* calls that have begun: entries of the log */
    uint64_t ended; /* calls that have ended, after their reply */
    uint64_t torn;  /* payloads that differed from their making */
    uint64_t hold;  /* while it is not 0, held calls do not end */
    uint64_t log[LOG];
};

/* A payload: this, and any number of words, each the name plus its place among them. */
struct entry {
    uint64_t name;
    uint64_t held; /* whether the call waits for `hold` */
    uint64_t reply; /* words to reply beyond the name and the place in the log */
};

static inline void write_down(struct ledger *ledger, const uint64_t *payload, size_t words)
{
    struct entry entry;
    uint64_t at = ledger->begun, chunk[256];

    __builtin_memcpy(&entry, payload, sizeof entry);
    if (at < LOG)
        ledger->log[at] = entry.name;
    __atomic_store_n(&ledger->begun, at + 1, __ATOMIC_RELEASE);
    for (size_t word = sizeof entry / sizeof *payload; word < words; word++)
        if (payload[word] != entry.name + word) {
            __atomic_fetch_add(&ledger->torn, 1, __ATOMIC_RELAXED);
            break;
        }
    while (entry.held && __atomic_load_n(&ledger->hold, __ATOMIC_ACQUIRE))
        ;
    chunk[0] = entry.name;
    chunk[1] = at;
    farjump_reply(chunk, 2 * sizeof *chunk);
    for (uint64_t done = 0; done < entry.reply;) {
        uint64_t count = entry.reply - done;

        if (count > sizeof chunk / sizeof *chunk)
            count = sizeof chunk / sizeof *chunk;
        for (uint64_t word = 0; word < count; word++)
            chunk[word] = entry.name + done + word;
        farjump_reply(chunk, count * sizeof *chunk);
        done += count;
    }
    __atomic_store_n(&ledger->ended, at + 1, __ATOMIC_RELEASE);
}
