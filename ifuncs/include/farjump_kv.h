/* farjump_kv.h - the interface to the server for functions that run in Redis or Valkey, in C and C++.
 *
 * The module farjump-kv.so opens a farjump target in the server. target_args is a `struct farjump_kv *`. Functions
 * only pass it on:
 *
 *     #include <farjump_ifunc.h>
 *     #include <farjump_kv.h>
 *
 *     FARJUMP_COPY_ARGS(length)
 *
 *     FARJUMP_IFUNC void length_main(void *payload, size_t payload_size, void *target_args)
 *     {
 *         struct farjump_kv *kv = target_args;
 *         struct kv_bytes value;
 *         int got = kv_get(kv, payload, payload_size, &value);
 *         uint64_t length = got == KV_OK ? value.len : 0;
 *         if (got < 0)
 *             kv_fail(kv);
 *         farjump_reply(&length, sizeof length);
 *     }
 *
 * RESULTS
 * Each function returns KV_OK (0), KV_ABSENT (1) if there is no such key, field or further element, or one of the negative
 * numbers below. For these kv_error() has a message. Results are written for KV_OK alone. A pointer to a result may be NULL.
 *
 * LIFETIMES
 * Lent bytes are read-only. They are valid until the function ends, or until its first write (kv_set, kv_command and the
 * like). A later use of a pointer reads unknown bytes: it is an error of the function's author. Cursors and replies are
 * numbers. Use after their end is refused (KV_STALE). They end with the function. Cursors also end with the first write.
 *
 * NAMES
 * Keys, fields and members are bytes with a length: they may have zeros. The server keeps no pointer to them.
 *
 * ANSWERS
 * A function replies bytes by farjump_reply, or answers with a value by kv_answer_integer and the like, not both. FJ.CALL passes
 * bytes on as a bulk string, and a value as one of its kind. A source gets a value's bytes in RESP, the protocol of the server's
 * clients.
 *
 * TRANSACTIONS
 * All writes of a function and of other functions of the same turn reach replicas and the append-only file as one
 * transaction. Nothing is rolled back after an error.
 *
 * RIGHTS
 * Functions of links act as the user that the module was loaded with (`user NAME`; otherwise `default`). Those of FJ.CALL act
 * as the client's user. Rules about commands, keys and channels hold: kv_get needs `get`, kv_type and kv_len `type`, kv_hget
 * `hget`, kv_lindex `lindex`, kv_zscore `zscore`, kv_zrange `zrangebyscore`, kv_xrange `xrange`, kv_fields `hgetall`,
 * kv_members `smembers`, kv_scan `scan`. Writes need their commands. Functions run in database 0, those of FJ.CALL in the
 * client's.
 *
 * THREADS
 * Call these functions on the thread on which the injected function runs. On another one they return KV_NO_CALL.
 */
#ifndef FARJUMP_KV_H
#define FARJUMP_KV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The server's data. */
struct farjump_kv;

/* Lent bytes. */
struct kv_bytes {
    const void *data;
    size_t len;
};

#define KV_OK 0
#define KV_ABSENT 1 /* there is no such key, field or member, or no further element */

#define KV_WRONG_TYPE (-1)    /* the key holds a value of another type */
#define KV_DENIED (-2)        /* the user has no permission, or is off */
#define KV_PAUSED (-3)        /* the server holds writes back: CLIENT PAUSE, or a failover */
#define KV_NO_MEMORY (-4)     /* the server uses more than its maxmemory, and evicts nothing */
#define KV_READ_ONLY (-5)     /* a read-only replica, or FJ.CALL_RO */
#define KV_OTHER_SLOT (-6)    /* the key is another node's, or of another slot than the keys of FJ.CALL */
#define KV_STALE (-7)         /* the cursor or reply has ended */
#define KV_FAILED (-8)        /* the server returned an error */
#define KV_BAD_ARGUMENT (-9)  /* an argument is not possible */
#define KV_TOO_MANY (-10)     /* 64 MiB of copies, or 64 cursors: more than one call may have */
#define KV_NO_CALL (-11)      /* no function runs on this thread */

/* kv_error - gets the message of the last error of this thread. It is not zero-terminated, and valid until the next error. */
int kv_error(struct farjump_kv *kv, struct kv_bytes *text);

/* ---- Reading ---- */

/* kv_type - returns the type of a key: one of these, or an error. */
int kv_type(struct farjump_kv *kv, const void *key, size_t key_len);

#define KV_NONE 0
#define KV_STRING 1
#define KV_LIST 2
#define KV_HASH 3
#define KV_SET 4
#define KV_ZSET 5
#define KV_MODULE 6
#define KV_STREAM 7

/* kv_len - gets the number of elements of a key, or of bytes of a string. */
int kv_len(struct farjump_kv *kv, const void *key, size_t key_len, size_t *len);

/* kv_get - gets the bytes of a string in the server's memory: nothing is copied. A string of at most 44 bytes, or of digits,
 * takes some bytes more of the server's memory afterwards, and OBJECT ENCODING shows `raw`. */
int kv_get(struct farjump_kv *kv, const void *key, size_t key_len, struct kv_bytes *value);

/* kv_hget - gets a copy of the value of a hash's field. */
int kv_hget(struct farjump_kv *kv, const void *key, size_t key_len, const void *field, size_t field_len,
            struct kv_bytes *value);

/* kv_lindex - gets a copy of an element of a list: the first for 0, the last for -1. Access in order is cheap. */
int kv_lindex(struct farjump_kv *kv, const void *key, size_t key_len, int64_t index, struct kv_bytes *value);

/* kv_zscore - gets the score of a sorted set's member. */
int kv_zscore(struct farjump_kv *kv, const void *key, size_t key_len, const void *member, size_t member_len,
              double *score);

/* kv_zrange - opens a cursor over a sorted set's members with scores from `min` to `max`, both included. -INFINITY and INFINITY
 * select all. Scores rise, or fall if `reverse` is not 0. kv_zset_next goes through the members. */
int kv_zrange(struct farjump_kv *kv, const void *key, size_t key_len, double min, double max, int reverse,
              uint64_t *cursor);
int kv_zset_next(struct farjump_kv *kv, uint64_t cursor, struct kv_bytes *member, double *score);

/* kv_xrange - opens a cursor over a stream's entries with ids from `first` to `last`, both included. NULL stands
 * for the first or the last of all. kv_stream_next goes to the next entry, and kv_pair_next through that entry's fields. */
struct kv_stream_id {
    uint64_t ms;
    uint64_t seq;
};
int kv_xrange(struct farjump_kv *kv, const void *key, size_t key_len, const struct kv_stream_id *first,
              const struct kv_stream_id *last, int reverse, uint64_t *cursor);
int kv_stream_next(struct farjump_kv *kv, uint64_t cursor, struct kv_stream_id *id, size_t *fields);

/* kv_fields, kv_members - open a cursor over copies of all of a hash's fields, or of a set's members, in no order.
 * kv_pair_next goes through fields and values, kv_name_next through members. */
int kv_fields(struct farjump_kv *kv, const void *key, size_t key_len, uint64_t *cursor);
int kv_members(struct farjump_kv *kv, const void *key, size_t key_len, uint64_t *cursor);
int kv_pair_next(struct farjump_kv *kv, uint64_t cursor, struct kv_bytes *field, struct kv_bytes *value);
int kv_name_next(struct farjump_kv *kv, uint64_t cursor, struct kv_bytes *name);

/* kv_scan - opens a cursor over names of keys that begin with `prefix`, as SCAN finds them. It looks at about `most` keys of
 * the database, from *position on (0 at first), and writes the position to continue from to *position (0 at the end). A name
 * may come twice. kv_name_next goes through the names. In a cluster, in an FJ.CALL with keys, it returns KV_OTHER_SLOT. */
int kv_scan(struct farjump_kv *kv, const void *prefix, size_t prefix_len, size_t most, uint64_t *position,
            uint64_t *cursor);

/* kv_close - ends a cursor before the function ends. */
int kv_close(struct farjump_kv *kv, uint64_t cursor);

/* ---- Writing ---- */

/* kv_set, kv_del, kv_expire, kv_hset, kv_zadd - SET, DEL, PEXPIRE, HSET and ZADD. kv_del and kv_expire return KV_ABSENT for
 * a key that is not there. */
int kv_set(struct farjump_kv *kv, const void *key, size_t key_len, const void *value, size_t value_len);
int kv_del(struct farjump_kv *kv, const void *key, size_t key_len);
int kv_expire(struct farjump_kv *kv, const void *key, size_t key_len, int64_t milliseconds);
int kv_hset(struct farjump_kv *kv, const void *key, size_t key_len, const void *field, size_t field_len,
            const void *value, size_t value_len);
int kv_zadd(struct farjump_kv *kv, const void *key, size_t key_len, const void *member, size_t member_len,
            double score);

/* kv_command - runs any command that a script may run, but none of this module's. It has `count` words. The first one is its
 * name. If the command fails, the result is KV_FAILED. The reply is a number for kv_reply. It ends at the next command or
 * write, and so do the bytes that kv_reply has lent. Ends all cursors, as the command may write. SELECT holds until the
 * function ends, as in a script. Calls that run later or elsewhere begin in the database of the call. Other commands that act
 * on a client (WAIT, WAITAOF, READONLY, READWRITE, ASKING) are KV_BAD_ARGUMENT. */
int kv_command(struct farjump_kv *kv, const struct kv_bytes *words, size_t count, uint64_t *reply);

/* kv_reply - gets a part of a reply: the whole for depth 0, otherwise the element at the indexes `path`. KV_ABSENT if there is
 * none. */
struct kv_part {
    int32_t type;          /* one of KV_REPLY_... */
    uint32_t reserved;
    int64_t integer;       /* of an integer */
    struct kv_bytes bytes; /* of a string */
    size_t len;            /* number of an array's elements, or of a string's bytes */
};
int kv_reply(struct farjump_kv *kv, uint64_t reply, const size_t *path, size_t depth, struct kv_part *part);

#define KV_REPLY_STRING 0
#define KV_REPLY_INTEGER 2
#define KV_REPLY_ARRAY 3
#define KV_REPLY_NULL 4

/* ---- Keys and arguments ---- */

/* kv_words - parses the payload of a call by a link as keys and arguments: an array of bulk strings in RESP, `numkeys key ...
 * arg ...` as after the name in FJ.CALL. KV_BAD_ARGUMENT for another payload. Does nothing in a call by FJ.CALL. So a function
 * that calls it first works by links and by FJ.CALL. Copies the payload. */
int kv_words(struct farjump_kv *kv, const void *payload, size_t payload_size);

/* kv_keys, kv_args - return the number of keys or of arguments: 0 for a call by a link before kv_words. In a call by FJ.CALL
 * the payload is the first argument.
 * kv_key, kv_arg - get one of them. KV_ABSENT if there is none. */
int kv_keys(struct farjump_kv *kv);
int kv_key(struct farjump_kv *kv, size_t index, struct kv_bytes *key);
int kv_args(struct farjump_kv *kv);
int kv_arg(struct farjump_kv *kv, size_t index, struct kv_bytes *arg);

/* ---- Answers ---- */

/* kv_answer_integer, kv_answer_double, kv_answer_string - answer with this value.
 * kv_answer_array - begins an array: the next `count` values are its elements, and may be arrays. A client of version 2 of the
 * protocol gets a double as a bulk string. KV_TOO_MANY beyond the target's limit of replies, which ends the call, and
 * KV_BAD_ARGUMENT for NaN. */
int kv_answer_integer(struct farjump_kv *kv, int64_t value);
int kv_answer_double(struct farjump_kv *kv, double value);
int kv_answer_string(struct farjump_kv *kv, const void *data, size_t len);
int kv_answer_array(struct farjump_kv *kv, size_t count);

/* ---- Numbers and time ---- */

/* kv_parse_integer - parses a number as INCR does: no blank, no `+`, no leading zero.
 * kv_parse_double - parses a number as ZADD does, in decimal digits. KV_BAD_ARGUMENT for any other text. */
int kv_parse_integer(struct farjump_kv *kv, const void *text, size_t len, int64_t *value);
int kv_parse_double(struct farjump_kv *kv, const void *text, size_t len, double *value);

/* kv_format_integer, kv_format_double - write a number's text to `text`, and its length to `len`. `text` has space for
 * KV_NUMBER bytes. A double gets the shortest text that is read as the same number. KV_BAD_ARGUMENT for NaN. */
int kv_format_integer(struct farjump_kv *kv, int64_t value, char *text, size_t *len);
int kv_format_double(struct farjump_kv *kv, double value, char *text, size_t *len);

#define KV_NUMBER 32

/* kv_time - gets the server's clock: microseconds since 1970, as in TIME. */
int kv_time(struct farjump_kv *kv, uint64_t *microseconds);

#ifdef __cplusplus
}
#endif

#ifdef FARJUMP_IFUNC_H
/* kv_fail - ends the call with the message of the last error. Include farjump_ifunc.h before this header. */
__attribute__((noreturn)) static inline void kv_fail(struct farjump_kv *kv)
{
    struct kv_bytes text = {"", 0};
    kv_error(kv, &text);
    farjump_panic((const char *)text.data, text.len);
}
#endif

#endif
