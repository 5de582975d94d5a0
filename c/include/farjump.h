/* farjump for C and C++: inject functions into other processes.
 *
 * Made by cbindgen from the Rust module `api` (c/src/api): change that, not this.
 *
 * A source opens an ifunc library (farjump_library_open, or farjump_library_load where it has payload routines of its own),
 * connects to a target (farjump_link_connect), injects (farjump_link_inject) and waits for the reply
 * (farjump_pending_wait). A target says what it offers
 * (farjump_target_options_new), listens (farjump_target_listen), and is polled (farjump_target_poll), run
 * (farjump_target_run) or handed to a thread (farjump_target_spawn). farjump_ifunc.h is for the functions themselves.
 *
 * Errors. Functions return a status: FARJUMP_OK, FARJUMP_NOT_YET where they say so, or an error, which is below 0. For
 * errors farjump_last_error() has a sentence for people. Functions that return something else return NULL, -1 or 0
 * instead. Nothing is thrown, and nothing aborts the process; a mistake in farjump itself is FARJUMP_ERROR_INTERNAL.
 *
 * Ownership. What a function makes it writes to the variable that its last argument points to, which is NULL after a
 * failure; it is the caller's to end, by the function that its text names. That function takes the address of the variable
 * and sets it to NULL: ending it twice is harmless, and using it afterwards is FARJUMP_ERROR_ARGUMENT. Of another copy of
 * the pointer nothing is known: used after the end it is what a freed pointer is. Objects may be ended in any order: each
 * keeps what it needs of the others. What functions are given (texts, arguments, keys) is read during the call and stays
 * the caller's, but for what a target offers to injected code: its arguments and its exports.
 *
 * Threads. An object that a function takes by a pointer to const may be used by several threads at once, in calls that all
 * take it so. Any other is used by one thread at a time, which may be another one each time. Callbacks run inside calls on
 * the object that they were given to, on the thread of that call. They, injected functions and payload routines can use
 * other objects, but not the one whose call runs them: that is FARJUMP_ERROR_BUSY. They must return: no exception and no
 * longjmp() may leave them.
 *
 * Pointers are to what their type says, or NULL, which is FARJUMP_ERROR_ARGUMENT where the text does not say what it means.
 * Texts end in a zero byte and are UTF-8; paths may be any bytes. Times are in nanoseconds, and FARJUMP_FOREVER is no limit.
 *
 * Native code in a process is trusted code: let in only who may do anything that the target may do.
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

/**
 * What a call came to. 0 is success, what is below 0 is an error: farjump_last_error() has the words for it.
 */
typedef enum {
    /**
     * It is done.
     */
    FARJUMP_OK = 0,
    /**
     * What was asked for is not there yet, and nothing is wrong: ask again.
     */
    FARJUMP_NOT_YET = 1,
    /**
     * An argument cannot be: NULL where there must be something, a name or number that makes no sense, choices that exclude
     * each other. Nothing was done.
     */
    FARJUMP_ERROR_ARGUMENT = -1,
    /**
     * The object is in use: the call came from inside another call on it, from a callback, an injected function or a payload
     * routine. Nothing was done.
     */
    FARJUMP_ERROR_BUSY = -2,
    /**
     * The call in flight is none of this link's, or its answer was taken already, or it was given up.
     */
    FARJUMP_ERROR_NO_CALL = -3,
    /**
     * The ifunc library cannot be opened, is none, has no code for the target's machine, or its payload routine failed. Nothing
     * was sent.
     */
    FARJUMP_ERROR_LIBRARY = -4,
    /**
     * The two processes could not meet: the address makes no sense, nobody listens there or somebody does already, the target
     * would not have this process, they have no transport in common, a key is missing or wrong, or it took too long.
     */
    FARJUMP_ERROR_CONNECT = -5,
    /**
     * The transport failed.
     */
    FARJUMP_ERROR_TRANSPORT = -6,
    /**
     * The target refused the call: farjump_last_cause() has the kind of reason. Nothing ran, unless the reason is one that
     * only shows when it has.
     */
    FARJUMP_ERROR_REFUSED = -7,
    /**
     * The injected function called farjump_panic(): the text has its message.
     */
    FARJUMP_ERROR_PANICKED = -8,
    /**
     * The target has ended, or the connection to it has. Calls in flight may or may not have run.
     */
    FARJUMP_ERROR_PEER_GONE = -9,
    /**
     * The time was up. A call that was waited for is given up, and may still run.
     */
    FARJUMP_ERROR_TIMEOUT = -10,
    /**
     * There is no room at the target now, and the call does not wait: take answers, then try again. Nothing was sent.
     */
    FARJUMP_ERROR_FULL = -11,
    /**
     * The call is larger than the link or the target takes. Nothing was sent.
     */
    FARJUMP_ERROR_TOO_LARGE = -12,
    /**
     * 32,768 calls of the link wait for an answer, or it has had 65,536 different functions. Nothing was sent.
     */
    FARJUMP_ERROR_TOO_MANY = -13,
    /**
     * The code cannot run in the mode that was chosen. Nothing was sent.
     */
    FARJUMP_ERROR_MODE = -14,
    /**
     * The operating system refused something.
     */
    FARJUMP_ERROR_SYSTEM = -15,
    /**
     * A mistake in farjump itself. The object that was used is only good for being closed.
     */
    FARJUMP_ERROR_INTERNAL = -16,
} farjump_status_t;

/**
 * How the code of a call comes to run. Each is a bit, so that a target can allow several.
 */
typedef enum {
    /**
     * The code travels with the first call of it on a link; later calls name it by a number. What a link does unless told
     * otherwise.
     */
    FARJUMP_MODE_CACHED = 1,
    /**
     * The code travels with each call. The target compares it with the copy that it holds, and runs that one.
     */
    FARJUMP_MODE_ALWAYS = 2,
    /**
     * The target has the library itself (farjump_target_options_add_local()): only the name travels.
     */
    FARJUMP_MODE_LOCAL = 4,
    /**
     * The code travels with each call, and runs where it lies, in the target's mailbox. A target allows it only if asked to:
     * what runs is what the source has written there, whatever its code id says. Code with writable statics cannot, nor can
     * any over a transport without a mailbox.
     */
    FARJUMP_MODE_IN_PLACE = 8,
} farjump_mode_t;

/**
 * What a process that connects may do at a target. Each is a bit.
 */
typedef enum {
    /**
     * Ask what code the target holds, and what it has counted.
     */
    FARJUMP_RIGHT_OBSERVE = 1,
    /**
     * Make a link, and have functions run that the target holds already: its own by name, others by code id.
     */
    FARJUMP_RIGHT_CALL = 2,
    /**
     * Bring code to a link, in whatever mode. Without FARJUMP_RIGHT_CALL there is no link to bring it to.
     */
    FARJUMP_RIGHT_INJECT = 4,
    /**
     * Have code dropped that the target holds, of every source.
     */
    FARJUMP_RIGHT_DROP = 8,
    /**
     * Have the target load libraries, and link code against them.
     */
    FARJUMP_RIGHT_EXPORT = 16,
} farjump_right_t;

/**
 * Why a target did not run a call.
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
     * The target has no memory left, for code or for a bigger mailbox.
     */
    FARJUMP_CAUSE_NO_ROOM = 6,
    /**
     * The frame was made for an earlier run of the target.
     */
    FARJUMP_CAUSE_STALE_EPOCH = 7,
    /**
     * A code index that nothing is bound to.
     */
    FARJUMP_CAUSE_UNKNOWN_INDEX = 8,
    /**
     * The frame, or its payload, is larger than the target takes.
     */
    FARJUMP_CAUSE_TOO_LARGE = 9,
    /**
     * The target asked for the code and did not get it.
     */
    FARJUMP_CAUSE_CODE_MISSING = 10,
    /**
     * The code ran, and replied with more than the source takes.
     */
    FARJUMP_CAUSE_REPLY_TOO_LARGE = 11,
    /**
     * The target's policy.
     */
    FARJUMP_CAUSE_POLICY = 12,
    /**
     * The ifunc's name is not one: empty, too long, or with `/` or `..`.
     */
    FARJUMP_CAUSE_NAME = 13,
    /**
     * The code ran and called farjump_panic(), and no reply was asked for that could say so.
     */
    FARJUMP_CAUSE_PANICKED = 14,
    /**
     * The code ran and forwarded itself to a peer of the target, and no answer came of that.
     */
    FARJUMP_CAUSE_FORWARD = 15,
    /**
     * The source has no right to what the call takes.
     */
    FARJUMP_CAUSE_RIGHTS = 16,
} farjump_cause_t;

/**
 * Asks the target at an address: what code it holds, what it has counted; and drops code. Each question is a connection of its own,
 * which makes no link and takes no source's place: nothing is held in between. Any number of threads may ask at once.
 *
 * All questions fail with FARJUMP_ERROR_CONNECT when nobody listens there, what listens is no target or another user's, or it does
 * not answer in time.
 */
typedef struct farjump_admin_t farjump_admin_t;

/**
 * Bytes that the library fills in: replies, and texts that have no fixed length. It is made once and used again and again:
 * once it has grown to what comes, nothing is allocated. The caller owns it. One thread uses it at a time.
 */
typedef struct farjump_bytes_t farjump_bytes_t;

/**
 * An ifunc library that is open or loaded: code to inject, and how its payload is made. Any number of threads may use it at
 * once.
 */
typedef struct farjump_library_t farjump_library_t;

/**
 * Choices for links, each of which has a default that suits a program on the same machine as its target. One thread changes
 * them at a time; any number may connect with them at once. They are copied when a link is made.
 */
typedef struct farjump_link_options_t farjump_link_options_t;

/**
 * A connection to a target. One thread uses it at a time; it may move between threads. Several calls may be in flight. The
 * functions run at the target in the order in which they were injected.
 */
typedef struct farjump_link_t farjump_link_t;

/**
 * Stops farjump_target_run(), also while it sleeps. Any number of threads may use it at once, and signal handlers too.
 */
typedef struct farjump_stopper_t farjump_stopper_t;

/**
 * Choices for targets, each of which but the exports has a default that suits. One thread changes them at a time; any number may
 * make targets with them at once. They are copied when a target is made.
 */
typedef struct farjump_target_options_t farjump_target_options_t;

/**
 * A place where injected functions run: it listens at an address, and does nothing by itself. Call farjump_target_poll() in a loop
 * of your own, or farjump_target_run(), or hand it to a thread with farjump_target_spawn(). One thread uses it at a time; it may
 * move between threads.
 */
typedef struct farjump_target_t farjump_target_t;

/**
 * A target on a thread of its own.
 */
typedef struct farjump_thread_t farjump_thread_t;

/**
 * The identity of code: the first 16 bytes of the BLAKE3 hash of its image. Names are for people.
 */
typedef struct {
    /**
     * The bytes, in the order in which the hash has them.
     */
    uint8_t bytes[16];
} farjump_code_id_t;

/**
 * How long to spin before sleeping: phases of a wait, in turns of its loop. Where each side has a core of its own, spinning is
 * what makes a call quick; where not, it keeps the other side from running. Unless set, it suits the number of cores.
 */
typedef struct {
    /**
     * Turns that only look again. UINT32_MAX never sleeps.
     */
    uint32_t spins;
    /**
     * Turns with a pause instruction after those.
     */
    uint32_t pauses;
    /**
     * Turns that give the processor to another thread after those.
     */
    uint32_t yields;
} farjump_wait_policy_t;

/**
 * Runs when the target refuses a call that was sent without asking for a reply: `cause` is one of FARJUMP_CAUSE_BAD_FRAME and
 * its kin, `text` says more, and is the library's, valid until the callback returns.
 */
typedef void (*farjump_link_refused_fn)(void *user, int cause, const char *text);

/**
 * Runs once when the target is gone. `why` is the library's, valid until the callback returns.
 */
typedef void (*farjump_link_gone_fn)(void *user, const char *why);

/**
 * Runs when the target asks for the code of the ifunc called `name` again. The text is the library's, valid until the callback
 * returns.
 */
typedef void (*farjump_link_code_missing_fn)(void *user, const char *name);

/**
 * A call in flight, as a number: it needs no memory and no end. Numbers are told apart between links, and those of calls that are
 * answered or given up from others that came later, for 65,535 calls in the same place. 0 is none.
 */
typedef uint64_t farjump_pending_t;

/**
 * What a link has sent. It may grow at its end.
 */
typedef struct {
    /**
     * Frames sent that run something.
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
 * A process at the other end. The structure and what it points to are the library's; it may grow at its end.
 */
typedef struct {
    /**
     * Its process id, as the system says; 0 where it has none here. Over TCP as the peer says.
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
     * Who it is, in words: name, process id, address, key.
     */
    const char *text;
    /**
     * At a target, what its operator calls the key by which a source came; NULL if it needed none, or one that has no name.
     */
    const char *key;
} farjump_peer_t;

/**
 * Any function, to be offered to injected code: cast it to this.
 */
typedef void (*farjump_function_t)(void);

/**
 * Runs for each call of a source that is refused: `cause` is one of FARJUMP_CAUSE_BAD_FRAME and its kin. `peer` and `text` are
 * the library's, valid until the callback returns.
 */
typedef void (*farjump_target_refused_fn)(void *user, const farjump_peer_t *peer, int cause, const char *text);

/**
 * Runs each time a source is asked for the code `id`. `peer` and `id` are the library's, valid until the callback returns.
 */
typedef void (*farjump_target_code_missing_fn)(void *user,
                                               const farjump_peer_t *peer,
                                               const farjump_code_id_t *id);

/**
 * Runs for each source that has connected. `peer` is the library's, valid until the callback returns.
 */
typedef void (*farjump_target_joined_fn)(void *user, const farjump_peer_t *peer);

/**
 * Runs for each source that is gone. `peer` and `why` are the library's, valid until the callback returns.
 */
typedef void (*farjump_target_gone_fn)(void *user, const farjump_peer_t *peer, const char *why);

/**
 * What a target has counted since it was made. It may grow at its end.
 */
typedef struct {
    /**
     * Calls made.
     */
    uint64_t calls;
    /**
     * Of those, calls that were forwarded to a peer.
     */
    uint64_t forwarded;
    /**
     * Frames taken: calls, refused or not, of which several may share a frame, and questions whether all has run.
     */
    uint64_t frames;
    /**
     * Bytes that they took in their mailboxes.
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
     * Processes that were turned away because there were as many sources as the target takes.
     */
    uint64_t sources_refused;
    /**
     * Images held now.
     */
    uint64_t store_images;
    /**
     * Their length as they travelled, together, in bytes.
     */
    uint64_t store_bytes;
    /**
     * Images dropped because others needed their place.
     */
    uint64_t store_evictions;
    /**
     * Most images that are held; UINT64_MAX without a limit.
     */
    uint64_t store_capacity_images;
    /**
     * Most bytes of images that are held; UINT64_MAX without a limit.
     */
    uint64_t store_capacity_bytes;
    /**
     * Room for placed code that is in use, in bytes.
     */
    uint64_t room_used;
    /**
     * Room for placed code, in bytes.
     */
    uint64_t room;
} farjump_target_stats_t;

/**
 * One image in a target's store. The structure and what it points to are the library's, valid until the callback returns; it may
 * grow at its end.
 */
typedef struct {
    /**
     * Its identity.
     */
    farjump_code_id_t id;
    /**
     * The name under which it first came.
     */
    const char *name;
    /**
     * The program that brought it first, and its process id, in words for people.
     */
    const char *source;
    /**
     * Length of the image in bytes.
     */
    uint64_t bytes;
    /**
     * How long placing it took, in nanoseconds.
     */
    uint64_t link_ns;
    /**
     * Calls of it.
     */
    uint64_t calls;
    /**
     * What these calls took together, in nanoseconds. Of short ones only some are timed: an estimate.
     */
    uint64_t time_ns;
    /**
     * How long ago it was called last, in nanoseconds; since it came, if it never was.
     */
    uint64_t last_use_ns;
} farjump_image_t;

/**
 * Runs for each image that a target holds.
 */
typedef void (*farjump_image_fn)(void *user, const farjump_image_t *image);

/**
 * A transport, as far as it can be known before there is a peer. The structure and what it points to are the library's, valid until
 * the callback returns; it may grow at its end.
 */
typedef struct {
    /**
     * Its name, as farjump_link_options_set_transport() takes it.
     */
    const char *name;
    /**
     * Where its peers can be, in words: `this machine`.
     */
    const char *reaches;
    /**
     * NULL if it can be used on this machine; else why it cannot, and the mend, in a sentence for people.
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

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * A few words for a status; "unknown status" for a number that is none. The text is constant. Any thread may call this.
 */
const char *farjump_status_string(int status);

/**
 * What went wrong last on this thread: a sentence that says what, where, and what to do. "" if nothing has. The text is the
 * library's, and is valid until the next call of this thread that fails. Calls that succeed leave it as it was.
 */
const char *farjump_last_error(void);

/**
 * Why the target refused, if FARJUMP_ERROR_REFUSED is what the last call of this thread that failed came to: one of
 * FARJUMP_CAUSE_BAD_FRAME and its kin. -1 if it is not.
 */
int farjump_last_cause(void);

/**
 * A few words for one of FARJUMP_CAUSE_BAD_FRAME and its kin; "unknown cause" for a number that is none. The text is constant.
 * Any thread may call this.
 */
const char *farjump_cause_string(int cause);

/**
 * Makes one without content. farjump_bytes_free() ends it.
 */
farjump_status_t farjump_bytes_new(farjump_bytes_t **bytes);

/**
 * Frees it, and sets the variable to NULL. One that is NULL already is none to be freed, and no error.
 */
farjump_status_t farjump_bytes_free(farjump_bytes_t **bytes);

/**
 * The content, aligned as bytes are, valid until it is filled again or freed. A zero byte that does not count follows it, so
 * that what is a text can be used as one. For NULL an empty text.
 */
const void *farjump_bytes_data(const farjump_bytes_t *bytes);

/**
 * How many bytes the content has. For NULL 0.
 */
size_t farjump_bytes_size(const farjump_bytes_t *bytes);

/**
 * The content as a text, as farjump_bytes_data() gives it.
 */
const char *farjump_bytes_text(const farjump_bytes_t *bytes);

/**
 * Opens the ifunc library at `path`, as `farjump build` makes it. A path without a slash is a file of the current directory.
 * The file is read, and nothing of it runs: payloads are the arguments as they are (FARJUMP_COPY_ARGS). A library with payload
 * routines of its own has to be loaded, by farjump_library_load(); if it was only opened, calls of its function fail with
 * FARJUMP_ERROR_LIBRARY. farjump_library_close() ends it; links and targets that were given it keep what they need.
 *
 * FARJUMP_ERROR_LIBRARY for a file that is not there, cannot be read, or is no such library.
 */
farjump_status_t farjump_library_open(const char *path,
                                      farjump_library_t **library);

/**
 * Loads the ifunc library at `path` into this process, as dlopen() does: its constructors run now, and its payload routines with
 * each call, so load what you trust. Otherwise as farjump_library_open().
 *
 * FARJUMP_ERROR_LIBRARY for a file that is not there, cannot be loaded, or is no such library.
 */
farjump_status_t farjump_library_load(const char *path,
                                      farjump_library_t **library);

/**
 * Closes it, and sets the variable to NULL. One that is NULL already is none to be closed, and no error. No other thread may
 * be using it.
 */
farjump_status_t farjump_library_close(farjump_library_t **library);

/**
 * NAME of the ifunc: that of its routines, whatever the file is called. The text is the library's. NULL if `library` is.
 */
const char *farjump_library_name(const farjump_library_t *library);

/**
 * The path that was opened, with `./` before a bare file name. The text is the library's. NULL if `library` is.
 */
const char *farjump_library_path(const farjump_library_t *library);

/**
 * The identity of its code for targets of this machine's kind.
 *
 * FARJUMP_ERROR_LIBRARY if it has none for them.
 */
farjump_status_t farjump_library_code_id(const farjump_library_t *library, farjump_code_id_t *id);

/**
 * How many bytes of code travel to targets of this machine's kind.
 *
 * FARJUMP_ERROR_LIBRARY if it has none for them.
 */
farjump_status_t farjump_library_image_size(const farjump_library_t *library, size_t *size);

/**
 * Writes the 32 hexadecimal digits of a code id, and a zero byte after them, to `digits`: 33 bytes.
 */
farjump_status_t farjump_code_id_print(const farjump_code_id_t *id, char *digits);

/**
 * Reads a code id from its 32 hexadecimal digits.
 *
 * FARJUMP_ERROR_ARGUMENT if `digits` is something else; `id` is then as it was.
 */
farjump_status_t farjump_code_id_parse(const char *digits, farjump_code_id_t *id);

/**
 * Makes choices, all of them the defaults. farjump_link_options_free() ends them.
 */
farjump_status_t farjump_link_options_new(farjump_link_options_t **options);

/**
 * Frees them, and sets the variable to NULL. One that is NULL already is none to be freed, and no error.
 */
farjump_status_t farjump_link_options_free(farjump_link_options_t **options);

/**
 * Takes this transport and no other, by the name that `farjump transports` shows; `ucx` stands for the better one of UCX's
 * that joins both sides. Unless set: `shm` where the target has it, else whatever both have. Whether there is one of that name
 * shows when a link is made.
 */
farjump_status_t farjump_link_options_set_transport(farjump_link_options_t *options,
                                                    const char *name);

/**
 * Whether `ucx-am` may go over UCX's TCP. A process that reaches a port of UCX's may then write any address of this process without
 * being asked for anything, and the target may as long as the link lasts; `tcp` reaches other machines without that. Off unless
 * set. The target has to allow it too: farjump_target_options_set_ucx_tcp().
 */
farjump_status_t farjump_link_options_set_ucx_tcp(farjump_link_options_t *options,
                                                  bool allowed);

/**
 * Whether frames may travel in the clear by `tcp` although both sides have a key, on a network that you trust. The control connection is
 * sealed in any case. Off unless set. The target has to say so too: farjump_target_options_set_clear().
 */
farjump_status_t farjump_link_options_set_clear(farjump_link_options_t *options,
                                                bool clear);

/**
 * How the code of calls comes to run: one of FARJUMP_MODE_CACHED, which is the default, and its kin. farjump_link_set_mode()
 * changes it.
 */
farjump_status_t farjump_link_options_set_mode(farjump_link_options_t *options,
                                               int mode);

/**
 * How long connecting may take in all, in nanoseconds. 5 seconds unless set.
 */
farjump_status_t farjump_link_options_set_connect_timeout(farjump_link_options_t *options,
                                                          uint64_t nanoseconds);

/**
 * How long an injection may wait for room at the target, in nanoseconds. 10 seconds unless set.
 */
farjump_status_t farjump_link_options_set_send_timeout(farjump_link_options_t *options, uint64_t nanoseconds);

/**
 * Bytes of replies that the target may have written and this source not yet taken, rounded up to a power of two; also the
 * largest reply, and at most 2 GiB. 1 MiB unless set.
 */
farjump_status_t farjump_link_options_set_reply_room(farjump_link_options_t *options,
                                                     size_t bytes);

/**
 * How long to spin before sleeping while waiting.
 */
farjump_status_t farjump_link_options_set_wait_policy(farjump_link_options_t *options,
                                                      farjump_wait_policy_t policy);

/**
 * How often a link that polls or spins asks the system whether the target is still there, at most, in nanoseconds. 1 millisecond
 * unless set.
 */
farjump_status_t farjump_link_options_set_control_interval(farjump_link_options_t *options,
                                                           uint64_t nanoseconds);

/**
 * The key that the target has too, for a target at `tcp:HOST:PORT`: 32 bytes, as hard to guess as random ones. All that goes
 * over the control connection is then sealed by it; what the transport carries is by `tcp` alone. Means nothing on Unix sockets. The
 * bytes are copied, and wiped when the options are freed.
 */
farjump_status_t farjump_link_options_set_key(farjump_link_options_t *options,
                                              const uint8_t *key);

/**
 * As farjump_link_options_set_key(), from a file as `farjump key` makes it, which is read now.
 *
 * FARJUMP_ERROR_CONNECT for a file that is no key, or that others than this user may read or write.
 */
farjump_status_t farjump_link_options_set_key_file(farjump_link_options_t *options, const char *path);

/**
 * How long the target's machine may be silent before the target is taken for gone, over TCP, in nanoseconds. 10 seconds unless
 * set; from 1 second to 32,767.
 */
farjump_status_t farjump_link_options_set_peer_timeout(farjump_link_options_t *options,
                                                       uint64_t nanoseconds);

/**
 * The name that the target's people see. The executable's unless set.
 */
farjump_status_t farjump_link_options_set_program(farjump_link_options_t *options, const char *name);

/**
 * Has `callback` run, with `user`, for each call sent without asking for a reply that the target refuses. It runs inside calls
 * on the link, on their thread, and cannot use the link: that is FARJUMP_ERROR_BUSY. NULL for none.
 */
farjump_status_t farjump_link_options_on_refused(farjump_link_options_t *options,
                                                 farjump_link_refused_fn callback,
                                                 void *user);

/**
 * Has `callback` run, with `user`, once when the target is gone. As farjump_link_options_on_refused() otherwise.
 */
farjump_status_t farjump_link_options_on_gone(farjump_link_options_t *options,
                                              farjump_link_gone_fn callback,
                                              void *user);

/**
 * Has `callback` run, with `user`, each time the target asks for code again. As farjump_link_options_on_refused() otherwise.
 */
farjump_status_t farjump_link_options_on_code_missing(farjump_link_options_t *options,
                                                      farjump_link_code_missing_fn callback,
                                                      void *user);

/**
 * Connects to the target at `address` (`unix:PATH`, `tcp:HOST:PORT`). `options` may be NULL: then everything has its default.
 * farjump_link_close() ends it.
 *
 * FARJUMP_ERROR_CONNECT when nobody listens there, the target refuses, or no transport is common to both.
 */
farjump_status_t farjump_link_connect(const char *address,
                                      const farjump_link_options_t *options,
                                      farjump_link_t **link);

/**
 * Closes it, and sets the variable to NULL. One that is NULL already is none to be closed, and no error. Calls in flight are
 * given up; what was sent still runs.
 *
 * FARJUMP_ERROR_BUSY from a callback of the link: it then stays open.
 */
farjump_status_t farjump_link_close(farjump_link_t **link);

/**
 * Injects the function of `library`: runs its payload routines on the `args_size` bytes at `args` here, sends the frame, and
 * returns without waiting for it to run. The code itself travels the first time only. `args` is read during the call only.
 * The call's number goes to `pending`: farjump_pending_wait(), farjump_pending_poll() and farjump_pending_cancel() take it.
 *
 * While the target has no room it waits, up to farjump_link_options_set_send_timeout(); farjump_link_try_inject() does not. A
 * frame that the mailbox is too small for has the target make a bigger one, for which it waits as well.
 *
 * On failure nothing was sent, and `pending` is 0, which is no call's number.
 */
farjump_status_t farjump_link_inject(farjump_link_t *link,
                                     const farjump_library_t *library,
                                     const void *args,
                                     size_t args_size,
                                     farjump_pending_t *pending);

/**
 * As farjump_link_inject(), but FARJUMP_ERROR_FULL instead of a wait for room.
 */
farjump_status_t farjump_link_try_inject(farjump_link_t *link,
                                         const farjump_library_t *library,
                                         const void *args,
                                         size_t args_size,
                                         farjump_pending_t *pending);

/**
 * Injects without asking for a reply: the cheapest way. Whether it ran shows at the next farjump_link_flush(), and refusals in
 * the callback of farjump_link_options_on_refused(). As farjump_link_inject() otherwise.
 */
farjump_status_t farjump_link_send(farjump_link_t *link,
                                   const farjump_library_t *library,
                                   const void *args,
                                   size_t args_size);

/**
 * As farjump_link_send(), but FARJUMP_ERROR_FULL instead of a wait for room.
 */
farjump_status_t farjump_link_try_send(farjump_link_t *link,
                                       const farjump_library_t *library,
                                       const void *args,
                                       size_t args_size);

/**
 * As farjump_link_send(), and in the same order; but the message may wait for others that share its frame, so that many small
 * ones cost little more than a few big ones: those for the same function, cached, of one length of up to 256 bytes, up to 1 KiB
 * or 128 of them. The frame goes when it is full or something comes that does not fit it, before anything else is sent on the
 * link, and with farjump_batch_finish().
 *
 * Messages that were given before one that fails are not lost: those that wait go with the next try.
 */
farjump_status_t farjump_batch_send(farjump_link_t *link,
                                    const farjump_library_t *library,
                                    const void *args,
                                    size_t args_size);

/**
 * Sends what waits of farjump_batch_send().
 *
 * FARJUMP_ERROR_TIMEOUT when the target has no room for it within farjump_link_options_set_send_timeout(): it then goes before
 * whatever is sent next.
 */
farjump_status_t farjump_batch_finish(farjump_link_t *link);

/**
 * Injects, and waits for the reply, which becomes the content of `reply`; NULL for a reply that is not looked at. As
 * farjump_link_inject() and farjump_pending_wait() otherwise.
 */
farjump_status_t farjump_link_call(farjump_link_t *link,
                                   const farjump_library_t *library,
                                   const void *args,
                                   size_t args_size,
                                   uint64_t timeout_ns,
                                   farjump_bytes_t *reply);

/**
 * Chooses how the code of the calls from here on comes to run: one of FARJUMP_MODE_CACHED and its kin.
 */
farjump_status_t farjump_link_set_mode(farjump_link_t *link, int mode);

/**
 * Waits until everything sent before has run, `timeout_ns` nanoseconds at most.
 *
 * Fails as the first call that was sent without asking for a reply, and refused, since the last flush; with
 * FARJUMP_ERROR_TIMEOUT; and with FARJUMP_ERROR_PEER_GONE, which also means that calls may not have run.
 */
farjump_status_t farjump_link_flush(farjump_link_t *link, uint64_t timeout_ns);

/**
 * Looks once for answers and for news of the target, without waiting: for programs that own their loop.
 *
 * FARJUMP_ERROR_PEER_GONE when the target is gone.
 */
farjump_status_t farjump_link_progress(farjump_link_t *link);

/**
 * The descriptor that becomes readable when something comes while the link is armed: an answer, a refusal, the target's end. It is
 * made with the first call, stays the same also when the link is made anew, and ends with the link. It is the library's: watch it,
 * and neither read nor close it. -1 if `link` cannot be used, or the system has none to give.
 */
int farjump_link_fd(farjump_link_t *link);

/**
 * Prepares to sleep in an event loop of the caller's until farjump_link_fd() becomes readable: `longest_ns` becomes for how long
 * at most, in nanoseconds; 0 if something has come since the last time: an answer, for which farjump_pending_poll() is to look, or
 * room after FARJUMP_ERROR_FULL. It looks for everything itself: farjump_link_progress() need not be called.
 * farjump_link_disarm() comes after it in any case.
 *
 * FARJUMP_ERROR_PEER_GONE when the target is gone. Answers that it gave before are still there to be taken.
 */
farjump_status_t farjump_link_arm(farjump_link_t *link,
                                  uint64_t *longest_ns);

/**
 * Awake again: the target need not ring any more. Does nothing on a link that is not armed.
 */
farjump_status_t farjump_link_disarm(farjump_link_t *link);

/**
 * Connects to the same address again, after the target went away or restarted. Calls that were in flight fail with
 * FARJUMP_ERROR_PEER_GONE. Code is offered by its id: a target that no longer has it asks for it. What farjump_link_peer() and
 * farjump_link_transport() gave before is no longer valid.
 *
 * As farjump_link_connect() on failure; the link is then as it was.
 */
farjump_status_t farjump_link_reconnect(farjump_link_t *link);

/**
 * Time in nanoseconds that the target took to place the code of `library`, as it reported.
 *
 * FARJUMP_NOT_YET if it was not placed on this link (the target had it already), or no report came within `timeout_ns`
 * nanoseconds.
 */
farjump_status_t farjump_link_link_time(farjump_link_t *link,
                                        const farjump_library_t *library,
                                        uint64_t timeout_ns,
                                        uint64_t *link_ns);

/**
 * What this link has sent. `size` is `sizeof *stats`: of what the library knows more about nothing is written, and what it does
 * not know about becomes 0.
 */
farjump_status_t farjump_link_stats(farjump_link_t *link,
                                    farjump_link_stats_t *stats,
                                    size_t size);

/**
 * Name of the transport in use. The text is the library's, valid until the link is made anew or closed. NULL if `link` is.
 */
const char *farjump_link_transport(const farjump_link_t *link);

/**
 * Who the target is. The structure is the library's, valid until the link is made anew or closed. NULL if `link` is.
 */
const farjump_peer_t *farjump_link_peer(const farjump_link_t *link);

/**
 * Makes the path that the link's frames take the content of `path`, in words for people: the transport, how the target knows that
 * a frame is whole, what it travels over, and why no other transport was taken. May take long.
 */
farjump_status_t farjump_link_path(farjump_link_t *link,
                                   farjump_bytes_t *path);

/**
 * The target's epoch: another one after it restarted. 0 if `link` cannot be used.
 */
uint64_t farjump_link_epoch(farjump_link_t *link);

/**
 * Largest frame that the link's own mailbox takes, in bytes, with header and code. For larger ones the target makes a bigger
 * mailbox when they come. 0 if `link` cannot be used.
 */
size_t farjump_link_max_frame(farjump_link_t *link);

/**
 * What this process may do at the target, as that said: some of FARJUMP_RIGHT_OBSERVE and its kin, or-ed together. 0 if `link` cannot be
 * used.
 */
int farjump_link_rights(farjump_link_t *link);

/**
 * Waits for the answer, `timeout_ns` nanoseconds at most. What the function replied, the bytes of all its calls of farjump_reply()
 * in order, becomes the content of `reply`; NULL for a reply that is not looked at. The number is void afterwards.
 *
 * FARJUMP_ERROR_REFUSED when the target refused it, FARJUMP_ERROR_PANICKED when it panicked, FARJUMP_ERROR_TIMEOUT when the time
 * was up (the call is then given up), FARJUMP_ERROR_PEER_GONE, and FARJUMP_ERROR_NO_CALL for a number that is void.
 */
farjump_status_t farjump_pending_wait(farjump_link_t *link,
                                      farjump_pending_t pending,
                                      uint64_t timeout_ns,
                                      farjump_bytes_t *reply);

/**
 * Looks once, without waiting: FARJUMP_NOT_YET if the answer is not there yet; then the number stays good, and `reply` is as it
 * was. As farjump_pending_wait() otherwise.
 */
farjump_status_t farjump_pending_poll(farjump_link_t *link,
                                      farjump_pending_t pending,
                                      farjump_bytes_t *reply);

/**
 * Gives the call up: it still runs, and its answer is dropped. The number is void afterwards.
 *
 * FARJUMP_ERROR_NO_CALL for a number that is void already.
 */
farjump_status_t farjump_pending_cancel(farjump_link_t *link, farjump_pending_t pending);

/**
 * Makes choices, all of them the defaults. farjump_target_options_free() ends them.
 */
farjump_status_t farjump_target_options_new(farjump_target_options_t **options);

/**
 * Frees them, and sets the variable to NULL. One that is NULL already is none to be freed, and no error.
 */
farjump_status_t farjump_target_options_free(farjump_target_options_t **options);

/**
 * What every injected function gets as its third argument. It stays the caller's, and must be valid for whatever they do with it, on
 * the thread that polls the target, until the target is closed. NULL unless set.
 */
farjump_status_t farjump_target_options_set_args(farjump_target_options_t *options,
                                                 void *args);

/**
 * Offers a function to injected code, under `name`; nothing but what is offered can be linked against. The code must declare it with
 * the same types: nothing checks that. Of two under one name the last one is meant. Exports win over libraries and the process's
 * symbols.
 */
farjump_status_t farjump_target_options_export_function(farjump_target_options_t *options,
                                                        const char *name,
                                                        farjump_function_t function);

/**
 * Offers the address of data to injected code, under `name`: `extern T name;` in C. It must be valid until the target is closed. As
 * farjump_target_options_export_function() otherwise.
 */
farjump_status_t farjump_target_options_export_data(farjump_target_options_t *options,
                                                    const char *name,
                                                    const void *data);

/**
 * Offers every symbol of a shared library, by path or soname. It is loaded when a target is made, which runs its constructors.
 */
farjump_status_t farjump_target_options_export_library(farjump_target_options_t *options,
                                                       const char *path);

/**
 * Lets injected code that wants the library with this soname (`libz.so.1`) find what it defines, after all else that is offered.
 * None unless set. An image names the libraries that it wants; one that is not among these is never opened. It is opened when
 * the first code that wants it comes and imports something that is not offered otherwise, which runs its constructors, and
 * stays open until the process ends. A name with a slash is an error when a target is made.
 */
farjump_status_t farjump_target_options_wanted_library(farjump_target_options_t *options,
                                                       const char *soname);

/**
 * Whether the process's own dynamic symbols are offered, after everything else: all of libc, and what the program was linked with,
 * this library's functions among it. Off unless set.
 */
farjump_status_t farjump_target_options_set_process_symbols(farjump_target_options_t *options,
                                                            bool offered);

/**
 * Has the function of `library` here, for sources that choose FARJUMP_MODE_LOCAL: only its name travels then. It is linked with what
 * the target offers, as code that travels is, when a target is made.
 */
farjump_status_t farjump_target_options_add_local(farjump_target_options_t *options,
                                                  const farjump_library_t *library);

/**
 * Whether `/tmp/perf-PID.map` says where injected code lies, so that `perf report` shows it as `ifunc:NAME`. Off unless set. The file
 * stays when the process ends.
 */
farjump_status_t farjump_target_options_set_perf_map(farjump_target_options_t *options,
                                                     bool written);

/**
 * Whether standard error says which injected code it was that crashed. Then the process ends as it would have. Off unless set.
 * Handlers for SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP and SIGABRT are installed by the first target of the process that asks
 * for it, and stay; what was installed before is called after the report.
 */
farjump_status_t farjump_target_options_set_crash_report(farjump_target_options_t *options,
                                                         bool reported);

/**
 * Knows the target at `address` by `name`: injected code may forward itself there, by farjump_forward(). A link is made when the first
 * call goes there. Who may inject into this target may then have code run at that one too. farjump_target_set_peer() does the same
 * later.
 */
farjump_status_t farjump_target_options_add_peer(farjump_target_options_t *options,
                                                 const char *name,
                                                 const char *address);

/**
 * Has `callback` run, with `user`, for each call that is refused. It runs inside calls on the target, on their thread, and cannot use the
 * target: that is FARJUMP_ERROR_BUSY. NULL for none.
 */
farjump_status_t farjump_target_options_on_refused(farjump_target_options_t *options,
                                                   farjump_target_refused_fn callback,
                                                   void *user);

/**
 * Has `callback` run, with `user`, each time a source is asked for code. As farjump_target_options_on_refused() otherwise.
 */
farjump_status_t farjump_target_options_on_code_missing(farjump_target_options_t *options,
                                                        farjump_target_code_missing_fn callback,
                                                        void *user);

/**
 * Has `callback` run, with `user`, for each source that has connected. As farjump_target_options_on_refused() otherwise.
 */
farjump_status_t farjump_target_options_on_joined(farjump_target_options_t *options,
                                                  farjump_target_joined_fn callback,
                                                  void *user);

/**
 * Has `callback` run, with `user`, for each source that is gone. As farjump_target_options_on_refused() otherwise.
 */
farjump_status_t farjump_target_options_on_gone(farjump_target_options_t *options,
                                                farjump_target_gone_fn callback,
                                                void *user);

/**
 * Allows these modes and no others: some of FARJUMP_MODE_CACHED and its kin, or-ed together. All but FARJUMP_MODE_IN_PLACE unless set.
 */
farjump_status_t farjump_target_options_set_modes(farjump_target_options_t *options,
                                                  int modes);

/**
 * What processes may do that may connect: some of FARJUMP_RIGHT_OBSERVE and its kin, or-ed together, or 0. To observe, to call and to
 * inject unless set. Each is told when it connects (farjump_link_rights()), and what it asks for without the right is refused.
 */
farjump_status_t farjump_target_options_set_rights(farjump_target_options_t *options,
                                                   int rights);

/**
 * Room for code in bytes. 16 MiB unless set.
 */
farjump_status_t farjump_target_options_set_code_room(farjump_target_options_t *options, size_t bytes);

/**
 * How much code is held, in bytes of images as they travel and in images. When more comes, the code that was not called for the
 * longest time is dropped, with its statics; who calls it again is asked for it. Twice as many bytes as there is room for code,
 * and 8192 images, unless set.
 */
farjump_status_t farjump_target_options_set_store_capacity(farjump_target_options_t *options,
                                                           size_t bytes,
                                                           size_t images);

/**
 * Bytes of frames that one source may have written and the target not yet run, rounded up to a power of two, and at most 2 GiB. Each
 * source has its own. 4 MiB unless set.
 */
farjump_status_t farjump_target_options_set_mailbox(farjump_target_options_t *options,
                                                    size_t bytes);

/**
 * How long to spin before sleeping when there is nothing to do.
 */
farjump_status_t farjump_target_options_set_wait_policy(farjump_target_options_t *options,
                                                        farjump_wait_policy_t policy);

/**
 * How long the rest of a frame may take after it has begun, before its source's link is cut, in nanoseconds. 1 second unless set.
 */
farjump_status_t farjump_target_options_set_stall_limit(farjump_target_options_t *options,
                                                        uint64_t nanoseconds);

/**
 * How long a process that connects may take to make its link, a source to take the bigger mailbox that it asked for, and a peer to be
 * linked to, in nanoseconds. 2 seconds unless set.
 */
farjump_status_t farjump_target_options_set_meeting_limit(farjump_target_options_t *options,
                                                          uint64_t nanoseconds);

/**
 * How often a target that is busy looks for new connections, at most, in nanoseconds. 1 millisecond unless set.
 */
farjump_status_t farjump_target_options_set_control_interval(farjump_target_options_t *options,
                                                             uint64_t nanoseconds);

/**
 * Most sources at a time; more are turned away. 256 unless set.
 */
farjump_status_t farjump_target_options_set_max_sources(farjump_target_options_t *options, size_t sources);

/**
 * Lets in code with this identity and no other, whatever the mode; called again, also this one. All code unless called. The functions
 * of farjump_target_options_add_local() do not come in, and need not be among it.
 */
farjump_status_t farjump_target_options_allow_code(farjump_target_options_t *options,
                                                   const farjump_code_id_t *id);

/**
 * Largest frame in bytes, with header and code, rounded down to a multiple of 64. No limit but what the largest payload and code
 * need unless set. Sources are told when they connect.
 */
farjump_status_t farjump_target_options_set_max_frame(farjump_target_options_t *options,
                                                      size_t bytes);

/**
 * Largest image in bytes that may come in. No limit but the room for code unless set. Sources are told when they connect.
 */
farjump_status_t farjump_target_options_set_max_image(farjump_target_options_t *options,
                                                      size_t bytes);

/**
 * Largest payload in bytes that is run. Unless set 64 MiB, or what the mailbox holds if that is more. One of less than 40 bytes makes
 * small calls slower. Sources are told when they connect.
 */
farjump_status_t farjump_target_options_set_max_payload(farjump_target_options_t *options,
                                                        size_t bytes);

/**
 * Memory in bytes that one source may take here: mailbox, code that it brought, answers that wait. No limit unless set. What is over
 * it is refused.
 */
farjump_status_t farjump_target_options_set_max_source_memory(farjump_target_options_t *options,
                                                              size_t bytes);

/**
 * Takes this transport and no other, by the name that `farjump transports` shows; `ucx` stands for all of UCX's that are usable here.
 * `shm` unless set. Whether there is one of that name shows when a target is made.
 */
farjump_status_t farjump_target_options_set_transport(farjump_target_options_t *options,
                                                      const char *name);

/**
 * Whether `ucx-am` may go over UCX's TCP, to sources and to peers. A process that reaches a port of UCX's may then write any address
 * of this process without being asked for anything, and a source may as long as its link lasts; `tcp` reaches other machines
 * without that. Off unless set. Sources have to allow it too: farjump_link_options_set_ucx_tcp().
 */
farjump_status_t farjump_target_options_set_ucx_tcp(farjump_target_options_t *options,
                                                    bool allowed);

/**
 * Whether frames may travel in the clear by `tcp` although both sides have a key, on a network that you trust. Control connections are
 * sealed in any case. Off unless set. Sources have to say so too: farjump_link_options_set_clear().
 */
farjump_status_t farjump_target_options_set_clear(farjump_target_options_t *options,
                                                  bool clear);

/**
 * The key that sources have too, for a target at `tcp:HOST:PORT`, and that peers at such addresses have: 32 bytes, as hard to guess as
 * random ones. Who has it is let in. Without one a target listens on this machine's loopback only. Means nothing on Unix sockets.
 * The bytes are copied, and wiped when the options are freed.
 */
farjump_status_t farjump_target_options_set_key(farjump_target_options_t *options,
                                                const uint8_t *key);

/**
 * The keys that sources have, for a target at `tcp:HOST:PORT`, in a file as `farjump key` makes it: up to 64, each with a name and rights of
 * its own if it has some. It is read now, and again and again while the target runs: what changes counts within about a second, and a key that is taken out
 * ends its links. If it holds one key alone, peers are met with that.
 *
 * FARJUMP_ERROR_CONNECT for a file that holds no key, or that others than this user may read or write.
 */
farjump_status_t farjump_target_options_set_key_file(farjump_target_options_t *options,
                                                     const char *path);

/**
 * How long a source's machine, or a peer's, may be silent before it is taken for gone, over TCP, in nanoseconds. 10 seconds unless
 * set; from 1 second to 32,767.
 */
farjump_status_t farjump_target_options_set_peer_timeout(farjump_target_options_t *options,
                                                         uint64_t nanoseconds);

/**
 * Makes a target that listens at `address`: `unix:PATH`, or `tcp:HOST:PORT`. `options` may be NULL: then everything has its default,
 * and injected code can call nothing but `memcpy` and its kin, and farjump_reply() and its. farjump_target_close() ends it.
 *
 * FARJUMP_ERROR_CONNECT when the address is taken or makes no sense or no transport is usable, FARJUMP_ERROR_ARGUMENT for limits that
 * let nothing in, FARJUMP_ERROR_LIBRARY for a library that cannot be opened, FARJUMP_ERROR_SYSTEM where memory cannot be made
 * executable.
 */
farjump_status_t farjump_target_listen(const char *address,
                                       const farjump_target_options_t *options,
                                       farjump_target_t **target);

/**
 * Closes it, and sets the variable to NULL. One that is NULL already is none to be closed, and no error. Its links end; code that it
 * held is gone with its statics.
 *
 * FARJUMP_ERROR_BUSY from inside a call on the target: it then stays open.
 */
farjump_status_t farjump_target_close(farjump_target_t **target);

/**
 * Runs what has arrived, at most a batch from each source, and says in `ran`, unless that is NULL, how many frames that was. Never
 * waits. Now and then it also looks for new sources and for those that are gone. What a source does wrong ends its own link only.
 */
farjump_status_t farjump_target_poll(farjump_target_t *target,
                                     size_t *ran);

/**
 * Serves until farjump_stopper_stop(): polls, spins for a while when there is nothing, then sleeps. Then all links have ended.
 */
farjump_status_t farjump_target_run(farjump_target_t *target);

/**
 * Sleeps until a frame, a connection or a stop comes, `timeout_ns` nanoseconds at most: FARJUMP_NOT_YET if nothing came. What comes
 * is for the next farjump_target_poll().
 */
farjump_status_t farjump_target_wait(farjump_target_t *target,
                                     uint64_t timeout_ns);

/**
 * Prepares to sleep in an event loop of the caller's until farjump_target_fd() becomes readable: `longest_ns` becomes for how long
 * at most, in nanoseconds; 0 if there is something to do already. farjump_target_disarm() comes after it in any case, and then
 * farjump_target_poll().
 */
farjump_status_t farjump_target_arm(farjump_target_t *target,
                                    uint64_t *longest_ns);

/**
 * Awake again: sources need not ring any more, and the next farjump_target_poll() asks the system what woke it.
 */
farjump_status_t farjump_target_disarm(farjump_target_t *target);

/**
 * The descriptor that becomes readable when there is something to do while the target is armed. It is the library's: watch it, and
 * neither read nor close it. -1 if `target` cannot be used.
 */
int farjump_target_fd(farjump_target_t *target);

/**
 * Where it listens: as given, and with the port that the system chose where that was left to it (port 0). The text is the library's,
 * valid until the target is closed. NULL if `target` is.
 */
const char *farjump_target_address(const farjump_target_t *target);

/**
 * This target's epoch: another one each time a target is made. 0 if `target` cannot be used.
 */
uint64_t farjump_target_epoch(farjump_target_t *target);

/**
 * What it has counted. `size` is `sizeof *stats`: of what the library knows more about nothing is written, and what it does not know
 * about becomes 0.
 */
farjump_status_t farjump_target_stats(farjump_target_t *target,
                                      farjump_target_stats_t *stats,
                                      size_t size);

/**
 * How many calls were refused for `cause`, one of FARJUMP_CAUSE_BAD_FRAME and its kin.
 */
farjump_status_t farjump_target_refused(farjump_target_t *target, int cause, uint64_t *count);

/**
 * Runs `callback`, with `user`, for each image that the target holds. It cannot use the target.
 */
farjump_status_t farjump_target_images(farjump_target_t *target, farjump_image_fn callback, void *user);

/**
 * Has the function of `library` here from now on, in place of one of the same name; see farjump_target_options_add_local().
 *
 * FARJUMP_ERROR_REFUSED when it cannot be linked with what is offered; the function there was stays then.
 */
farjump_status_t farjump_target_set_local(farjump_target_t *target,
                                          const farjump_library_t *library);

/**
 * No longer has a function of this name here. FARJUMP_NOT_YET if there was none.
 */
farjump_status_t farjump_target_remove_local(farjump_target_t *target, const char *name);

/**
 * Knows the target at `address` by `name` from now on; see farjump_target_options_add_peer(). Calls under way to another address of
 * that name fail.
 *
 * FARJUMP_ERROR_CONNECT when the address makes no sense.
 */
farjump_status_t farjump_target_set_peer(farjump_target_t *target,
                                         const char *name,
                                         const char *address);

/**
 * Drops code from the store, with its statics. FARJUMP_NOT_YET if it is not held. A source that calls it again is asked for it.
 */
farjump_status_t farjump_target_forget(farjump_target_t *target,
                                       const farjump_code_id_t *id);

/**
 * Ends all links, telling sources why. The target goes on, and takes new ones.
 */
farjump_status_t farjump_target_end_links(farjump_target_t *target, const char *why);

/**
 * Makes a handle that stops the target. It may outlive the target, also one that is handed to a thread. farjump_stopper_free() ends
 * it.
 */
farjump_status_t farjump_stopper_new(farjump_target_t *target,
                                     farjump_stopper_t **stopper);

/**
 * Stops the target after the frames that it is at, and for good: a target that was stopped does not run again. Safe in a signal
 * handler, where farjump_last_error() is not.
 */
farjump_status_t farjump_stopper_stop(const farjump_stopper_t *stopper);

/**
 * Frees the handle, and sets the variable to NULL. One that is NULL already is none to be freed, and no error. The target is not
 * stopped by this.
 */
farjump_status_t farjump_stopper_free(farjump_stopper_t **stopper);

/**
 * Hands the target to a thread of its own, which runs it until farjump_thread_stop(). The variable `target` is NULL then: the target
 * is the thread's, and callbacks, exports and arguments are used there.
 *
 * FARJUMP_ERROR_SYSTEM when the thread cannot be made; the target is then closed.
 */
farjump_status_t farjump_target_spawn(farjump_target_t **target,
                                      farjump_thread_t **thread);

/**
 * Stops the target, waits for its thread, and sets the variable to NULL. One that is NULL already is none to be stopped, and no
 * error; there is no target then. The target goes to `target`, with what it counted and with no links; NULL for one that is to be
 * closed. Not from the target's own thread: that is FARJUMP_ERROR_BUSY, and the thread goes on.
 *
 * Fails with what ended the target before it was stopped; it is then closed.
 */
farjump_status_t farjump_thread_stop(farjump_thread_t **thread,
                                     farjump_target_t **target);

/**
 * Runs `callback`, with `user`, for each transport that farjump knows, usable here or not, in an order that is always the same.
 * Looking at those of UCX and verbs loads their libraries. Any thread may call this.
 */
farjump_status_t farjump_transports(farjump_transport_fn callback,
                                    void *user);

/**
 * The version of the library that runs, as FARJUMP_VERSION of the header is the one that was compiled with: 10000 times the first
 * number, 100 times the second, and the third. Any thread may call this.
 */
int farjump_version(void);

/**
 * The same as a text: `0.1.0`. It is constant.
 */
const char *farjump_version_string(void);

/**
 * For the target at `address` (`unix:PATH`, `tcp:HOST:PORT`). Nothing is sent yet. farjump_admin_free() ends it.
 *
 * FARJUMP_ERROR_CONNECT when the address makes no sense.
 */
farjump_status_t farjump_admin_new(const char *address,
                                   farjump_admin_t **admin);

/**
 * Frees it, and sets the variable to NULL. One that is NULL already is none to be freed, and no error.
 */
farjump_status_t farjump_admin_free(farjump_admin_t **admin);

/**
 * How long each question may take, in nanoseconds: a target answers when the function that it is running has returned. 10 seconds
 * unless set. No other thread may be asking.
 */
farjump_status_t farjump_admin_set_timeout(farjump_admin_t *admin,
                                           uint64_t nanoseconds);

/**
 * The key that the target has too, for one at `tcp:HOST:PORT`, from a file as `farjump key` makes it, which is read now. No other
 * thread may be asking.
 *
 * FARJUMP_ERROR_CONNECT for a file that is no key, or that others than this user may read or write.
 */
farjump_status_t farjump_admin_set_key_file(farjump_admin_t *admin,
                                            const char *path);

/**
 * Runs `callback`, with `user`, for each image that the target holds, what was used last first.
 */
farjump_status_t farjump_admin_images(const farjump_admin_t *admin, farjump_image_fn callback, void *user);

/**
 * Drops code from its store, with its statics; `dropped`, unless it is NULL, becomes how many images are gone. Calls under way are not
 * lost: a source that calls it again is asked for it. Functions of the target's own are kept. That no such code is held is no
 * error.
 */
farjump_status_t farjump_admin_drop(const farjump_admin_t *admin,
                                    const farjump_code_id_t *id,
                                    uint64_t *dropped);

/**
 * As farjump_admin_drop(), all that it holds.
 */
farjump_status_t farjump_admin_drop_all(const farjump_admin_t *admin, uint64_t *dropped);

/**
 * What it has counted; see farjump_target_stats().
 */
farjump_status_t farjump_admin_stats(const farjump_admin_t *admin,
                                     farjump_target_stats_t *stats,
                                     size_t size);

/**
 * Whether processes that may connect may also have targets load libraries while they run, whose symbols go before all that is offered
 * (farjump_admin_export_library(), `farjump export`). Off unless set: who is let in only to have code run that
 * farjump_target_options_allow_code() lists could run any by this. The short form of adding FARJUMP_RIGHT_EXPORT to
 * farjump_target_options_set_rights().
 */
farjump_status_t farjump_target_options_set_allow_export(farjump_target_options_t *options,
                                                         bool allowed);

/**
 * Offers a function as `name` from now on, before all that was offered by that name until now (interposing). Code that was linked
 * before keeps what it had, also for sources to come; farjump_target_forget() has it linked anew. It must be valid until the target
 * is closed. Names that begin with `farjump_` are those of services, and stay theirs.
 */
farjump_status_t farjump_target_export_function(farjump_target_t *target,
                                                const char *name,
                                                farjump_function_t function);

/**
 * As farjump_target_export_function(), the address of data.
 */
farjump_status_t farjump_target_export_data(farjump_target_t *target, const char *name, const void *data);

/**
 * As farjump_target_export_function(), every symbol that a shared library defines itself, by path or soname. It is loaded now, which
 * runs its constructors, and stays until the process ends.
 *
 * FARJUMP_ERROR_LIBRARY when it cannot be loaded; nothing has changed then.
 */
farjump_status_t farjump_target_export_library(farjump_target_t *target,
                                               const char *path);

/**
 * Has the target load the shared library at `path`, whose bytes travel, and offer what it defines before all that it offered until
 * now; as farjump_target_export_library() there. The libraries that it depends on have to be at the target.
 *
 * FARJUMP_ERROR_CONNECT also where the target does not allow it (farjump_target_options_set_allow_export()), or cannot load it;
 * FARJUMP_ERROR_LIBRARY when the file cannot be read.
 */
farjump_status_t farjump_admin_export_library(const farjump_admin_t *admin,
                                              const char *path);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FARJUMP_H */
