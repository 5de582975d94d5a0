/* farjump for C and C++: inject functions into other processes.
 *
 * Made by cbindgen from the Rust module `api` (c/src/api): change that, not this.
 *
 * A source opens an ifunc library (farjump_library_open, or farjump_library_load if it has payload routines of
 * its own), connects to a target (farjump_link_connect), injects (farjump_link_inject) and waits for the reply
 * (farjump_pending_wait). A target has exports (farjump_target_config_new), listens (farjump_target_listen),
 * and is polled (farjump_target_poll), run (farjump_target_run) or handed to a thread (farjump_target_spawn).
 * farjump_ifunc.h is for the functions themselves.
 *
 * Objects stay at their owner, and other processes read them by handles. The owner opens a store
 * (farjump_store_open), gives it to a target (farjump_target_config_set_objects), and makes objects
 * (farjump_store_put). A handle travels as bytes (farjump_handle_to_bytes). A process that has it connects to the
 * owner (farjump_client_connect_to_owner), and gets a view of the object (farjump_client_get), which is mapped on
 * the same machine. Or it runs a function at the object (farjump_client_call), at many (farjump_client_map), or
 * at the place where that takes less time (farjump_client_call_auto). Streams pass handles from publishers to
 * subscribers (farjump_client_publisher, farjump_client_subscribe).
 *
 * Options. A configuration has the options of an object that is to be made, each with a name and a value as text:
 * farjump_target_config_set(config, "max-payload", "64M"). Bytes are a number, or one with K, M or G; times are as
 * `500ms` or `2s`, or `forever`; flags are `yes` or `no`. The items of a list have commas between them, and `\,` is a
 * comma within one; setting a list replaces it. All names and values are UTF-8. docs/reference/options.md lists the
 * options. farjump_target_option and farjump_link_option read the options of a target or link that is there.
 *
 * Errors. Functions return a status: FARJUMP_OK, FARJUMP_NOT_YET or FARJUMP_STREAM_END where they say so, or an
 * error, which is below 0. For errors farjump_last_error() returns a sentence for people. Functions that return
 * something else return NULL, -1 or 0 instead. Nothing is thrown, and nothing aborts the process; a bug in
 * farjump itself is FARJUMP_ERROR_INTERNAL.
 *
 * Ownership. A function writes the object that it makes to the variable that its last argument points to; the
 * variable is NULL after a failure. The caller ends the object by the function that its text names. That
 * function takes the address of the variable and sets it to NULL: ending it twice is harmless, and using it
 * afterwards is FARJUMP_ERROR_ARGUMENT. Other copies of the pointer dangle after the end. The caller may end objects
 * in any order: each keeps the parts of the others that it needs. Arguments (texts, bytes, keys) are read during the
 * call and stay the caller's, except a target's arguments and exports.
 *
 * Threads. Several threads may use an object at once in calls that all take it by a pointer to const. One thread
 * at a time uses any other object; it may move between threads. Callbacks run inside calls on the object that they
 * were given to, on the thread of that call. Callbacks, injected functions and payload routines can use other
 * objects, but not the object whose call runs them: such a use returns FARJUMP_ERROR_BUSY. They must return: no
 * exception and no longjmp() may leave them.
 *
 * Pointers point to objects of their type, or are NULL, which is FARJUMP_ERROR_ARGUMENT unless the text states its
 * meaning. Texts end in a zero byte and are UTF-8; paths that are arguments of functions may be any bytes. Times are
 * in nanoseconds, and FARJUMP_FOREVER is no limit.
 *
 * Native code in a process is trusted code: grant access only to peers you trust with the whole process.
 */

#ifndef FARJUMP_H
#define FARJUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of this header; farjump_version() has the library's. */
#define FARJUMP_VERSION 100

/* A time without end. */
#define FARJUMP_FOREVER UINT64_MAX

/* Most bytes of an encoded handle. */
#define FARJUMP_MAX_HANDLE 8509

/* Marks functions that do not return. */
#if defined(__GNUC__)
#define FARJUMP_NORETURN __attribute__((noreturn))
#else
#define FARJUMP_NORETURN
#endif

/**
 * The status of a call. 0 is success, numbers below 0 are errors: farjump_last_error() has the text.
 */
typedef enum {
    /**
     * Success.
     */
    FARJUMP_OK = 0,
    /**
     * The result has not come yet, and nothing is wrong: try again.
     */
    FARJUMP_NOT_YET = 1,
    /**
     * The stream has ended, and nothing is wrong: all publishers have finished, and the subscriber has received
     * all entries.
     */
    FARJUMP_STREAM_END = 2,
    /**
     * A bad argument: NULL where a value is required, a malformed name or number, choices that exclude each
     * other. Nothing was done.
     */
    FARJUMP_ERROR_ARGUMENT = -1,
    /**
     * The object is in use: the call came from inside another call on it, from a callback, an injected function
     * or a payload routine. Or the topic to discard has publishers or subscribers. Nothing was done.
     */
    FARJUMP_ERROR_BUSY = -2,
    /**
     * The pending call is not one of this link's, its outcome was taken already, or it was cancelled.
     */
    FARJUMP_ERROR_NO_CALL = -3,
    /**
     * The ifunc library cannot be opened, is malformed, has no code for the target's machine, or its payload
     * routine failed. Nothing was sent.
     */
    FARJUMP_ERROR_LIBRARY = -4,
    /**
     * No connection. The address is malformed, no process listens there, or one does already. Or the target
     * rejects this process, the two have no transport in common, a key is missing or wrong, or connecting took
     * too long.
     */
    FARJUMP_ERROR_CONNECT = -5,
    /**
     * The transport failed.
     */
    FARJUMP_ERROR_TRANSPORT = -6,
    /**
     * The target refused the call: farjump_last_cause() returns the cause. Nothing ran, unless the cause is one
     * that only shows afterwards.
     */
    FARJUMP_ERROR_REFUSED = -7,
    /**
     * The injected function called farjump_panic(): the text has its message.
     */
    FARJUMP_ERROR_PANICKED = -8,
    /**
     * The target has ended, or the connection to it has. Pending calls may or may not have run.
     */
    FARJUMP_ERROR_PEER_GONE = -9,
    /**
     * The time limit passed. A call that the function waited for is cancelled, and may still run.
     */
    FARJUMP_ERROR_TIMEOUT = -10,
    /**
     * There is no credit now, and the call does not wait: take replies, then try again. Nothing was sent.
     */
    FARJUMP_ERROR_FULL = -11,
    /**
     * The call exceeds the limit of the link or the target. Nothing was sent.
     */
    FARJUMP_ERROR_TOO_LARGE = -12,
    /**
     * 32,768 calls of the link are pending, or it has bound 65,536 different functions. Nothing was sent. For
     * streams: the maximum of topics, publishers, subscribers or unreleased items is reached.
     */
    FARJUMP_ERROR_TOO_MANY = -13,
    /**
     * The code cannot run in the chosen mode. Nothing was sent.
     */
    FARJUMP_ERROR_MODE = -14,
    /**
     * The operating system refused an operation.
     */
    FARJUMP_ERROR_SYSTEM = -15,
    /**
     * A bug in farjump itself. The object that was used can only be closed.
     */
    FARJUMP_ERROR_INTERNAL = -16,
    /**
     * Calls that the function forwarded were lost: the text has their number and the reason of the first. The
     * reply has the replies of the others.
     */
    FARJUMP_ERROR_INCOMPLETE = -17,
    /**
     * The object is gone: it was evicted, its lease has ended, or its owner has restarted.
     */
    FARJUMP_ERROR_GONE = -18,
    /**
     * The handle does not have the object's key.
     */
    FARJUMP_ERROR_WRONG_KEY = -19,
    /**
     * The object is reserved, and has no contents yet.
     */
    FARJUMP_ERROR_UNSET = -20,
    /**
     * The store has no memory for an object: the text has the bytes in use.
     */
    FARJUMP_ERROR_STORE_FULL = -21,
    /**
     * The topic stays full: its slowest subscriber has not advanced, or no subscriber has come. Nothing was
     * published.
     */
    FARJUMP_ERROR_TOPIC_FULL = -22,
    /**
     * A publisher ended without finishing, and its further entries are missing. All entries that it published
     * came before. Other publishers continue.
     */
    FARJUMP_ERROR_PUBLISHER_GONE = -23,
} farjump_status_t;

/**
 * The way in which a call's code travels and runs. Options name the modes `cached`, `always`, `local` and
 * `in-place`.
 */
typedef enum {
    /**
     * The code travels with its first call on a link; later calls name it by a number. The default of links.
     */
    FARJUMP_MODE_CACHED = 1,
    /**
     * The code travels with each call. The target compares it with its stored copy, and runs that copy.
     */
    FARJUMP_MODE_ALWAYS = 2,
    /**
     * The target has the library itself (farjump_target_config_add_local()): only the name travels.
     */
    FARJUMP_MODE_LOCAL = 4,
    /**
     * The code travels with each call, and runs in place, in the target's mailbox. Targets do not allow it by
     * default: the bytes that the source has written run, regardless of the code id. Code with writable statics
     * cannot run in place, nor can any code over a transport without a mailbox.
     */
    FARJUMP_MODE_IN_PLACE = 8,
} farjump_mode_t;

/**
 * A right of a process that connects to a target. Each is a bit. The option `rights` names them `observe`,
 * `call`, `inject`, `drop` and `export`.
 */
typedef enum {
    /**
     * List the target's stored code, and read its statistics.
     */
    FARJUMP_RIGHT_OBSERVE = 1,
    /**
     * Make a link, and call functions that the target has already: its own by name, others by code id.
     */
    FARJUMP_RIGHT_CALL = 2,
    /**
     * Bring code to a link, in any mode. Without FARJUMP_RIGHT_CALL there is no link to bring it to.
     */
    FARJUMP_RIGHT_INJECT = 4,
    /**
     * Drop stored code of the target's, from any source.
     */
    FARJUMP_RIGHT_DROP = 8,
    /**
     * Have the target load libraries, and link code against them.
     */
    FARJUMP_RIGHT_EXPORT = 16,
} farjump_right_t;

/**
 * The reason why a target did not run a call.
 */
typedef enum {
    /**
     * Lengths, offsets, kind or flags that no frame can have.
     */
    FARJUMP_CAUSE_BAD_FRAME = 0,
    /**
     * The rest of a frame that had begun did not come in time.
     */
    FARJUMP_CAUSE_STALLED = 1,
    /**
     * The image is damaged, or could never run.
     */
    FARJUMP_CAUSE_BAD_IMAGE = 2,
    /**
     * The code's hash is not the id that it came with.
     */
    FARJUMP_CAUSE_ID_MISMATCH = 3,
    /**
     * The image is for another instruction set.
     */
    FARJUMP_CAUSE_WRONG_MACHINE = 4,
    /**
     * The code imports a symbol that the target does not offer.
     */
    FARJUMP_CAUSE_UNRESOLVED_IMPORT = 5,
    /**
     * The target has no memory left, for code or for a large mailbox.
     */
    FARJUMP_CAUSE_NO_ROOM = 6,
    /**
     * The frame was made for an earlier run of the target.
     */
    FARJUMP_CAUSE_STALE_EPOCH = 7,
    /**
     * A code index without a binding.
     */
    FARJUMP_CAUSE_UNKNOWN_INDEX = 8,
    /**
     * The frame, or its payload, exceeds the target's limit.
     */
    FARJUMP_CAUSE_TOO_LARGE = 9,
    /**
     * The target requested the code and did not get it.
     */
    FARJUMP_CAUSE_CODE_MISSING = 10,
    /**
     * The code ran, and its reply exceeded the source's limit.
     */
    FARJUMP_CAUSE_REPLY_TOO_LARGE = 11,
    /**
     * The target's policy.
     */
    FARJUMP_CAUSE_POLICY = 12,
    /**
     * The ifunc's name is not valid: empty, too long, or with `/` or `..`.
     */
    FARJUMP_CAUSE_NAME = 13,
    /**
     * The code ran and called farjump_panic(), and it was a one-way call.
     */
    FARJUMP_CAUSE_PANICKED = 14,
    /**
     * The code ran and forwarded itself to a destination of the target, and no reply came.
     */
    FARJUMP_CAUSE_FORWARD = 15,
    /**
     * The source lacks a right that the call requires.
     */
    FARJUMP_CAUSE_RIGHTS = 16,
} farjump_refusal_cause_t;

/**
 * The state of an object.
 */
typedef enum {
    /**
     * It is reserved, and has no contents yet.
     */
    FARJUMP_OBJECT_RESERVED = 0,
    /**
     * Its contents are being written.
     */
    FARJUMP_OBJECT_UNFINISHED = 1,
    /**
     * It can be read.
     */
    FARJUMP_OBJECT_PRESENT = 2,
    /**
     * It can be read. It lies in a file, because the memory was full.
     */
    FARJUMP_OBJECT_SPILLED = 3,
    /**
     * It is evicted, and its last readers still use it.
     */
    FARJUMP_OBJECT_EVICTED = 4,
} farjump_object_state_t;

/**
 * A place for a function.
 */
typedef enum {
    /**
     * At the object's owner, by a call.
     */
    FARJUMP_PLACE_OWNER = 0,
    /**
     * In this process, on bytes that were fetched or mapped.
     */
    FARJUMP_PLACE_HERE = 1,
} farjump_place_t;

/**
 * The admin interface of the target at an address: requests list its stored code, read its statistics and
 * drop code. Each request opens a connection of its own, which makes no link and does not count as a source.
 * Nothing stays open between requests. Any number of threads may send requests at once.
 *
 * All requests fail with FARJUMP_ERROR_CONNECT when no process listens there, when the listener is no target
 * or another user's, or when it does not respond in time.
 */
typedef struct farjump_admin_t farjump_admin_t;

/**
 * Bytes that the library fills in: replies, and texts without a fixed length. Make one once and use it again
 * and again: once it has grown to the longest content, nothing is allocated. The caller owns it. One thread
 * uses it at a time.
 */
typedef struct farjump_bytes_t farjump_bytes_t;

/**
 * Options for clients. One thread changes it at a time. It is copied when a client connects.
 */
typedef struct farjump_client_config_t farjump_client_config_t;

/**
 * A connection to the owner of objects: a target that has a store. Any number of threads may use it at once.
 * A forked child cannot use it: the child makes a connection of its own.
 *
 * Requests fail with FARJUMP_ERROR_TIMEOUT when the owner does not respond in time, and with
 * FARJUMP_ERROR_PEER_GONE when it has ended. A client whose owner has ended is of no further use: close it,
 * and connect again.
 */
typedef struct farjump_client_t farjump_client_t;

/**
 * One reference to a counted object. The object is evicted with its last reference, in any process. A
 * reference keeps the store or client that it came by. Any number of threads may use it at once.
 *
 * The store counts the references. A process that ends without farjump_counted_release() leaves its
 * references counted: give such objects a lease as well.
 */
typedef struct farjump_counted_t farjump_counted_t;

/**
 * Data that injected functions see as a `struct farjump_data` of farjump_ifunc.h. Any number of threads and
 * targets may use it at once.
 */
typedef struct farjump_data_t farjump_data_t;

/**
 * The name of an object: the addresses of its owner, its number, length and type, and the key to it. It is a
 * value: it keeps nothing alive, and freeing it does nothing to the object. A process that has the handle
 * can read and evict the object, if the owner lets that process connect: keep a handle as you keep a
 * password. Any number of threads may use it at once.
 */
typedef struct farjump_handle_t farjump_handle_t;

/**
 * An entry of a topic: the handle of an object. An object that the topic owns stays until all subscribers
 * have received it and released their items; a view keeps the bytes beyond that. Any number of threads may
 * use it at once.
 */
typedef struct farjump_item_t farjump_item_t;

/**
 * An ifunc library that is open or loaded: code to inject, and routines that make its payload. Any number of
 * threads may use it at once.
 */
typedef struct farjump_library_t farjump_library_t;

/**
 * Options and callbacks for links. The defaults suit a program on the same machine as its target. One thread
 * changes it at a time; any number may connect with it at once. It is copied when a link is made.
 */
typedef struct farjump_link_config_t farjump_link_config_t;

/**
 * A connection to a target. One thread uses it at a time; it may move between threads. Several calls may be
 * in flight. Functions run at the target in injection order.
 *
 * A forked child cannot use its parent's links: calls fail with FARJUMP_ERROR_ARGUMENT, and closing one
 * there ends nothing. The child makes a connection of its own.
 */
typedef struct farjump_link_t farjump_link_t;

/**
 * A call at an object that was started. It keeps the client that it came by. One thread uses it at a time.
 */
typedef struct farjump_object_call_t farjump_object_call_t;

/**
 * The outcomes of calls at many objects, in the order of their handles. Any number of threads may use them
 * at once.
 */
typedef struct farjump_outcomes_t farjump_outcomes_t;

/**
 * An object that this process alone owns: farjump_owned_release() evicts it. It keeps the store or client
 * that it came by. Any number of threads may use it at once.
 *
 * Each object is static at first: it stays until it is evicted or its store ends. An object that is owned,
 * counted (farjump_counted_t) or leased (farjump_store_lease(), farjump_client_lease()) goes earlier.
 */
typedef struct farjump_owned_t farjump_owned_t;

/**
 * A chooser of places for functions, which learns from the times that they took. Keep one for a program. One
 * thread uses it at a time.
 */
typedef struct farjump_placement_t farjump_placement_t;

/**
 * Options for publishers. One thread changes it at a time. It is copied when a publisher is made.
 */
typedef struct farjump_publisher_config_t farjump_publisher_config_t;

/**
 * A publisher of handles in a topic, a queue at a store. Subscribers get the handles in the order in which
 * they were published. It keeps the store or client that it came by. One thread uses it at a time.
 */
typedef struct farjump_publisher_t farjump_publisher_t;

/**
 * Clients for the owners of handles: one for each owner, made when the first handle of it is used. A client
 * whose owner has ended is made anew. Any number of threads may use it at once.
 */
typedef struct farjump_resolver_t farjump_resolver_t;

/**
 * An object that stops farjump_target_run(), even while that sleeps. Any number of threads may use it at
 * once, and signal handlers too.
 */
typedef struct farjump_stopper_t farjump_stopper_t;

/**
 * Options for stores. One thread changes it at a time. It is copied when a store is opened.
 */
typedef struct farjump_store_config_t farjump_store_config_t;

/**
 * Objects that this process owns: bytes that it keeps for other processes, which read them where they lie. A
 * target that is made with it (farjump_target_config_set_objects()) lets other processes reach it. Any
 * number of threads may use it at once.
 */
typedef struct farjump_store_t farjump_store_t;

/**
 * Options for subscribers. One thread changes it at a time. It is copied when a subscriber is made.
 */
typedef struct farjump_subscriber_config_t farjump_subscriber_config_t;

/**
 * A subscriber to a topic, which gets the handles published there, in order. It keeps the store or client
 * that it came by. One thread uses it at a time.
 */
typedef struct farjump_subscriber_t farjump_subscriber_t;

/**
 * Options, arguments, exports and callbacks for targets. Only the exports have no usable default. One thread
 * changes it at a time; any number may make targets with it at once. It is copied when a target is made.
 */
typedef struct farjump_target_config_t farjump_target_config_t;

/**
 * A process, or a thread of one, that injected functions run in. It listens at an address, and does nothing
 * by itself. Call farjump_target_poll() in a loop of your own, or farjump_target_run(), or hand it to a
 * thread with farjump_target_spawn(). One thread uses it at a time; it may move between threads.
 */
typedef struct farjump_target_t farjump_target_t;

/**
 * A target on a thread of its own.
 */
typedef struct farjump_target_thread_t farjump_target_thread_t;

/**
 * The bytes of an object. They lie where the owner keeps them if that memory is mapped here, otherwise in a
 * copy. In both cases they stay until farjump_view_release(), also if the object is evicted or its owner
 * ends meanwhile. Any number of threads may use it at once.
 */
typedef struct farjump_view_t farjump_view_t;

/**
 * A code id: the first 16 bytes of the BLAKE3 hash of an image. Names are for people.
 */
typedef struct {
    /**
     * The bytes, in the order in which the hash has them.
     */
    uint8_t bytes[16];
} farjump_code_id_t;

/**
 * A pending call, as a number: it needs no memory and no end. Numbers differ between links. The number of a
 * call that ended or was cancelled differs from those of later calls, for 65,535 calls in the same slot.
 * 0 is no call.
 */
typedef uint64_t farjump_pending_t;

/**
 * Statistics of a link. It may grow at its end.
 */
typedef struct {
    /**
     * Frames sent that run a function.
     */
    uint64_t frames;
    /**
     * Of those, frames that carried code.
     */
    uint64_t frames_with_code;
    /**
     * Bytes of images sent, in frames and on request.
     */
    uint64_t code_bytes;
    /**
     * Bytes of payload sent.
     */
    uint64_t payload_bytes;
} farjump_link_stats_t;

/**
 * A peer process. The structure and the texts belong to the library; it may grow at its end.
 */
typedef struct {
    /**
     * Its process id, as the system reports it; 0 where it has none here. Over TCP as the peer reports it.
     */
    uint32_t pid;
    /**
     * Its effective user id; UINT32_MAX where the system does not know it: between machines.
     */
    uint32_t uid;
    /**
     * Name of the program. For people: the peer chose it.
     */
    const char *name;
    /**
     * Its identity in words: name, process id, address, key.
     */
    const char *text;
    /**
     * At a target, the operator's name of the key by which a source came; NULL if it needed none, or one
     * without a name.
     */
    const char *key;
} farjump_peer_t;

/**
 * Runs when the target refuses a one-way call: `cause` is one of FARJUMP_CAUSE_BAD_FRAME and its kin, `text`
 * says more, belongs to the library, and is valid until the callback returns.
 */
typedef void (*farjump_link_refused_fn)(void *user, int cause, const char *text);

/**
 * Runs once when the target is gone. `why` belongs to the library, and is valid until the callback returns.
 */
typedef void (*farjump_link_gone_fn)(void *user, const char *why);

/**
 * Runs when the target requests the code of the ifunc called `name` again. The text belongs to the library,
 * and is valid until the callback returns.
 */
typedef void (*farjump_link_code_missing_fn)(void *user, const char *name);

/**
 * Statistics of a target since it was made. It may grow at its end.
 */
typedef struct {
    /**
     * Calls made.
     */
    uint64_t calls;
    /**
     * Of those, calls that were forwarded to a destination.
     */
    uint64_t forwarded;
    /**
     * Frames taken: calls, refused or not, each call of a batch counted; and flush requests.
     */
    uint64_t frames;
    /**
     * Bytes that these frames took in their mailboxes.
     */
    uint64_t bytes;
    /**
     * Calls refused, whatever the cause: farjump_target_refused() counts them by cause.
     */
    uint64_t refused;
    /**
     * Images placed.
     */
    uint64_t images_linked;
    /**
     * Time spent placing images, in nanoseconds.
     */
    uint64_t link_ns;
    /**
     * Sources that are connected now.
     */
    uint64_t sources;
    /**
     * Links made.
     */
    uint64_t links;
    /**
     * Links that ended.
     */
    uint64_t links_ended;
    /**
     * Processes rejected because the target had its maximum of sources.
     */
    uint64_t sources_refused;
    /**
     * Images stored now.
     */
    uint64_t store_images;
    /**
     * Their length as they travelled, together, in bytes.
     */
    uint64_t store_bytes;
    /**
     * Images dropped to make space for others.
     */
    uint64_t store_evictions;
    /**
     * Capacity of the store in images; UINT64_MAX without a limit.
     */
    uint64_t store_capacity_images;
    /**
     * Capacity of the store in bytes of images; UINT64_MAX without a limit.
     */
    uint64_t store_capacity_bytes;
    /**
     * Capacity for placed code that is in use, in bytes.
     */
    uint64_t room_used;
    /**
     * Capacity for placed code, in bytes.
     */
    uint64_t room;
} farjump_target_stats_t;

/**
 * One image in a target's store. The structure and its texts belong to the library, and are valid until the
 * callback returns; it may grow at its end.
 */
typedef struct {
    /**
     * Its code id.
     */
    farjump_code_id_t id;
    /**
     * The name under which it first came.
     */
    const char *name;
    /**
     * The program that brought it first, and its process id, as text for people.
     */
    const char *source;
    /**
     * Length of the image in bytes.
     */
    uint64_t bytes;
    /**
     * Time taken to place it, in nanoseconds.
     */
    uint64_t link_ns;
    /**
     * Calls of it.
     */
    uint64_t calls;
    /**
     * Total time of these calls, in nanoseconds. Of short ones only some are timed: an estimate.
     */
    uint64_t time_ns;
    /**
     * Time since its last call, in nanoseconds; since it came, if it was never called.
     */
    uint64_t last_use_ns;
} farjump_image_t;

/**
 * Runs for each image in a target's store.
 */
typedef void (*farjump_image_fn)(void *user, const farjump_image_t *image);

/**
 * One object of a store. The structure and its text belong to the library, and are valid until the callback
 * returns; it may grow at its end.
 */
typedef struct {
    /**
     * Its number.
     */
    uint64_t number;
    /**
     * Length in bytes.
     */
    uint64_t size;
    /**
     * The name of its type, as its maker gave it.
     */
    const char *type_name;
    /**
     * Readers and calls that use it now.
     */
    uint64_t claims;
    /**
     * Counted references; 0 if they are not counted.
     */
    uint64_t references;
    /**
     * Time left of its lease, in nanoseconds; FARJUMP_FOREVER without one.
     */
    uint64_t lease_ns;
    /**
     * One of FARJUMP_OBJECT_RESERVED and its kin.
     */
    int state;
} farjump_object_t;

/**
 * Runs for each object of a store.
 */
typedef void (*farjump_object_fn)(void *user, const farjump_object_t *object);

/**
 * Any function, to be offered to injected code: cast it to this.
 */
typedef void (*farjump_function_t)(void);

/**
 * Runs for each refused call of a source: `cause` is one of FARJUMP_CAUSE_BAD_FRAME and its kin. `peer` and
 * `text` belong to the library, and are valid until the callback returns.
 */
typedef void (*farjump_target_refused_fn)(void *user, const farjump_peer_t *peer, int cause, const char *text);

/**
 * Runs each time the target requests the code `id` from a source. `peer` and `id` belong to the library, and
 * are valid until the callback returns.
 */
typedef void (*farjump_target_code_missing_fn)(void *user,
                                               const farjump_peer_t *peer,
                                               const farjump_code_id_t *id);

/**
 * Runs for each source that has connected. `peer` belongs to the library, and is valid until the callback
 * returns.
 */
typedef void (*farjump_target_joined_fn)(void *user, const farjump_peer_t *peer);

/**
 * Runs for each source that is gone. `peer` and `why` belong to the library, and are valid until the
 * callback returns.
 */
typedef void (*farjump_target_gone_fn)(void *user, const farjump_peer_t *peer, const char *why);

/**
 * A transport, as it appears before there is a peer. The structure and its texts belong to the library, and
 * are valid until the callback returns; it may grow at its end.
 */
typedef struct {
    /**
     * Its name, as the options `transport` take it.
     */
    const char *name;
    /**
     * Reachable peers, in words: `this machine`.
     */
    const char *reaches;
    /**
     * NULL if it can be used on this machine; else the reason and the remedy, in a sentence for people.
     */
    const char *why_not;
    /**
     * Longest frame in bytes; 0 where it cannot be used.
     */
    uint64_t max_frame;
} farjump_transport_t;

/**
 * Runs for each transport.
 */
typedef void (*farjump_transport_fn)(void *user, const farjump_transport_t *transport);

/**
 * Writes the `size` bytes of a new object to `data`. They are not zeroed before. Anything but 0 is a
 * failure: no object is made then.
 */
typedef int (*farjump_store_write_fn)(void *user, void *data, size_t size);

/**
 * Statistics of a store. It may grow at its end.
 */
typedef struct {
    /**
     * Objects, those included that are reserved, or evicted and still read.
     */
    uint64_t objects;
    /**
     * Bytes of its memory in use.
     */
    uint64_t used;
    /**
     * Bytes of its memory.
     */
    uint64_t capacity;
    /**
     * Bytes in use for links that have ended, as their processes may still read or write them.
     */
    uint64_t quarantined;
} farjump_store_stats_t;

/**
 * A choice, and the values that it rests on. It may grow at its end.
 */
typedef struct {
    /**
     * Expected time in this process, in nanoseconds, that of the fetch included.
     */
    uint64_t here_ns;
    /**
     * Expected time of a call at the owner, in nanoseconds, until its reply is here.
     */
    uint64_t owner_ns;
    /**
     * The way to the owner: time of a message without bytes from one process to the other, in nanoseconds.
     */
    uint64_t latency_ns;
    /**
     * The way to the owner: its bandwidth. UINT64_MAX where many bytes took no longer than few.
     */
    uint64_t bytes_per_second;
    /**
     * The chosen place: one of FARJUMP_PLACE_OWNER and its kin.
     */
    int place;
    /**
     * 1 if the place is expected to take longer than the other, and was chosen to learn its time; 0 otherwise.
     */
    int is_trial;
} farjump_choice_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns a few words for a status; "unknown status" for any other number. The text is constant. Any thread
 * may call this.
 */
const char *farjump_status_string(int status);

/**
 * Returns the last error of this thread: a sentence with the failure, its place and its remedy. "" if there
 * was none. The text belongs to the library, and is valid until the next failing call of this thread. Calls
 * that succeed leave it unchanged.
 */
const char *farjump_last_error(void);

/**
 * Returns the cause of the target's refusal, if the last failing call of this thread returned
 * FARJUMP_ERROR_REFUSED: one of FARJUMP_CAUSE_BAD_FRAME and its kin. -1 otherwise.
 */
int farjump_last_cause(void);

/**
 * Returns a few words for one of FARJUMP_CAUSE_BAD_FRAME and its kin; "unknown cause" for any other number.
 * The text is constant. Any thread may call this.
 */
const char *farjump_cause_string(int cause);

/**
 * Makes one without content. farjump_bytes_free() ends it.
 */
farjump_status_t farjump_bytes_new(farjump_bytes_t **bytes);

/**
 * Frees it, and sets the variable to NULL. Does nothing if it is NULL already.
 */
farjump_status_t farjump_bytes_free(farjump_bytes_t **bytes);

/**
 * Returns the content, without alignment, valid until the object is filled again or freed. A zero byte that
 * does not count follows the content, so that it can be used as a text. An empty text for NULL.
 */
const void *farjump_bytes_data(const farjump_bytes_t *bytes);

/**
 * Returns the number of bytes of the content. 0 for NULL.
 */
size_t farjump_bytes_size(const farjump_bytes_t *bytes);

/**
 * Returns the content as a text, as farjump_bytes_data() returns it.
 */
const char *farjump_bytes_text(const farjump_bytes_t *bytes);

/**
 * Opens the ifunc library at `path`, as `farjump build` makes it. A path without a slash is a file of the
 * current directory. The file is read, and none of its code runs: payloads are the arguments as they are
 * (FARJUMP_COPY_ARGS). A library with payload routines of its own has to be loaded, by
 * farjump_library_load(). If it was only opened, calls of its function fail with FARJUMP_ERROR_LIBRARY.
 * farjump_library_close() ends it; links and targets that use it keep the parts that they need.
 *
 * FARJUMP_ERROR_LIBRARY for a file that does not exist, cannot be read, or is no such library.
 */
farjump_status_t farjump_library_open(const char *path, farjump_library_t **library);

/**
 * Loads the ifunc library at `path` into this process, as dlopen() does: its constructors run now, and its
 * payload routines with each call, so load only libraries you trust. Otherwise it does the same as
 * farjump_library_open().
 *
 * FARJUMP_ERROR_LIBRARY for a file that does not exist, cannot be loaded, or is no such library.
 */
farjump_status_t farjump_library_load(const char *path, farjump_library_t **library);

/**
 * Opens a library in memory, `size` bytes at `bytes`, which are copied. They are the contents of a library's
 * file, or an image (farjump_library_image()), whose payloads are the arguments. They are checked as a file
 * is, and none of their code runs. `name` is the NAME of the function: an image needs one; of a library it
 * may be NULL. farjump_library_path() is `<memory>`. Otherwise it does the same as farjump_library_open().
 *
 * FARJUMP_ERROR_LIBRARY for bytes that are neither, are damaged, or state another name.
 */
farjump_status_t farjump_library_open_bytes(const void *bytes,
                                            size_t size,
                                            const char *name,
                                            farjump_library_t **library);

/**
 * Loads a library in memory into this process, from a file in memory that nothing can change. Its
 * constructors run now, and its payload routines with each call, so load only libraries you trust. Otherwise
 * it does the same as farjump_library_open_bytes().
 *
 * FARJUMP_ERROR_LIBRARY for bytes that cannot be loaded, or are no such library.
 */
farjump_status_t farjump_library_load_bytes(const void *bytes,
                                            size_t size,
                                            const char *name,
                                            farjump_library_t **library);

/**
 * Closes it, and sets the variable to NULL. Does nothing if it is NULL already. No other thread may be using
 * it.
 */
farjump_status_t farjump_library_close(farjump_library_t **library);

/**
 * Returns the NAME of the ifunc: that of its routines, independent of the file's name. The text belongs to
 * the library. NULL if `library` is.
 */
const char *farjump_library_name(const farjump_library_t *library);

/**
 * Returns the path that was opened, with `./` before a bare file name. The text belongs to the library. NULL
 * if `library` is.
 */
const char *farjump_library_path(const farjump_library_t *library);

/**
 * Writes the id of the library's code for targets of this machine's kind to `id`.
 *
 * FARJUMP_ERROR_LIBRARY if the library has none for them.
 */
farjump_status_t farjump_library_code_id(const farjump_library_t *library, farjump_code_id_t *id);

/**
 * Writes the number of bytes of code that travel to targets of this machine's kind to `size`.
 *
 * FARJUMP_ERROR_LIBRARY if the library has none for them.
 */
farjump_status_t farjump_library_image_size(const farjump_library_t *library, size_t *size);

/**
 * Gives the code that travels to targets of this machine's kind: `image` becomes its address, and `size` its
 * length in bytes. It is for farjump_target_call_image(), and for programs that store images. The image
 * belongs to the library, and is valid until that is closed.
 *
 * FARJUMP_ERROR_LIBRARY if the library has none for them; `image` is then NULL.
 */
farjump_status_t farjump_library_image(const farjump_library_t *library, const void **image, size_t *size);

/**
 * Writes the 32 hexadecimal digits of a code id, and a zero byte after them, to `digits`: 33 bytes.
 */
farjump_status_t farjump_code_id_print(const farjump_code_id_t *id, char *digits);

/**
 * Reads a code id from its 32 hexadecimal digits.
 *
 * FARJUMP_ERROR_ARGUMENT if `digits` is anything else; `id` is then unchanged.
 */
farjump_status_t farjump_code_id_parse(const char *digits, farjump_code_id_t *id);

/**
 * Connects to the target at `address` (`unix:PATH`, `unix:@NAME`, `tcp:HOST:PORT`). `config` may be NULL
 * for the defaults. farjump_link_close() ends it.
 *
 * FARJUMP_ERROR_CONNECT when no process listens there, the target rejects the link, or the two have no
 * transport in common. Also for a key file, which is read at a `tcp:` address alone, that holds no key or
 * that other users may read or write. FARJUMP_ERROR_ARGUMENT for options that contradict or lack each other,
 * or for which this libfarjump was not built.
 */
farjump_status_t farjump_link_connect(const char *address,
                                      const farjump_link_config_t *config,
                                      farjump_link_t **link);

/**
 * Closes it, and sets the variable to NULL. Does nothing if it is NULL already. Pending calls are cancelled;
 * frames that were sent still run.
 *
 * FARJUMP_ERROR_BUSY from a callback of the link: it then stays open.
 */
farjump_status_t farjump_link_close(farjump_link_t **link);

/**
 * Injects the function of `library`: runs its payload routines on the `args_size` bytes at `args` here,
 * sends the frame, and returns without waiting for it to run. The code itself travels the first time only.
 * `args` is read during the call only. `pending` receives the call's number: farjump_pending_wait(),
 * farjump_pending_poll() and farjump_pending_cancel() take it.
 *
 * Without credit it waits, up to the option `send-timeout`; farjump_link_try_inject() does not. For a frame
 * larger than the mailbox it also waits until the target has made a large mailbox.
 *
 * On failure nothing was sent, and `pending` is 0, which is no call's number.
 */
farjump_status_t farjump_link_inject(farjump_link_t *link,
                                     const farjump_library_t *library,
                                     const void *args,
                                     size_t args_size,
                                     farjump_pending_t *pending);

/**
 * Injects as farjump_link_inject() does, but returns FARJUMP_ERROR_FULL instead of waiting for credit.
 */
farjump_status_t farjump_link_try_inject(farjump_link_t *link,
                                         const farjump_library_t *library,
                                         const void *args,
                                         size_t args_size,
                                         farjump_pending_t *pending);

/**
 * Injects without requesting a reply: the cheapest kind of call. The next farjump_link_flush() shows whether
 * it ran. Refusals go to the callback of farjump_link_config_on_refused(). Otherwise it does the same as
 * farjump_link_inject().
 */
farjump_status_t farjump_link_send(farjump_link_t *link,
                                   const farjump_library_t *library,
                                   const void *args,
                                   size_t args_size);

/**
 * Sends as farjump_link_send() does, but returns FARJUMP_ERROR_FULL instead of waiting for credit.
 */
farjump_status_t farjump_link_try_send(farjump_link_t *link,
                                       const farjump_library_t *library,
                                       const void *args,
                                       size_t args_size);

/**
 * Sends as farjump_link_send() does, and in the same order, but the call may wait for others to share its
 * frame. Many small calls then cost little more than a few large ones. Calls share a frame if they are of
 * the same function, cached, and of one length. A frame in a mailbox takes up to 1 KiB of calls, each of up
 * to 256 bytes. A frame that is delivered as a message takes up to 8 KiB of calls, each of up to 4 KiB. No
 * frame takes more than 128. A frame is sent when it is full or the next call does not fit it, before
 * anything else is sent on the link, and by farjump_batch_finish().
 *
 * Calls before one that fails are not lost: the next attempt sends those that wait.
 */
farjump_status_t farjump_batch_send(farjump_link_t *link,
                                    const farjump_library_t *library,
                                    const void *args,
                                    size_t args_size);

/**
 * Sends the waiting calls of farjump_batch_send().
 *
 * FARJUMP_ERROR_TIMEOUT when the target returns no credit within the option `send-timeout`: the link then
 * sends the calls before its next frame.
 */
farjump_status_t farjump_batch_finish(farjump_link_t *link);

/**
 * Injects, and waits for the reply, which becomes the content of `reply`; NULL for a reply that is not
 * needed. Otherwise it does the same as farjump_link_inject() and farjump_pending_wait().
 */
farjump_status_t farjump_link_call(farjump_link_t *link,
                                   const farjump_library_t *library,
                                   const void *args,
                                   size_t args_size,
                                   uint64_t timeout_ns,
                                   farjump_bytes_t *reply);

/**
 * Sets the mode of later calls: one of FARJUMP_MODE_CACHED and its kin.
 */
farjump_status_t farjump_link_set_mode(farjump_link_t *link, int mode);

/**
 * Gives the state of the image that is compiled for the target's CPU in place of the one that `library`
 * carries (the option `compile-for-peer`). Takes results that have come, without waiting.
 * Calls of the library send the image.
 *
 * FARJUMP_OK once calls run it: `id` is then its code id. FARJUMP_NOT_YET until then. FARJUMP_ERROR_LIBRARY
 * if calls keep the carried image: farjump_last_error() returns the reason. FARJUMP_ERROR_ARGUMENT if
 * nothing is compiled: the link was not made for it, or has not called the library in mode cached.
 */
farjump_status_t farjump_link_compiled_image(farjump_link_t *link,
                                             const farjump_library_t *library,
                                             farjump_code_id_t *id);

/**
 * Waits until everything sent before has run, `timeout_ns` nanoseconds at most.
 *
 * Fails with the error of the first one-way call that the target has refused since the last flush, with
 * FARJUMP_ERROR_TIMEOUT, or with FARJUMP_ERROR_PEER_GONE. After the last some calls may not have run.
 */
farjump_status_t farjump_link_flush(farjump_link_t *link, uint64_t timeout_ns);

/**
 * Polls once for outcomes and control messages, without waiting: for programs with a loop of their own.
 *
 * FARJUMP_ERROR_PEER_GONE when the target is gone.
 */
farjump_status_t farjump_link_progress(farjump_link_t *link);

/**
 * Returns whether the target may be waiting for the processor that this thread runs on. Polling would keep
 * it from replying: yield (sched_yield()). A loop that polls for outcomes calls this about every 64 polls
 * without result. Functions that wait do it themselves.
 *
 * Where the target's memory is mapped (`shm`, and `ucx-put` on one machine), the two exchange the numbers of
 * their processors. A target in farjump_target_run() does so, and one that calls
 * farjump_target_may_share_processor(). Over other transports the result is true for every target on this
 * machine. False if `link` cannot be used.
 */
bool farjump_link_may_share_processor(farjump_link_t *link);

/**
 * Returns the descriptor that becomes readable on an event while the link is armed: a reply, a refusal, the
 * target's end. The first call creates it. It stays the same when the link is made anew, and ends with the
 * link. It belongs to the library: watch it, and neither read nor close it. -1 if `link` cannot be used, or
 * the system has no descriptor left.
 */
int farjump_link_fd(farjump_link_t *link);

/**
 * Prepares to sleep in an event loop of the caller's until farjump_link_fd() becomes readable. `longest_ns`
 * becomes the longest time to sleep, in nanoseconds. It becomes 0 if an event has come since the last time:
 * an outcome for farjump_pending_poll(), or credit after FARJUMP_ERROR_FULL. It polls everything itself:
 * farjump_link_progress() need not be called. farjump_link_disarm() follows in any case.
 *
 * FARJUMP_ERROR_PEER_GONE when the target is gone. Outcomes that came before can still be taken.
 */
farjump_status_t farjump_link_arm(farjump_link_t *link, uint64_t *longest_ns);

/**
 * Ends the sleep: the target need not wake this process any more. Does nothing on a link that is not armed.
 */
farjump_status_t farjump_link_disarm(farjump_link_t *link);

/**
 * Connects to the same address again, after the target ended or restarted. Pending calls fail with
 * FARJUMP_ERROR_PEER_GONE. Code is offered by its id: a target that no longer has it requests it. Earlier
 * results of farjump_link_peer() and farjump_link_transport() are no longer valid.
 *
 * Fails as farjump_link_connect(); the link is then unchanged.
 */
farjump_status_t farjump_link_reconnect(farjump_link_t *link);

/**
 * Writes the time that the target took to place the code of `library`, as it reported, to `link_ns`, in
 * nanoseconds.
 *
 * FARJUMP_NOT_YET if the target did not place it for this link (it had the code already), or no report came
 * within `timeout_ns` nanoseconds.
 */
farjump_status_t farjump_link_link_time(farjump_link_t *link,
                                        const farjump_library_t *library,
                                        uint64_t timeout_ns,
                                        uint64_t *link_ns);

/**
 * Gives the value of the option `name` that the link was made with, as farjump_link_config_get() does. The
 * value of `mode` is the mode of later calls. The text belongs to the link, and is valid until the next call
 * of this function for it.
 */
farjump_status_t farjump_link_option(farjump_link_t *link, const char *name, const char **value);

/**
 * Reads the statistics of this link. `size` is `sizeof *stats`: fields beyond it are not written, and fields
 * that the library does not know become 0.
 */
farjump_status_t farjump_link_stats(farjump_link_t *link, farjump_link_stats_t *stats, size_t size);

/**
 * Returns the name of the transport in use. The text belongs to the library, and is valid until the link is
 * made anew or closed. NULL if `link` is.
 */
const char *farjump_link_transport(const farjump_link_t *link);

/**
 * Returns the target's process. The structure belongs to the library, and is valid until the link is made
 * anew or closed. NULL if `link` is.
 */
const farjump_peer_t *farjump_link_peer(const farjump_link_t *link);

/**
 * Writes the path of the link's frames to `path`, in words for people: the transport, the arrival rule, the
 * medium, and the reasons against other transports. May take long.
 */
farjump_status_t farjump_link_path(farjump_link_t *link, farjump_bytes_t *path);

/**
 * Returns the target's epoch: another one after a restart. 0 if `link` cannot be used.
 */
uint64_t farjump_link_epoch(farjump_link_t *link);

/**
 * Returns the largest frame that the link's own mailbox takes, in bytes, with header and code. For larger
 * ones the target makes a large mailbox on demand. 0 if `link` cannot be used.
 */
size_t farjump_link_max_frame(farjump_link_t *link);

/**
 * Returns the rights of this process at the target, as the target announced them: some of
 * FARJUMP_RIGHT_OBSERVE and its kin, or-ed together. 0 if `link` cannot be used.
 */
int farjump_link_rights(farjump_link_t *link);

/**
 * Makes a configuration, all of its options the defaults. farjump_link_config_free() ends it.
 */
farjump_status_t farjump_link_config_new(farjump_link_config_t **config);

/**
 * Frees it, and sets the variable to NULL. Does nothing if it is NULL already.
 */
farjump_status_t farjump_link_config_free(farjump_link_config_t **config);

/**
 * Sets the option `name` to `value`. docs/reference/options.md lists the options of links. The top of this
 * header says how values are written.
 *
 * FARJUMP_ERROR_ARGUMENT if no option has the name, or it cannot have the value. Nothing has changed then.
 */
farjump_status_t farjump_link_config_set(farjump_link_config_t *config, const char *name, const char *value);

/**
 * Gives the value of the option `name`, as farjump_link_config_set() takes it: NULL if it has none, so that
 * its default depends on other options or the machine. The text belongs to the configuration, and is valid
 * until the next call of this function for it.
 *
 * FARJUMP_ERROR_ARGUMENT if no option has the name.
 */
farjump_status_t farjump_link_config_get(farjump_link_config_t *config, const char *name, const char **value);

/**
 * Sets the key that the target has too, for a target at `tcp:HOST:PORT`: 32 bytes, as hard to guess as
 * random ones. The control connection is then encrypted with it; of the transports, only `tcp` encrypts
 * frames. No effect on Unix sockets. The last one of this function and the option `key-file` counts. The
 * bytes are copied, and wiped when the configuration is freed.
 */
farjump_status_t farjump_link_config_set_key(farjump_link_config_t *config, const uint8_t *key);

/**
 * Has `callback` run, with `user`, for each one-way call that the target refuses. It runs inside calls on
 * the link, on their thread, and cannot use the link: such a call returns FARJUMP_ERROR_BUSY. NULL for none.
 */
farjump_status_t farjump_link_config_on_refused(farjump_link_config_t *config,
                                                farjump_link_refused_fn callback,
                                                void *user);

/**
 * Has `callback` run, with `user`, once when the target is gone. Otherwise it does the same as
 * farjump_link_config_on_refused().
 */
farjump_status_t farjump_link_config_on_gone(farjump_link_config_t *config,
                                             farjump_link_gone_fn callback,
                                             void *user);

/**
 * Has `callback` run, with `user`, each time the target requests code again. Otherwise it does the same as
 * farjump_link_config_on_refused().
 */
farjump_status_t farjump_link_config_on_code_missing(farjump_link_config_t *config,
                                                     farjump_link_code_missing_fn callback,
                                                     void *user);

/**
 * Injects as farjump_link_inject() does, but wakes no sleeping target: farjump_group_finish() does that once
 * for all calls before. Without a group each call would wake the target, which would run that call and sleep
 * again. A target that is awake runs the calls as they come. Over transports that wake the target with each
 * frame, a group changes nothing. Finish after some hundreds of calls, so that the target works while you
 * send more.
 *
 * The link also wakes the target before a wait for credit, after an error of this function, and before a
 * wait or poll for an outcome, so every call runs.
 */
farjump_status_t farjump_group_inject(farjump_link_t *link,
                                      const farjump_library_t *library,
                                      const void *args,
                                      size_t args_size,
                                      farjump_pending_t *pending);

/**
 * Injects as farjump_group_inject() does, but returns FARJUMP_ERROR_FULL instead of waiting for credit. It
 * then wakes the target.
 */
farjump_status_t farjump_group_try_inject(farjump_link_t *link,
                                          const farjump_library_t *library,
                                          const void *args,
                                          size_t args_size,
                                          farjump_pending_t *pending);

/**
 * Wakes the target, if it sleeps, for the calls of farjump_group_inject().
 */
farjump_status_t farjump_group_finish(farjump_link_t *link);

/**
 * Waits for the outcome, `timeout_ns` nanoseconds at most. The function's reply, the bytes of all its calls
 * of farjump_reply() in order, becomes the content of `reply`; NULL for a reply that is not needed. The
 * number is void afterwards.
 *
 * FARJUMP_ERROR_REFUSED when the target refused the call; FARJUMP_ERROR_PANICKED when the function panicked.
 * FARJUMP_ERROR_INCOMPLETE when it led to calls that were lost; `reply` then has the replies of the others.
 * FARJUMP_ERROR_TIMEOUT when the time limit passed; the call is then cancelled. FARJUMP_ERROR_PEER_GONE.
 * FARJUMP_ERROR_NO_CALL for a number that is void.
 */
farjump_status_t farjump_pending_wait(farjump_link_t *link,
                                      farjump_pending_t pending,
                                      uint64_t timeout_ns,
                                      farjump_bytes_t *reply);

/**
 * Polls once, without waiting: FARJUMP_NOT_YET if the outcome has not come; the number then stays valid, and
 * `reply` is unchanged. Otherwise it does the same as farjump_pending_wait().
 */
farjump_status_t farjump_pending_poll(farjump_link_t *link,
                                      farjump_pending_t pending,
                                      farjump_bytes_t *reply);

/**
 * Cancels the call: it still runs, and its outcome is dropped. The number is void afterwards.
 *
 * FARJUMP_ERROR_NO_CALL for a number that is void already.
 */
farjump_status_t farjump_pending_cancel(farjump_link_t *link, farjump_pending_t pending);

/**
 * Makes a target that listens at `address`: `unix:PATH`, `unix:@NAME`, or `tcp:HOST:PORT`. `config` may be
 * NULL for the defaults: then injected code can call only `memcpy` and its kin, and farjump_reply() and its
 * kin. farjump_target_close() ends it.
 *
 * FARJUMP_ERROR_CONNECT when the address is taken or malformed, or no transport is usable. Also for a key
 * file that is needed and holds no key, or that other users may read or write. FARJUMP_ERROR_ARGUMENT for
 * options that contradict or lack each other, that let nothing in, or for which this libfarjump was not
 * built. FARJUMP_ERROR_LIBRARY for a library that cannot be opened, or has no symbols for `debug-symbols`.
 * FARJUMP_ERROR_SYSTEM where memory cannot be made executable, or the compiler of bitcode does not start.
 */
farjump_status_t farjump_target_listen(const char *address,
                                       const farjump_target_config_t *config,
                                       farjump_target_t **target);

/**
 * Closes it, and sets the variable to NULL. Does nothing if it is NULL already. Its links end; its stored
 * code is lost with its statics.
 *
 * FARJUMP_ERROR_BUSY from inside a call on the target: it then stays open.
 */
farjump_status_t farjump_target_close(farjump_target_t **target);

/**
 * Runs arrived frames, at most a batch from each source, and writes their number to `ran`, unless that is
 * NULL. Never waits. Now and then it also looks for new sources and for those that are gone. An error of a
 * source ends its own link only.
 */
farjump_status_t farjump_target_poll(farjump_target_t *target, size_t *ran);

/**
 * Serves until farjump_stopper_stop(): polls, spins for a while when idle, then sleeps. All links have ended
 * when it returns.
 */
farjump_status_t farjump_target_run(farjump_target_t *target);

/**
 * Sleeps until a frame, a connection or a stop comes, `timeout_ns` nanoseconds at most. Returns
 * FARJUMP_NOT_YET if nothing came. The next farjump_target_poll() handles the event.
 */
farjump_status_t farjump_target_wait(farjump_target_t *target, uint64_t timeout_ns);

/**
 * Prepares to sleep in an event loop of the caller's until farjump_target_fd() becomes readable.
 * `longest_ns` becomes the longest time to sleep, in nanoseconds; 0 if there is work already.
 * farjump_target_disarm() follows in any case, and then farjump_target_poll().
 */
farjump_status_t farjump_target_arm(farjump_target_t *target, uint64_t *longest_ns);

/**
 * Ends the sleep: sources that call need not wake the target any more, and the next farjump_target_poll()
 * reads the event that woke it from the system. Of more than four sources over `shm`, those that have
 * brought nothing stay armed: farjump_target_fd() may become readable by their first frame.
 */
farjump_status_t farjump_target_disarm(farjump_target_t *target);

/**
 * Returns whether a source that brought frames lately may be waiting for the processor that this thread runs
 * on. Polling would keep it from running: yield (sched_yield()). A loop around farjump_target_poll() calls
 * this about every 64 polls without result. farjump_target_run() does it itself.
 *
 * Where memory is mapped (`shm`, and `ucx-put` on one machine) source and target exchange the numbers of
 * their processors by this. Over other transports the result is true for every source on this machine. False
 * if `target` cannot be used.
 */
bool farjump_target_may_share_processor(farjump_target_t *target);

/**
 * Returns the descriptor that becomes readable when there is work while the target is armed. It belongs to
 * the library: watch it, and neither read nor close it. -1 if `target` cannot be used.
 */
int farjump_target_fd(farjump_target_t *target);

/**
 * Returns the address that the target listens at: as given, and with the port that the system chose for port
 * 0. The text belongs to the library, and is valid until the target is closed. NULL if `target` is.
 */
const char *farjump_target_address(const farjump_target_t *target);

/**
 * Gives the value of the option `name` that the target was made with, as farjump_target_config_get() does.
 * The text belongs to the target, and is valid until the next call of this function for it.
 */
farjump_status_t farjump_target_option(farjump_target_t *target, const char *name, const char **value);

/**
 * Returns this target's epoch: another one each time a target is made. 0 if `target` cannot be used.
 */
uint64_t farjump_target_epoch(farjump_target_t *target);

/**
 * Reads the statistics of the target. `size` is `sizeof *stats`: fields beyond it are not written, and
 * fields that the library does not know become 0.
 */
farjump_status_t farjump_target_stats(farjump_target_t *target, farjump_target_stats_t *stats, size_t size);

/**
 * Writes the number of calls that the target refused for `cause`, one of FARJUMP_CAUSE_BAD_FRAME and its
 * kin, to `count`.
 */
farjump_status_t farjump_target_refused(farjump_target_t *target, int cause, uint64_t *count);

/**
 * Runs `callback`, with `user`, for each image in the target's store. The callback cannot use the target.
 */
farjump_status_t farjump_target_images(farjump_target_t *target, farjump_image_fn callback, void *user);

/**
 * Adds the function of `library` to the target, in place of one of the same name; see
 * farjump_target_config_add_local().
 *
 * FARJUMP_ERROR_REFUSED when it cannot be linked with the exports; the old function stays then.
 */
farjump_status_t farjump_target_set_local(farjump_target_t *target, const farjump_library_t *library);

/**
 * Removes the function of this name from the target's own. FARJUMP_NOT_YET if there was none.
 */
farjump_status_t farjump_target_remove_local(farjump_target_t *target, const char *name);

/**
 * Names the target at `address` as destination `name` from now on, as the option `destination` does before.
 * Calls under way to another address of that name fail.
 *
 * FARJUMP_ERROR_CONNECT when the address is malformed.
 */
farjump_status_t farjump_target_set_destination(farjump_target_t *target,
                                                const char *name,
                                                const char *address);

/**
 * Drops code from the store, with its statics. FARJUMP_NOT_YET if it is not there. The target requests the
 * code from a source that calls it again.
 */
farjump_status_t farjump_target_drop_code(farjump_target_t *target, const farjump_code_id_t *id);

/**
 * Ends all links, and gives sources the reason. The target continues, and takes new ones.
 */
farjump_status_t farjump_target_end_links(farjump_target_t *target, const char *why);

/**
 * Makes one for the target at `address` (`unix:PATH`, `unix:@NAME`, `tcp:HOST:PORT`). Nothing is sent yet.
 * farjump_admin_free() ends it.
 *
 * FARJUMP_ERROR_CONNECT when the address is malformed.
 */
farjump_status_t farjump_admin_new(const char *address, farjump_admin_t **admin);

/**
 * Frees it, and sets the variable to NULL. Does nothing if it is NULL already.
 */
farjump_status_t farjump_admin_free(farjump_admin_t **admin);

/**
 * Sets the limit for each request, in nanoseconds. A target responds when the function that it is running
 * has returned. Default: 10 seconds. No other thread may be sending a request.
 */
farjump_status_t farjump_admin_set_timeout(farjump_admin_t *admin, uint64_t nanoseconds);

/**
 * Sets the key that the target has too, for a target at `tcp:HOST:PORT`, from a file as `farjump key` makes
 * it. The file is read now. No other thread may be sending a request.
 *
 * FARJUMP_ERROR_CONNECT for a file that holds no key, or that other users may read or write.
 */
farjump_status_t farjump_admin_set_key_file(farjump_admin_t *admin, const char *path);

/**
 * Runs `callback`, with `user`, for each image in the target's store, most recently used first.
 */
farjump_status_t farjump_admin_images(const farjump_admin_t *admin, farjump_image_fn callback, void *user);

/**
 * Runs `callback`, with `user`, for each object in the target's store of objects, the most recently used
 * first: 65,536 at most.
 *
 * FARJUMP_ERROR_CONNECT also when the target has no such store.
 */
farjump_status_t farjump_admin_objects(const farjump_admin_t *admin, farjump_object_fn callback, void *user);

/**
 * Drops code from the target's store, with its statics. `dropped`, unless it is NULL, becomes the number of
 * images dropped. Calls under way are not lost: the target requests the code from a source that calls it
 * again. The target keeps its own functions. Absence of such code is no error.
 */
farjump_status_t farjump_admin_drop(const farjump_admin_t *admin,
                                    const farjump_code_id_t *id,
                                    uint64_t *dropped);

/**
 * Drops all code from the target's store, as farjump_admin_drop() does for one.
 */
farjump_status_t farjump_admin_drop_all(const farjump_admin_t *admin, uint64_t *dropped);

/**
 * Reads the target's statistics; see farjump_target_stats().
 */
farjump_status_t farjump_admin_stats(const farjump_admin_t *admin,
                                     farjump_target_stats_t *stats,
                                     size_t size);

/**
 * Runs the function of `library` here, on this thread, without a link: for programs that take calls in ways
 * of their own, as a command of a server. Its payload routines make the payload of the `args_size` bytes at
 * `args`. Its reply becomes the content of `reply`, empty if it replied nothing; NULL for a reply that is
 * not needed.
 *
 * The target treats the code like code that a source brings: the same allow-list and limits, and the same
 * store, where it stays for the next call. The function gets the target's arguments. The store drops other
 * code if it needs the space. Messages that the function sends go with the next calls of
 * farjump_target_poll(), and their outcomes are dropped: poll, also if the target is armed.
 *
 * FARJUMP_ERROR_REFUSED if the code may not come in or cannot be linked, or for arguments or a reply over
 * the limit. FARJUMP_ERROR_PANICKED; FARJUMP_ERROR_LIBRARY if the library has no image for this CPU or a
 * payload routine fails. FARJUMP_ERROR_BUSY from inside an injected function or a callback of the target.
 */
farjump_status_t farjump_target_call(farjump_target_t *target,
                                     const farjump_library_t *library,
                                     const void *args,
                                     size_t args_size,
                                     farjump_bytes_t *reply);

/**
 * Does the same as farjump_target_call(), for the `image_size` bytes of an image at `image`, as
 * farjump_library_image() returns them. The function gets a copy of the `payload_size` bytes at `payload` as
 * its payload. Image and payload are read during the call only. `name` is the function's, for messages and
 * for `farjump stats`.
 *
 * Each call hashes the image; farjump_target_call_stored() does not.
 */
farjump_status_t farjump_target_call_image(farjump_target_t *target,
                                           const char *name,
                                           const void *image,
                                           size_t image_size,
                                           const void *payload,
                                           size_t payload_size,
                                           farjump_bytes_t *reply);

/**
 * Does the same as farjump_target_call_image(), for code in the target's store that a source or an earlier
 * call brought.
 *
 * FARJUMP_ERROR_REFUSED, with farjump_last_cause() FARJUMP_CAUSE_CODE_MISSING, if it is not there.
 */
farjump_status_t farjump_target_call_stored(farjump_target_t *target,
                                            const farjump_code_id_t *id,
                                            const void *payload,
                                            size_t payload_size,
                                            farjump_bytes_t *reply);

/**
 * Makes a configuration, all of its options the defaults. farjump_target_config_free() ends it.
 */
farjump_status_t farjump_target_config_new(farjump_target_config_t **config);

/**
 * Frees it, and sets the variable to NULL. Does nothing if it is NULL already.
 */
farjump_status_t farjump_target_config_free(farjump_target_config_t **config);

/**
 * Sets the option `name` to `value`. docs/reference/options.md lists the options of targets. The top of this
 * header says how values are written. Shared libraries that options name run their constructors when they
 * are loaded: those of `export-library` when a target is made, those of `wanted-library` when code wants
 * them.
 *
 * FARJUMP_ERROR_ARGUMENT if no option has the name, or it cannot have the value. Nothing has changed then.
 */
farjump_status_t farjump_target_config_set(farjump_target_config_t *config,
                                           const char *name,
                                           const char *value);

/**
 * Gives the value of the option `name`, as farjump_target_config_set() takes it; otherwise it does the
 * same as farjump_link_config_get().
 */
farjump_status_t farjump_target_config_get(farjump_target_config_t *config,
                                           const char *name,
                                           const char **value);

/**
 * Sets the third argument of every injected function. It stays the caller's. Until the target is closed, it
 * must be valid for every use by the functions, on the thread that polls the target. Default: NULL.
 * farjump_target_config_set_data() passes a file or bytes instead; the last of the two calls counts.
 */
farjump_status_t farjump_target_config_set_args(farjump_target_config_t *config, void *args);

/**
 * Offers a function to injected code, under `name`; code can be linked against exports only. The code must
 * declare it with the same types: nothing checks that. The last of two exports of one name counts. Exports
 * win over libraries and the process's symbols.
 */
farjump_status_t farjump_target_config_export_function(farjump_target_config_t *config,
                                                       const char *name,
                                                       farjump_function_t function);

/**
 * Offers the address of data to injected code, under `name`: `extern T name;` in C. It must be valid until
 * the target is closed. Otherwise it does the same as farjump_target_config_export_function().
 */
farjump_status_t farjump_target_config_export_data(farjump_target_config_t *config,
                                                   const char *name,
                                                   const void *data);

/**
 * Adds the function of `library` to the target, for sources that choose FARJUMP_MODE_LOCAL: only its name
 * travels then. Making a target links it with the exports of that target, like code that travels. The option
 * `local` does the same for files.
 */
farjump_status_t farjump_target_config_add_local(farjump_target_config_t *config,
                                                 const farjump_library_t *library);

/**
 * Sets the key that sources have too, for a target at `tcp:HOST:PORT`, and that destinations at such
 * addresses have: 32 bytes, as hard to guess as random ones. The target admits processes that have the key.
 * Without a key a target listens on this machine's loopback only. No effect on Unix sockets. The last one of
 * this function and the option `key-file` counts. The bytes are copied, and wiped when the configuration is
 * freed.
 */
farjump_status_t farjump_target_config_set_key(farjump_target_config_t *config, const uint8_t *key);

/**
 * Has `callback` run, with `user`, for each call that is refused. It runs inside calls on the target, on
 * their thread, and cannot use the target: such a call returns FARJUMP_ERROR_BUSY. NULL for none.
 */
farjump_status_t farjump_target_config_on_refused(farjump_target_config_t *config,
                                                  farjump_target_refused_fn callback,
                                                  void *user);

/**
 * Has `callback` run, with `user`, each time the target requests code from a source. Otherwise it does the
 * same as farjump_target_config_on_refused().
 */
farjump_status_t farjump_target_config_on_code_missing(farjump_target_config_t *config,
                                                       farjump_target_code_missing_fn callback,
                                                       void *user);

/**
 * Has `callback` run, with `user`, for each source that has connected. Otherwise it does the same as
 * farjump_target_config_on_refused().
 */
farjump_status_t farjump_target_config_on_joined(farjump_target_config_t *config,
                                                 farjump_target_joined_fn callback,
                                                 void *user);

/**
 * Has `callback` run, with `user`, for each source that is gone. Otherwise it does the same as
 * farjump_target_config_on_refused().
 */
farjump_status_t farjump_target_config_on_gone(farjump_target_config_t *config,
                                               farjump_target_gone_fn callback,
                                               void *user);

/**
 * Maps the file at `path`, read-only. farjump_data_free() ends it.
 *
 * A process that writes to the file may change the data that functions see. A process that shortens it ends
 * the target when the missing bytes are read; the option `crash-report` then names the file.
 * To change the data, write a new file, rename it to this path, and make a new target.
 *
 * FARJUMP_ERROR_SYSTEM for a file that does not exist, cannot be read, or is not regular.
 */
farjump_status_t farjump_data_open(const char *path, farjump_data_t **data);

/**
 * Copies `size` bytes that lie in memory. The path that functions see is empty. farjump_data_free() ends it.
 *
 * To lend memory without a copy, fill in a `struct farjump_data` of farjump_ifunc.h, and pass its address to
 * farjump_target_config_set_args().
 */
farjump_status_t farjump_data_from_bytes(const void *bytes, size_t size, farjump_data_t **data);

/**
 * Frees it, and sets the variable to NULL. Does nothing if it is NULL already. Configurations and targets
 * that use the data keep it.
 */
farjump_status_t farjump_data_free(farjump_data_t **data);

/**
 * Makes `data` the third argument of every injected function, a `struct farjump_data *`, in place of
 * farjump_target_config_set_args().
 */
farjump_status_t farjump_target_config_set_data(farjump_target_config_t *config, const farjump_data_t *data);

/**
 * Offers a function as `name` from now on. It takes precedence over all earlier exports of that name
 * (interposing). Code linked before keeps its addresses, also for sources that connect later;
 * farjump_target_drop_code() has it linked again. The function must be valid until the target is closed.
 * Names that begin with `farjump_` are reserved for services.
 */
farjump_status_t farjump_target_export_function(farjump_target_t *target,
                                                const char *name,
                                                farjump_function_t function);

/**
 * Does the same as farjump_target_export_function(), for the address of data.
 */
farjump_status_t farjump_target_export_data(farjump_target_t *target, const char *name, const void *data);

/**
 * Does the same as farjump_target_export_function(), for every symbol that a shared library itself defines,
 * by path or soname. The library is loaded now, which runs its constructors, and stays until the process
 * ends.
 *
 * FARJUMP_ERROR_LIBRARY when it cannot be loaded; nothing has changed then.
 */
farjump_status_t farjump_target_export_library(farjump_target_t *target, const char *path);

/**
 * Has the target load the shared library at `path`, whose bytes travel. The target offers its symbols before
 * all earlier exports, as farjump_target_export_library() does. The libraries that it depends on must exist
 * at the target.
 *
 * FARJUMP_ERROR_CONNECT also when the target does not allow it (the option `allow-export`), or cannot load
 * it; FARJUMP_ERROR_LIBRARY when the file cannot be read.
 */
farjump_status_t farjump_admin_export_library(const farjump_admin_t *admin, const char *path);

/**
 * Makes a handle that stops the target. It may outlive the target, also a target that is handed to a thread.
 * farjump_stopper_free() ends it.
 */
farjump_status_t farjump_stopper_new(farjump_target_t *target, farjump_stopper_t **stopper);

/**
 * Stops the target after its current frames, and for good: a target that was stopped does not run again.
 * Safe in a signal handler, where farjump_last_error() is not.
 */
farjump_status_t farjump_stopper_stop(const farjump_stopper_t *stopper);

/**
 * Frees the handle, and sets the variable to NULL. Does nothing if it is NULL already. This does not stop
 * the target.
 */
farjump_status_t farjump_stopper_free(farjump_stopper_t **stopper);

/**
 * Hands the target to a thread of its own, which runs it until farjump_target_thread_stop(). The variable
 * `target` becomes NULL: the thread owns the target, and uses callbacks, exports and arguments there.
 *
 * FARJUMP_ERROR_SYSTEM when the thread cannot be made; the target is then closed.
 */
farjump_status_t farjump_target_spawn(farjump_target_t **target, farjump_target_thread_t **thread);

/**
 * Stops the target, waits for its thread, and sets the variable to NULL. Does nothing if it is NULL already;
 * there is no target then. `target` receives the target, with its statistics and without links. NULL for
 * `target` closes it. From the target's own thread the call fails with FARJUMP_ERROR_BUSY, and the thread
 * continues.
 *
 * Fails with the error that ended the target before it was stopped; it is then closed.
 */
farjump_status_t farjump_target_thread_stop(farjump_target_thread_t **thread, farjump_target_t **target);

/**
 * Removes the socket files of this process's targets, and ends the process at once with the exit status
 * `code`. It does not return.
 *
 * It waits for no function that runs, runs no destructor and no exit handler, and links end unannounced.
 * This is for a thread that waits for signals or a deadline, where closing the target could take too long.
 * Call farjump_stopper_stop() first, and this function if the target does not end in time. Other threads
 * continue meanwhile; none of them makes a further socket file. A signal handler must not call it, as it
 * takes a lock.
 */
void farjump_end_process(int code) FARJUMP_NORETURN;

/**
 * Runs `callback`, with `user`, for each transport that farjump knows, usable here or not, in a fixed order.
 * Looking at those of UCX and verbs loads their libraries. Any thread may call this.
 */
farjump_status_t farjump_transports(farjump_transport_fn callback, void *user);

/**
 * Returns the version of the running library: the sum of 10000 times the first number, 100 times the second,
 * and the third. FARJUMP_VERSION is the version of the header. Any thread may call this.
 */
int farjump_version(void);

/**
 * Returns the same version as a text: `0.1.0`. It is constant.
 */
const char *farjump_version_string(void);

/**
 * Reads a handle from its encoding, as farjump_handle_to_bytes() makes it. farjump_handle_free() ends it.
 *
 * FARJUMP_ERROR_ARGUMENT for bytes that are cut, damaged, or of a version that this library does not read.
 * farjump_last_error() says which. Only the owner knows whether the object exists.
 */
farjump_status_t farjump_handle_from_bytes(const void *bytes, size_t size, farjump_handle_t **handle);

/**
 * Writes the encoding of a handle to `bytes`, to be sent or stored: FARJUMP_MAX_HANDLE bytes at most. Later
 * versions of the library read it, too.
 */
farjump_status_t farjump_handle_to_bytes(const farjump_handle_t *handle, farjump_bytes_t *bytes);

/**
 * Frees it, and sets the variable to NULL. Does nothing if it is NULL already. The object stays.
 */
farjump_status_t farjump_handle_free(farjump_handle_t **handle);

/**
 * Returns whether two handles are the same in all parts. False if one of them is NULL.
 */
bool farjump_handle_equals(const farjump_handle_t *handle, const farjump_handle_t *other);

/**
 * Returns the length of the object in bytes, as it was when the handle was made: 0 for an object that was
 * only reserved then. 0 if `handle` is NULL.
 */
uint64_t farjump_handle_size(const farjump_handle_t *handle);

/**
 * Returns the number of the object, which its store never uses again. 0 if `handle` is NULL.
 */
uint64_t farjump_handle_number(const farjump_handle_t *handle);

/**
 * Returns the epoch of the store that has the object: another number each time a store is made. 0 if
 * `handle` is NULL.
 */
uint64_t farjump_handle_epoch(const farjump_handle_t *handle);

/**
 * Returns the name of the object's type, as its maker gave it; "" without one. The text belongs to the
 * handle. NULL if `handle` is.
 */
const char *farjump_handle_type_name(const farjump_handle_t *handle);

/**
 * Returns the owner's address with this index, for farjump_client_connect(). The text belongs to the handle.
 * NULL if there are fewer addresses: a handle of a store without a target has none.
 */
const char *farjump_handle_address(const farjump_handle_t *handle, size_t index);

/**
 * Returns the bytes, at a multiple of 64 if they are mapped. They may be read until the view is released,
 * and never written. NULL if `view` is.
 */
const void *farjump_view_data(const farjump_view_t *view);

/**
 * Returns the number of bytes. 0 if `view` is NULL.
 */
size_t farjump_view_size(const farjump_view_t *view);

/**
 * Returns whether these are the owner's bytes, and not a copy. False if `view` is NULL.
 */
bool farjump_view_is_mapped(const farjump_view_t *view);

/**
 * Ends it, and sets the variable to NULL. Does nothing if it is NULL already. The store or client that the
 * view came from may be closed before. The owner learns of the release with the client's next request, and
 * in any case when this process ends.
 */
farjump_status_t farjump_view_release(farjump_view_t **view);

/**
 * Makes a configuration, all of its options the defaults. farjump_store_config_free() ends it.
 */
farjump_status_t farjump_store_config_new(farjump_store_config_t **config);

/**
 * Frees it, and sets the variable to NULL. Does nothing if it is NULL already.
 */
farjump_status_t farjump_store_config_free(farjump_store_config_t **config);

/**
 * Sets the option `name` to `value`. docs/reference/options.md lists the options of stores. The top of
 * this header says how values are written.
 *
 * FARJUMP_ERROR_ARGUMENT if no option has the name, or it cannot have the value. Nothing has changed then.
 */
farjump_status_t farjump_store_config_set(farjump_store_config_t *config,
                                          const char *name,
                                          const char *value);

/**
 * Gives the value of the option `name`, as farjump_store_config_set() takes it; otherwise it does the
 * same as farjump_link_config_get().
 */
farjump_status_t farjump_store_config_get(farjump_store_config_t *config,
                                          const char *name,
                                          const char **value);

/**
 * Opens a store. `config` may be NULL for the defaults. farjump_store_close() ends it.
 *
 * FARJUMP_ERROR_SYSTEM when there is no memory for it, or no file can be made in the folder for spilled
 * objects. FARJUMP_ERROR_ARGUMENT for options that lack each other.
 */
farjump_status_t farjump_store_open(const farjump_store_config_t *config, farjump_store_t **store);

/**
 * Closes it, and sets the variable to NULL. Does nothing if it is NULL already. No other thread may be using
 * it. Targets and views that use the store keep it, and its objects go with the last of them.
 */
farjump_status_t farjump_store_close(farjump_store_t **store);

/**
 * Gives targets the store: other processes reach its objects there (farjump_client_connect()), and injected
 * functions too. Several targets may have the same store. Default: no store.
 */
farjump_status_t farjump_target_config_set_objects(farjump_target_config_t *config,
                                                   const farjump_store_t *store);

/**
 * Makes an object of a copy of `size` bytes. `type_name` is a name for its type, of at most 255 bytes; NULL
 * for none. farjump_handle_free() ends the handle, and not the object.
 *
 * FARJUMP_ERROR_STORE_FULL when there is no memory for it.
 */
farjump_status_t farjump_store_put(const farjump_store_t *store,
                                   const char *type_name,
                                   const void *bytes,
                                   size_t size,
                                   farjump_handle_t **handle);

/**
 * Makes an object of `size` bytes, which `write` writes where they stay: no copy is made. It runs once, with
 * `user`, inside this call, and may use the store. Otherwise it does the same as farjump_store_put().
 *
 * FARJUMP_ERROR_ARGUMENT when `write` fails.
 */
farjump_status_t farjump_store_put_with(const farjump_store_t *store,
                                        const char *type_name,
                                        size_t size,
                                        farjump_store_write_fn write,
                                        void *user,
                                        farjump_handle_t **handle);

/**
 * Makes an object of a copy of the file at `path`. Later changes of the file do not reach its readers.
 *
 * FARJUMP_ERROR_SYSTEM for a file that does not exist, cannot be read, or is not regular; otherwise as
 * farjump_store_put().
 */
farjump_status_t farjump_store_put_file(const farjump_store_t *store,
                                        const char *path,
                                        farjump_handle_t **handle);

/**
 * Gets the bytes of an object of this store, without a copy. farjump_view_release() ends the view.
 *
 * FARJUMP_ERROR_GONE, FARJUMP_ERROR_WRONG_KEY, FARJUMP_ERROR_UNSET; FARJUMP_ERROR_STORE_FULL when a spilled
 * object cannot be read back.
 */
farjump_status_t farjump_store_get(const farjump_store_t *store,
                                   const farjump_handle_t *handle,
                                   farjump_view_t **view);

/**
 * Evicts an object: it is gone for all readers that come later, and stays for those that have a view.
 * `was_there`, unless it is NULL, becomes true if the object was there, and false otherwise. Its absence is
 * no error.
 *
 * FARJUMP_ERROR_WRONG_KEY.
 */
farjump_status_t farjump_store_evict(const farjump_store_t *store,
                                     const farjump_handle_t *handle,
                                     bool *was_there);

/**
 * Sets `exists` to true if an object is there or reserved, and to false otherwise.
 *
 * FARJUMP_ERROR_WRONG_KEY.
 */
farjump_status_t farjump_store_exists(const farjump_store_t *store,
                                      const farjump_handle_t *handle,
                                      bool *exists);

/**
 * Makes a handle whose object gets its contents later, by farjump_store_set() or farjump_client_set().
 *
 * FARJUMP_ERROR_STORE_FULL when there is no memory for it.
 */
farjump_status_t farjump_store_reserve(const farjump_store_t *store,
                                       const char *type_name,
                                       farjump_handle_t **handle);

/**
 * Gives a reserved object contents, a copy of `size` bytes, in place of those that it has. Readers that wait
 * for them wake up (farjump_client_wait()).
 *
 * FARJUMP_ERROR_ARGUMENT for an object that was not reserved; FARJUMP_ERROR_GONE, FARJUMP_ERROR_WRONG_KEY,
 * FARJUMP_ERROR_STORE_FULL.
 */
farjump_status_t farjump_store_set(const farjump_store_t *store,
                                   const farjump_handle_t *handle,
                                   const void *bytes,
                                   size_t size);

/**
 * Leases an object: the store evicts it `nanoseconds` from now, in place of an earlier limit. Call this
 * again to renew the lease. FARJUMP_FOREVER removes the limit.
 *
 * FARJUMP_ERROR_GONE, also when the lease has ended before it was renewed; FARJUMP_ERROR_WRONG_KEY.
 */
farjump_status_t farjump_store_lease(const farjump_store_t *store,
                                     const farjump_handle_t *handle,
                                     uint64_t nanoseconds);

/**
 * Runs `callback`, with `user`, for each object of the store, the most recently used first. The callback may
 * use the store.
 */
farjump_status_t farjump_store_objects(const farjump_store_t *store, farjump_object_fn callback, void *user);

/**
 * Reads the statistics of the store. `size` is `sizeof *stats`: fields beyond it are not written, and fields
 * that the library does not know become 0.
 */
farjump_status_t farjump_store_stats(const farjump_store_t *store, farjump_store_stats_t *stats, size_t size);

/**
 * Makes a configuration, all of its options the defaults. farjump_client_config_free() ends it.
 */
farjump_status_t farjump_client_config_new(farjump_client_config_t **config);

/**
 * Frees it, and sets the variable to NULL. Does nothing if it is NULL already.
 */
farjump_status_t farjump_client_config_free(farjump_client_config_t **config);

/**
 * Sets the option `name` to `value`. docs/reference/options.md lists the options of clients. The top of
 * this header says how values are written.
 *
 * FARJUMP_ERROR_ARGUMENT if no option has the name, or it cannot have the value. Nothing has changed then.
 */
farjump_status_t farjump_client_config_set(farjump_client_config_t *config,
                                           const char *name,
                                           const char *value);

/**
 * Gives the value of the option `name`, as farjump_client_config_set() takes it; otherwise it does the
 * same as farjump_link_config_get().
 */
farjump_status_t farjump_client_config_get(farjump_client_config_t *config,
                                           const char *name,
                                           const char **value);

/**
 * Connects to the owner at `address` (`unix:PATH`, `unix:@NAME`, `tcp:HOST:PORT`). `config` may be NULL for
 * the defaults. farjump_client_close() ends it.
 *
 * FARJUMP_ERROR_CONNECT and FARJUMP_ERROR_ARGUMENT as farjump_link_connect(); FARJUMP_ERROR_REFUSED when the
 * target there has no store, or this process does not have the right to call.
 */
farjump_status_t farjump_client_connect(const char *address,
                                        const farjump_client_config_t *config,
                                        farjump_client_t **client);

/**
 * Connects to the owner of an object, at the first of the handle's addresses that can be reached; otherwise
 * as farjump_client_connect(). A program that uses many objects of one owner keeps the client.
 *
 * FARJUMP_ERROR_ARGUMENT for a handle without an address.
 */
farjump_status_t farjump_client_connect_to_owner(const farjump_handle_t *handle,
                                                 const farjump_client_config_t *config,
                                                 farjump_client_t **client);

/**
 * Closes it, and sets the variable to NULL. Does nothing if it is NULL already. No other thread may be using
 * it. Views that came by it stay.
 */
farjump_status_t farjump_client_close(farjump_client_t **client);

/**
 * Returns the address that the client is connected to. The text belongs to the client. NULL if `client` is.
 */
const char *farjump_client_address(const farjump_client_t *client);

/**
 * Returns the epoch of the owner's store: another number each time a store is made. 0 if `client` is NULL.
 */
uint64_t farjump_client_epoch(const farjump_client_t *client);

/**
 * Returns whether the owner's memory is mapped here, so that views make no copy. If it is not,
 * farjump_last_error() returns the reason. False if `client` is NULL.
 */
bool farjump_client_is_mapped(const farjump_client_t *client);

/**
 * Gets the bytes of an object: in the owner's memory if that is mapped, otherwise a copy.
 * farjump_view_release() ends the view.
 *
 * FARJUMP_ERROR_GONE, FARJUMP_ERROR_WRONG_KEY, FARJUMP_ERROR_UNSET.
 */
farjump_status_t farjump_client_get(const farjump_client_t *client,
                                    const farjump_handle_t *handle,
                                    farjump_view_t **view);

/**
 * Gets the bytes as farjump_client_get() does, and waits for the contents of a reserved object, `timeout_ns`
 * nanoseconds at most. After that it fails with FARJUMP_ERROR_TIMEOUT.
 */
farjump_status_t farjump_client_wait(const farjump_client_t *client,
                                     const farjump_handle_t *handle,
                                     uint64_t timeout_ns,
                                     farjump_view_t **view);

/**
 * Makes an object of a copy of `size` bytes at the owner. `type_name` is a name for its type, of at most 255
 * bytes; NULL for none. The call takes `timeout_ns` nanoseconds at most. farjump_handle_free() ends the
 * handle, and not the object.
 *
 * FARJUMP_ERROR_STORE_FULL when the owner has no memory for it.
 */
farjump_status_t farjump_client_put(const farjump_client_t *client,
                                    const char *type_name,
                                    const void *bytes,
                                    size_t size,
                                    uint64_t timeout_ns,
                                    farjump_handle_t **handle);

/**
 * Makes a handle at the owner whose object gets its contents later, by farjump_client_set() or
 * farjump_store_set().
 *
 * FARJUMP_ERROR_STORE_FULL when the owner has no memory for it.
 */
farjump_status_t farjump_client_reserve(const farjump_client_t *client,
                                        const char *type_name,
                                        farjump_handle_t **handle);

/**
 * Gives a reserved object contents, a copy of `size` bytes, in place of those that it has. Readers that wait
 * for them wake up. The call takes `timeout_ns` nanoseconds at most.
 *
 * FARJUMP_ERROR_ARGUMENT for an object that was not reserved; FARJUMP_ERROR_GONE, FARJUMP_ERROR_WRONG_KEY,
 * FARJUMP_ERROR_STORE_FULL.
 */
farjump_status_t farjump_client_set(const farjump_client_t *client,
                                    const farjump_handle_t *handle,
                                    const void *bytes,
                                    size_t size,
                                    uint64_t timeout_ns);

/**
 * Evicts an object; see farjump_store_evict().
 */
farjump_status_t farjump_client_evict(const farjump_client_t *client,
                                      const farjump_handle_t *handle,
                                      bool *was_there);

/**
 * Sets `exists` to true if an object is there or reserved; see farjump_store_exists().
 */
farjump_status_t farjump_client_exists(const farjump_client_t *client,
                                       const farjump_handle_t *handle,
                                       bool *exists);

/**
 * Leases an object; see farjump_store_lease(). Whole milliseconds count, and at least one.
 */
farjump_status_t farjump_client_lease(const farjump_client_t *client,
                                      const farjump_handle_t *handle,
                                      uint64_t nanoseconds);

/**
 * Adds `difference` to the object's count of references, which begins at 0. `count`, unless it is NULL,
 * becomes the new count. The owner evicts the object when the count comes to 0.
 *
 * FARJUMP_ERROR_GONE, FARJUMP_ERROR_WRONG_KEY.
 */
farjump_status_t farjump_client_count(const farjump_client_t *client,
                                      const farjump_handle_t *handle,
                                      int64_t difference,
                                      uint64_t *count);

/**
 * Runs the function of `library` at the owner of an object, on that object: the arguments travel, and the
 * object does not. The function finds both by farjump_open_at() of farjump_ifunc.h. Waits for the reply,
 * `timeout_ns` nanoseconds at most; `reply` receives it, and may be NULL if it is not needed.
 *
 * Fails as farjump_link_call(), for example with FARJUMP_ERROR_REFUSED when the owner takes no code;
 * FARJUMP_ERROR_GONE for a handle of an owner that has restarted since.
 */
farjump_status_t farjump_client_call(const farjump_client_t *client,
                                     const farjump_library_t *library,
                                     const farjump_handle_t *handle,
                                     const void *args,
                                     size_t args_size,
                                     uint64_t timeout_ns,
                                     farjump_bytes_t *reply);

/**
 * Makes an object of another one at its owner: runs the function of `library` on it, which makes the new one
 * by farjump_new_object() of farjump_ifunc.h, and replies nothing itself. No bytes of either object travel.
 * The call takes as long as a request may (the option `timeout` of clients). farjump_handle_free() ends
 * the handle, and not the object.
 *
 * Fails as farjump_client_call(); FARJUMP_ERROR_TRANSPORT when the function has not made one object.
 */
farjump_status_t farjump_client_derive(const farjump_client_t *client,
                                       const farjump_library_t *library,
                                       const farjump_handle_t *handle,
                                       const void *args,
                                       size_t args_size,
                                       farjump_handle_t **derived);

/**
 * Starts a call like that of farjump_client_call(), and returns before the function has run.
 * farjump_object_call_poll() or farjump_object_call_wait() takes the outcome. farjump_object_call_free()
 * ends the call.
 *
 * Fails as farjump_client_call(); FARJUMP_ERROR_TOO_MANY when 32,768 calls of the client are pending.
 * Nothing was sent then.
 */
farjump_status_t farjump_client_start_call(const farjump_client_t *client,
                                           const farjump_library_t *library,
                                           const farjump_handle_t *handle,
                                           const void *args,
                                           size_t args_size,
                                           farjump_object_call_t **call);

/**
 * Polls once, without waiting: FARJUMP_NOT_YET if the outcome has not come; `reply` is unchanged then.
 * Otherwise it does the same as farjump_object_call_wait().
 */
farjump_status_t farjump_object_call_poll(farjump_object_call_t *call, farjump_bytes_t *reply);

/**
 * Waits for the outcome, `timeout_ns` nanoseconds at most. `reply` receives the function's reply, and may be
 * NULL if it is not needed. There is no other outcome afterwards.
 *
 * Fails as farjump_client_call(); FARJUMP_ERROR_TIMEOUT when the time limit passed (the call is then
 * cancelled), and FARJUMP_ERROR_NO_CALL when the outcome was taken before, or the call was cancelled.
 */
farjump_status_t farjump_object_call_wait(farjump_object_call_t *call,
                                          uint64_t timeout_ns,
                                          farjump_bytes_t *reply);

/**
 * Cancels the call: it still runs, and its outcome is dropped.
 *
 * FARJUMP_ERROR_NO_CALL when the outcome was taken before, or the call was cancelled.
 */
farjump_status_t farjump_object_call_cancel(farjump_object_call_t *call);

/**
 * Frees it, and sets the variable to NULL. Does nothing if it is NULL already. A call whose outcome was not
 * taken is cancelled.
 */
farjump_status_t farjump_object_call_free(farjump_object_call_t **call);

/**
 * Returns the descriptor that becomes readable on an event while the client is armed: the outcome of a
 * started call, or the owner's end. The first call creates it. It stays the same, and ends with the client
 * and its calls. It belongs to the library: watch it, and neither read nor close it. -1 if `client` cannot
 * be used, or the system has no descriptor left.
 */
int farjump_client_fd(const farjump_client_t *client);

/**
 * Prepares to sleep in an event loop of the caller's until farjump_client_fd() becomes readable.
 * `longest_ns` becomes the longest time to sleep, in nanoseconds. It becomes 0 if an event has come since
 * the last time: poll the started calls then (farjump_object_call_poll()). farjump_client_disarm() follows
 * in any case.
 *
 * A call by which another thread waits with the same client may take the event: the sleep then lasts its
 * longest time, which is a second at most. Give an event loop a client of its own.
 *
 * FARJUMP_ERROR_PEER_GONE when the owner is gone. Outcomes that came before can still be taken.
 */
farjump_status_t farjump_client_arm(const farjump_client_t *client, uint64_t *longest_ns);

/**
 * Ends the sleep: the owner need not wake this process any more. Does nothing on a client that is not armed.
 */
farjump_status_t farjump_client_disarm(const farjump_client_t *client);

/**
 * Calls the function of `library` on `count` objects of this owner: farjump_client_call() for each, with
 * many calls under way at once. It returns when all calls have an outcome, each within the time of a request
 * (the option `timeout` of clients). A call that fails does not affect the others.
 * farjump_outcomes_free() ends the outcomes. farjump_resolver_map() takes handles of several owners.
 *
 * FARJUMP_OK also when calls failed: farjump_outcomes_get() has the status of each. FARJUMP_ERROR_ARGUMENT
 * when a handle is NULL; nothing was sent then.
 */
farjump_status_t farjump_client_map(const farjump_client_t *client,
                                    const farjump_library_t *library,
                                    const farjump_handle_t *const *handles,
                                    size_t count,
                                    const void *args,
                                    size_t args_size,
                                    farjump_outcomes_t **outcomes);

/**
 * Returns the number of outcomes: that of the handles. 0 if `outcomes` is NULL.
 */
size_t farjump_outcomes_count(const farjump_outcomes_t *outcomes);

/**
 * Returns the status that farjump_client_call() would have returned for the call with this index, and sets
 * farjump_last_error() and farjump_last_cause() in the same way. `reply` becomes the function's reply and
 * `size` its number of bytes; either may be NULL if it is not needed. The bytes belong to the outcomes, and
 * end with them.
 *
 * Fails as farjump_client_call(); FARJUMP_ERROR_ARGUMENT also for an index without an outcome.
 */
farjump_status_t farjump_outcomes_get(const farjump_outcomes_t *outcomes,
                                      size_t index,
                                      const void **reply,
                                      size_t *size);

/**
 * Frees them, and sets the variable to NULL. Does nothing if it is NULL already.
 */
farjump_status_t farjump_outcomes_free(farjump_outcomes_t **outcomes);

/**
 * Makes one without clients. farjump_resolver_free() ends it.
 */
farjump_status_t farjump_resolver_new(farjump_resolver_t **resolver);

/**
 * Frees it, and sets the variable to NULL. Does nothing if it is NULL already. No other thread may be using
 * it. Clients and views that came by it stay.
 */
farjump_status_t farjump_resolver_free(farjump_resolver_t **resolver);

/**
 * Sets the key for an owner at `address`, `tcp:HOST:PORT` as its handles have it, from a file as `farjump
 * key` makes it. The file is read now.
 *
 * FARJUMP_ERROR_CONNECT for a file that holds no key, or that other users may read or write.
 */
farjump_status_t farjump_resolver_set_key_file(const farjump_resolver_t *resolver,
                                               const char *address,
                                               const char *path);

/**
 * Gives the client of a handle's owner: one that is connected, or a new one at the first of the handle's
 * addresses that can be reached. farjump_client_close() ends it; the resolver keeps its own.
 *
 * FARJUMP_ERROR_CONNECT when none of the addresses reaches the owner, FARJUMP_ERROR_GONE when the owner has
 * restarted since.
 */
farjump_status_t farjump_resolver_client(const farjump_resolver_t *resolver,
                                         const farjump_handle_t *handle,
                                         farjump_client_t **client);

/**
 * Does the same as farjump_client_get(), for a handle of any owner. farjump_view_release() ends the view.
 *
 * Fails as farjump_resolver_client() and farjump_client_get().
 */
farjump_status_t farjump_resolver_get(const farjump_resolver_t *resolver,
                                      const farjump_handle_t *handle,
                                      farjump_view_t **view);

/**
 * Does the same as farjump_client_map(), for handles of any owners: each call goes to the owner of its
 * object. Each call has 30 seconds. An owner that cannot be reached fails the calls at its objects, and no
 * others.
 *
 * Fails as farjump_client_map(); each call also as farjump_resolver_client().
 */
farjump_status_t farjump_resolver_map(const farjump_resolver_t *resolver,
                                      const farjump_library_t *library,
                                      const farjump_handle_t *const *handles,
                                      size_t count,
                                      const void *args,
                                      size_t args_size,
                                      farjump_outcomes_t **outcomes);

/**
 * Makes one that knows nothing yet. farjump_placement_free() ends it.
 */
farjump_status_t farjump_placement_new(farjump_placement_t **placement);

/**
 * Frees it, and sets the variable to NULL. Does nothing if it is NULL already.
 */
farjump_status_t farjump_placement_free(farjump_placement_t **placement);

/**
 * Sets the way to the owner at `address`: the time of a message without bytes from one process to the other,
 * in nanoseconds, and the bandwidth. It also drops the times learnt of functions there. Without this,
 * farjump_client_call_auto() measures the way at the first call, by some small objects that it puts and
 * evicts.
 *
 * FARJUMP_ERROR_ARGUMENT for a bandwidth of 0.
 */
farjump_status_t farjump_placement_set_wire(farjump_placement_t *placement,
                                            const char *address,
                                            uint64_t latency_ns,
                                            uint64_t bytes_per_second);

/**
 * Runs the function of `library` on an object at the place where `placement` expects it to take less time:
 * at the owner, as farjump_client_call() does, or in this process, on the object's bytes. `placement`
 * decides by the lengths of the object and the arguments, the way to the owner, and the times of earlier
 * calls at either place. These rise with the load there. Now and then it tries a place of which little is
 * known. The call takes as long as requests may (the option `timeout` of clients).
 *
 * The function may run in this process: call only functions that you trust with it. `reply` receives the
 * reply. `choice` becomes the choice, and `choice_size` is `sizeof *choice`: fields beyond it are not
 * written, and fields that the library does not know become 0. `why` receives a sentence with the place
 * where the function ran, and the reason. Each of the three may be NULL if it is not needed. After a failure
 * `choice` is 0 in all fields and `why` unchanged.
 *
 * Fails as farjump_client_call() and farjump_client_get().
 */
farjump_status_t farjump_client_call_auto(const farjump_client_t *client,
                                          farjump_placement_t *placement,
                                          const farjump_library_t *library,
                                          const farjump_handle_t *handle,
                                          const void *args,
                                          size_t args_size,
                                          farjump_bytes_t *reply,
                                          farjump_choice_t *choice,
                                          size_t choice_size,
                                          farjump_bytes_t *why);

/**
 * Makes this process the owner of an object of this store, which nothing else should own. The handle is
 * copied. farjump_owned_release() or farjump_owned_into_static() ends the ownership.
 */
farjump_status_t farjump_store_own(const farjump_store_t *store,
                                   const farjump_handle_t *handle,
                                   farjump_owned_t **owned);

/**
 * Does the same as farjump_store_own(), for an object of another process's store.
 */
farjump_status_t farjump_client_own(const farjump_client_t *client,
                                    const farjump_handle_t *handle,
                                    farjump_owned_t **owned);

/**
 * Returns the handle of the object. It belongs to `owned`, and ends with it. NULL if `owned` is.
 */
const farjump_handle_t *farjump_owned_handle(const farjump_owned_t *owned);

/**
 * Evicts the object, and sets the variable to NULL. Does nothing if it is NULL already: `was_there` becomes
 * false then. `was_there`, unless it is NULL, becomes true if the object was there.
 *
 * Fails as farjump_client_evict(). The variable is NULL also after a failure, and the object may be there
 * still.
 */
farjump_status_t farjump_owned_release(farjump_owned_t **owned, bool *was_there);

/**
 * Ends the ownership, and sets the variable to NULL. Does nothing if it is NULL already. The object stays
 * until it is evicted.
 */
farjump_status_t farjump_owned_into_static(farjump_owned_t **owned);

/**
 * Takes a reference to an object of this store: the first one, by which it becomes a counted object, or a
 * further one. The handle is copied. farjump_counted_release() or farjump_counted_send() ends the reference.
 *
 * FARJUMP_ERROR_GONE, FARJUMP_ERROR_WRONG_KEY.
 */
farjump_status_t farjump_store_retain(const farjump_store_t *store,
                                      const farjump_handle_t *handle,
                                      farjump_counted_t **reference);

/**
 * Does the same as farjump_store_retain(), for an object of another process's store.
 */
farjump_status_t farjump_client_retain(const farjump_client_t *client,
                                       const farjump_handle_t *handle,
                                       farjump_counted_t **reference);

/**
 * Takes over a reference that another process has given away by farjump_counted_send(), with the handle that
 * it sent. The count does not change, and no request goes to the store. For an object of this store.
 */
farjump_status_t farjump_store_receive(const farjump_store_t *store,
                                       const farjump_handle_t *handle,
                                       farjump_counted_t **reference);

/**
 * Does the same as farjump_store_receive(), for an object of another process's store.
 */
farjump_status_t farjump_client_receive(const farjump_client_t *client,
                                        const farjump_handle_t *handle,
                                        farjump_counted_t **reference);

/**
 * Takes a further reference to the same object.
 *
 * FARJUMP_ERROR_GONE when the object was evicted all the same, or its lease has ended.
 */
farjump_status_t farjump_counted_retain(const farjump_counted_t *reference, farjump_counted_t **another);

/**
 * Returns the handle of the object. It belongs to `reference`, and ends with it. NULL if `reference` is.
 */
const farjump_handle_t *farjump_counted_handle(const farjump_counted_t *reference);

/**
 * Releases the reference, and sets the variable to NULL. Does nothing if it is NULL already. `left`, unless
 * it is NULL, becomes the number of references that are left. The object is evicted with the last one.
 *
 * FARJUMP_ERROR_GONE, FARJUMP_ERROR_WRONG_KEY. The variable is NULL also after a failure, and the reference
 * may be counted still.
 */
farjump_status_t farjump_counted_release(farjump_counted_t **reference, uint64_t *left);

/**
 * Gives the reference away, and sets the variable to NULL: it stays counted until another process that has
 * the handle has taken it over (farjump_client_receive()) and released it. `handle` becomes the handle, to
 * be sent (farjump_handle_to_bytes()); farjump_handle_free() ends that handle.
 *
 * FARJUMP_ERROR_ARGUMENT when the variable is NULL already.
 */
farjump_status_t farjump_counted_send(farjump_counted_t **reference, farjump_handle_t **handle);

/**
 * Adds `difference` to the object's count of references, for programs that keep account of them themselves;
 * see farjump_client_count().
 *
 * FARJUMP_ERROR_GONE, FARJUMP_ERROR_WRONG_KEY.
 */
farjump_status_t farjump_store_count(const farjump_store_t *store,
                                     const farjump_handle_t *handle,
                                     int64_t difference,
                                     uint64_t *count);

/**
 * Makes a configuration, all of its options the defaults. farjump_publisher_config_free() ends it.
 */
farjump_status_t farjump_publisher_config_new(farjump_publisher_config_t **config);

/**
 * Frees it, and sets the variable to NULL. Does nothing if it is NULL already.
 */
farjump_status_t farjump_publisher_config_free(farjump_publisher_config_t **config);

/**
 * Sets the option `name` to `value`. docs/reference/options.md lists the options of publishers. The top of
 * this header says how values are written.
 *
 * FARJUMP_ERROR_ARGUMENT if no option has the name, or it cannot have the value. Nothing has changed then.
 */
farjump_status_t farjump_publisher_config_set(farjump_publisher_config_t *config,
                                              const char *name,
                                              const char *value);

/**
 * Gives the value of the option `name`, as farjump_publisher_config_set() takes it; otherwise it does the
 * same as farjump_link_config_get().
 */
farjump_status_t farjump_publisher_config_get(farjump_publisher_config_t *config,
                                              const char *name,
                                              const char **value);

/**
 * Opens a topic of this store to publish in it. The topic is made if it is not there. Its name has 1 to 255
 * bytes. `config` may be NULL for the defaults. farjump_publisher_close() ends it.
 *
 * FARJUMP_ERROR_ARGUMENT for an impossible name or capacity, or a capacity that is not the first
 * publisher's; FARJUMP_ERROR_TOO_MANY when the store has 1,024 topics, or the topic 1,024 publishers;
 * FARJUMP_ERROR_STORE_FULL.
 */
farjump_status_t farjump_store_publisher(const farjump_store_t *store,
                                         const char *topic,
                                         const farjump_publisher_config_t *config,
                                         farjump_publisher_t **publisher);

/**
 * Does the same as farjump_store_publisher(), for a topic of another process's store.
 */
farjump_status_t farjump_client_publisher(const farjump_client_t *client,
                                          const char *topic,
                                          const farjump_publisher_config_t *config,
                                          farjump_publisher_t **publisher);

/**
 * Ends it, and sets the variable to NULL. Does nothing if it is NULL already. Without
 * farjump_publisher_finish() before, subscribers get FARJUMP_ERROR_PUBLISHER_GONE, as when the process ends.
 */
farjump_status_t farjump_publisher_close(farjump_publisher_t **publisher);

/**
 * Returns the topic's name. The text belongs to the publisher. NULL if `publisher` is.
 */
const char *farjump_publisher_topic(const farjump_publisher_t *publisher);

/**
 * Returns the number of the publisher, which no other publisher of the store has (farjump_item_publisher()).
 * 0 if `publisher` is NULL.
 */
uint64_t farjump_publisher_number(const farjump_publisher_t *publisher);

/**
 * Publishes a handle, of an object of any store. The object stays as it is: its maker evicts it. At a full
 * topic it acts as the option `overflow` says, and waits `timeout_ns` nanoseconds at
 * most. `number`, unless it is NULL, becomes the entry's number in the topic. The handle is copied.
 *
 * FARJUMP_ERROR_TOPIC_FULL when the topic stays full; nothing is published then. FARJUMP_ERROR_GONE,
 * FARJUMP_ERROR_WRONG_KEY for an object of the topic's store; FARJUMP_ERROR_TOO_LARGE for a handle of more
 * than 1,024 bytes; FARJUMP_ERROR_ARGUMENT after farjump_publisher_finish(). After FARJUMP_ERROR_TIMEOUT and
 * FARJUMP_ERROR_PEER_GONE it may have been published.
 */
farjump_status_t farjump_publisher_publish(farjump_publisher_t *publisher,
                                           const farjump_handle_t *handle,
                                           uint64_t timeout_ns,
                                           uint64_t *number);

/**
 * Publishes as farjump_publisher_publish() does, and the topic owns the object. The store evicts the object
 * when all subscribers have received it and released their items.
 *
 * Fails as farjump_publisher_publish(); FARJUMP_ERROR_ARGUMENT for an object of another store than the
 * topic's.
 */
farjump_status_t farjump_publisher_give(farjump_publisher_t *publisher,
                                        const farjump_handle_t *handle,
                                        uint64_t timeout_ns,
                                        uint64_t *number);

/**
 * Makes an object of a copy of `size` bytes at the topic's store, and publishes it: the topic owns it, as by
 * farjump_publisher_give(). `type_name` is a name for its type, of at most 255 bytes; NULL for none.
 *
 * Fails as farjump_publisher_publish(), and with FARJUMP_ERROR_STORE_FULL. After a failure there is no such
 * object.
 */
farjump_status_t farjump_publisher_publish_bytes(farjump_publisher_t *publisher,
                                                 const char *type_name,
                                                 const void *bytes,
                                                 size_t size,
                                                 uint64_t timeout_ns,
                                                 uint64_t *number);

/**
 * Announces that no more entries of this publisher follow. When all publishers have finished, the stream
 * ends for a subscriber that has received all entries. Finishing again does nothing.
 * farjump_publisher_close() follows. The call takes `timeout_ns` nanoseconds at most.
 */
farjump_status_t farjump_publisher_finish(farjump_publisher_t *publisher, uint64_t timeout_ns);

/**
 * Discards a topic of this store that has neither publishers nor subscribers, and evicts the objects that it
 * owns: for a topic whose entries no subscriber takes. `was_there`, unless it is NULL, becomes true if there
 * was such a topic.
 *
 * FARJUMP_ERROR_BUSY for a topic that has publishers or subscribers.
 */
farjump_status_t farjump_store_discard_topic(const farjump_store_t *store,
                                             const char *topic,
                                             bool *was_there);

/**
 * Does the same as farjump_store_discard_topic(), for a topic of another process's store.
 */
farjump_status_t farjump_client_discard_topic(const farjump_client_t *client,
                                              const char *topic,
                                              bool *was_there);

/**
 * Makes a configuration, all of its options the defaults. farjump_subscriber_config_free() ends it.
 */
farjump_status_t farjump_subscriber_config_new(farjump_subscriber_config_t **config);

/**
 * Frees it, and sets the variable to NULL. Does nothing if it is NULL already.
 */
farjump_status_t farjump_subscriber_config_free(farjump_subscriber_config_t **config);

/**
 * Sets the option `name` to `value`. docs/reference/options.md lists the options of subscribers. The top of
 * this header says how values are written.
 *
 * FARJUMP_ERROR_ARGUMENT if no option has the name, or it cannot have the value. Nothing has changed then.
 */
farjump_status_t farjump_subscriber_config_set(farjump_subscriber_config_t *config,
                                               const char *name,
                                               const char *value);

/**
 * Gives the value of the option `name`, as farjump_subscriber_config_set() takes it; otherwise it does the
 * same as farjump_link_config_get().
 */
farjump_status_t farjump_subscriber_config_get(farjump_subscriber_config_t *config,
                                               const char *name,
                                               const char **value);

/**
 * Subscribes to a topic of this store. The topic is made if it is not there, and need not have publishers
 * yet. `config` may be NULL for the defaults. farjump_subscriber_close() ends it.
 *
 * FARJUMP_ERROR_ARGUMENT for an impossible name; FARJUMP_ERROR_TOO_MANY when the store has 1,024 topics, or
 * the topic 1,024 subscribers; FARJUMP_ERROR_STORE_FULL.
 */
farjump_status_t farjump_store_subscribe(const farjump_store_t *store,
                                         const char *topic,
                                         const farjump_subscriber_config_t *config,
                                         farjump_subscriber_t **subscriber);

/**
 * Does the same as farjump_store_subscribe(), for a topic of another process's store.
 */
farjump_status_t farjump_client_subscribe(const farjump_client_t *client,
                                          const char *topic,
                                          const farjump_subscriber_config_t *config,
                                          farjump_subscriber_t **subscriber);

/**
 * Ends it, and sets the variable to NULL. Does nothing if it is NULL already. The subscriber no longer
 * delays publishers. Its items stay.
 */
farjump_status_t farjump_subscriber_close(farjump_subscriber_t **subscriber);

/**
 * Waits for the next entry, `timeout_ns` nanoseconds at most; with 0 an entry that is there comes. The reply
 * of an owner elsewhere may take up to a second more. farjump_item_release() ends the item.
 *
 * FARJUMP_NOT_YET when no entry came in time. FARJUMP_STREAM_END when all publishers have finished and the
 * subscriber has received all entries; publishers that come later continue the stream.
 * FARJUMP_ERROR_PUBLISHER_GONE once for each publisher that ended without finishing, after its entries:
 * other publishers continue, and so does the next call. FARJUMP_ERROR_TOO_MANY when the subscriber holds
 * more items of owned objects than the topic has entries: release some. FARJUMP_ERROR_TIMEOUT,
 * FARJUMP_ERROR_PEER_GONE. After any other error than FARJUMP_ERROR_PUBLISHER_GONE the same entry comes
 * again.
 */
farjump_status_t farjump_subscriber_next(farjump_subscriber_t *subscriber,
                                         uint64_t timeout_ns,
                                         farjump_item_t **item);

/**
 * Returns the topic's name. The text belongs to the subscriber. NULL if `subscriber` is.
 */
const char *farjump_subscriber_topic(const farjump_subscriber_t *subscriber);

/**
 * Returns the number of entries that the topic has dropped so far because this subscriber was too slow
 * (`drop-oldest` of the option `overflow`). 0 if `subscriber` is NULL.
 */
uint64_t farjump_subscriber_lost(const farjump_subscriber_t *subscriber);

/**
 * Returns the number of the publisher that the last FARJUMP_ERROR_PUBLISHER_GONE was about. `published`,
 * unless it is NULL, becomes the number of its entries. 0 if there was none, or `subscriber` is NULL.
 */
uint64_t farjump_subscriber_gone(const farjump_subscriber_t *subscriber, uint64_t *published);

/**
 * Returns the handle. It belongs to the item, and ends with it. NULL if `item` is.
 */
const farjump_handle_t *farjump_item_handle(const farjump_item_t *item);

/**
 * Returns the number of the entry in the topic. Numbers ascend, not always by one. 0 if `item` is NULL.
 */
uint64_t farjump_item_number(const farjump_item_t *item);

/**
 * Returns the number of its publisher (farjump_publisher_number()). 0 if `item` is NULL.
 */
uint64_t farjump_item_publisher(const farjump_item_t *item);

/**
 * Returns the number of entries that the topic dropped between the item before and this one, because the
 * subscriber was too slow. 0 if `item` is NULL.
 */
uint64_t farjump_item_lost(const farjump_item_t *item);

/**
 * Returns whether the topic owns the object (farjump_publisher_give(), farjump_publisher_publish_bytes()).
 * False if `item` is NULL.
 */
bool farjump_item_is_owned(const farjump_item_t *item);

/**
 * Ends it, and sets the variable to NULL. Does nothing if it is NULL already. The subscriber may be closed
 * before.
 */
farjump_status_t farjump_item_release(farjump_item_t **item);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FARJUMP_H */
