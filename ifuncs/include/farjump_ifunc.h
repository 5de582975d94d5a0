/* farjump_ifunc.h - the interface for authors of ifuncs in C and C++.
 *
 * An ifunc is three routines of one NAME. Two run at the source and make the payload; NAME_main travels and
 * runs at the target:
 *
 *     void   NAME_main(void *payload, size_t payload_size, void *target_args);
 *
 *     size_t NAME_payload_get_max_size(void *source_args, size_t source_args_size);
 *     int    NAME_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size);
 *
 * NAME_payload_get_max_size returns the largest length that the payload may need, in bytes. NAME_payload_init
 * fills in exactly the payload_size bytes it is given. It returns 0, or another number to cancel the call. If
 * the length is known only after filling in, define this instead of NAME_payload_init. *payload_size is the
 * space on entry, and the number of bytes used, at most that, on return:
 *
 *     int    NAME_payload_init_shrink(void *payload, size_t *payload_size, void *source_args, size_t source_args_size);
 *
 * FARJUMP_COPY_ARGS(NAME) defines both payload routines for the common case: the arguments are the payload.
 *
 *     #include <farjump_ifunc.h>
 *
 *     FARJUMP_COPY_ARGS(add)
 *
 *     FARJUMP_IFUNC void add_main(void *payload, size_t payload_size, void *target_args)
 *     {
 *         if (payload_size == sizeof(uint64_t))
 *             *(uint64_t *)target_args += *(uint64_t *)payload;
 *     }
 *
 *     $ farjump build add.c -o libadd.so
 *
 * Everything that NAME_main reaches travels: functions, constants, and writable statics. The target has one
 * copy of the statics, as long as the code is in its store. Symbols that the code uses and does not define
 * (printf, or a function of the target's program) are looked up in the target's exports. NAME_main cannot use
 * thread-local variables, constructors, C++ exceptions, or functions marked __attribute__((ifunc)). `farjump
 * build` names the first it finds.
 *
 * The payload is aligned to 64 bytes, or to 8 if it has at most 40 bytes; FARJUMP_PAYLOAD_ALIGN requests
 * another alignment. NAME_main may write into the payload, and must not use it after it has returned. The
 * payload comes from another process, which may write to it even while NAME_main runs: read each length once,
 * and check it before use.
 */
#ifndef FARJUMP_IFUNC_H
#define FARJUMP_IFUNC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define FARJUMP_LINKAGE extern "C"
#define FARJUMP_CHECK(condition, text) static_assert(condition, text)
extern "C" {
#else
#define FARJUMP_LINKAGE
#define FARJUMP_CHECK(condition, text) _Static_assert(condition, text)
#endif

/* Precedes the definition of each routine. In C++ every routine needs it. In C only objects that other build
 * systems compile with hidden visibility do. */
#define FARJUMP_IFUNC FARJUMP_LINKAGE __attribute__((visibility("default")))

/* ---- Exports of every target to NAME_main, besides memcpy, memmove, memset, memcmp, bcmp and strlen ---- */

/* Appends a copy of len bytes to the reply of this call. The reply is sent when NAME_main returns. Returns 0,
 * also in a one-way call. Returns -1 and appends nothing if the reply would exceed the target's limit. */
int farjump_reply(const void *bytes, size_t len);

/* Copies len bytes, usually the payload, into memory of the target's that no other process can write. The copy
 * lies at a multiple of align, a power of two up to 4096. It is valid until NAME_main returns or calls this
 * again. Returns NULL for another alignment, or if there is no memory. */
void *farjump_private_copy(const void *bytes, size_t len, size_t align);

/* Forwards this call: injects the running function into the target that this one knows as the destination `peer`
 * (peer_len bytes, no zero needed; see Target::set_destination, farjump serve --destination). The payload is sent
 * unchanged: the payload routines do not run again. A call may do so several times, to several destinations. Name
 * and payload are copied, and the messages are sent when NAME_main returns, but not if it panics.
 *
 * The reply to this call is its own bytes, and then the replies to its forwards. These follow in the order of their
 * arrival, each as a whole. A one-way call has no reply. Outcomes do not come back to NAME_main. If forwarded calls
 * are lost, the source gets the others' replies, the number of lost calls, and the reason of the first loss.
 *
 * Returns 0 if the message will be sent. Otherwise returns one of the numbers below, and nothing is sent: NAME_main
 * may reply, panic, try another destination, or try later (farjump_again). Never waits. */
int farjump_forward(const char *peer, size_t peer_len, const void *payload, size_t payload_size);

/* Runs this function again on this target, with this payload, after other calls have had their turn. Everything else
 * is as for farjump_forward. Returns FARJUMP_UNKNOWN_PEER where code runs without a target. */
int farjump_again(const void *payload, size_t payload_size);

/* Code that makes code. The target has to allow it (TargetBuilder::allow_making, farjump serve --allow-making).
 *
 * farjump_make gives the target code that NAME_main has made: an image, such as a template with other constants, or
 * bitcode, such as farjump_code.h makes from text. It is copied. Its id of 16 bytes, the hash of its bytes, is written
 * to id.
 *
 * farjump_inject injects the code with that id: into a destination as farjump_forward does, or, if peer_len is 0, into
 * this target as farjump_again does. The code is placed or compiled when NAME_main has returned, with the checks for
 * code from a source. If that fails, the message is lost, and the source gets the reason. The code stays in the
 * target's store like other code. It may also be code that another call has made or brought. */
int farjump_make(const void *code, size_t len, uint8_t id[16]);
int farjump_inject(const uint8_t id[16], const char *peer, size_t peer_len, const void *payload, size_t payload_size);

/* Objects of the target's store (farjump serve --objects, farjump_handles::Store).
 *
 * farjump_object writes the address of a handle's object to *data, and its length to *size. The bytes are read-only, and
 * start at a multiple of 64. They stay until the call ends, even if the object is evicted.
 *
 * farjump_new_object makes an object of len bytes, and writes its address to *data. NAME_main fills it before it returns.
 * The memory is not zeroed. The object exists from the return on, unless the call panics. Its handle is appended to the
 * reply. Several handles are in the order in which their objects were made.
 *
 * Both return 0, or one of the numbers below. Neither waits. A store may have written an object to its file. The object of a
 * call by its handle (farjump_open_at) is read back before NAME_main starts. For any other object, and for memory that is
 * freed by writing to the file, they return FARJUMP_SPILLED at once, while the store reads or writes. NAME_main then calls
 * farjump_again() with its payload, and returns before it has replied or made anything. It runs again when the store has read
 * or written, as often as necessary. */
int farjump_object(const void *handle, size_t handle_len, const void **data, size_t *size);
int farjump_new_object(size_t len, void **data);

#define FARJUMP_NO_STORE (-1)   /* the target has no store, or no call runs on this thread */
#define FARJUMP_NO_HANDLE (-2)  /* the bytes are no handle, or one of another version */
#define FARJUMP_ELSEWHERE (-3)  /* the object is another target's */
#define FARJUMP_GONE (-4)       /* it was evicted, or the target has restarted */
#define FARJUMP_WRONG_KEY (-5)  /* the handle's key is not the object's */
#define FARJUMP_STORE_FULL (-6) /* the store has no memory for it */
#define FARJUMP_UNSET (-7)      /* the handle was reserved, and has no contents yet */
#define FARJUMP_SPILLED (-8)    /* the store reads or writes its file for it: call farjump_again() */

#define FARJUMP_UNKNOWN_PEER (-1) /* the target has no destination of that name */
#define FARJUMP_TOO_LARGE (-2)    /* the payload is too long for a frame to that destination */
#define FARJUMP_BUSY (-3)         /* 1024 calls, or as many bytes as the target allows, are under way there */
#define FARJUMP_TOO_OFTEN (-4)    /* this call has sent as many messages as the target allows */
#define FARJUMP_TOO_FAR (-5)      /* it has made as many hops as the target allows; the source gets the reason */
#define FARJUMP_NOT_ALLOWED (-6)  /* the target allows no function to make code */

/* Ends this call. The source's wait fails with the message (len bytes of UTF-8, no zero needed; copied), and
 * the target continues. Does not return. Resources that NAME_main holds are not released. */
__attribute__((noreturn)) void farjump_panic(const char *message, size_t len);

/* ---- The target_args of `farjump serve --data FILE` ---- */

/* The file, mapped read-only for as long as the target runs. */
struct farjump_data {
    uint32_t size;        /* of this structure in bytes, at least 32: later versions may append fields */
    uint32_t reserved;    /* zero */
    const uint8_t *bytes; /* the contents; not NULL, also if len is 0 */
    size_t len;           /* length of the contents, in bytes */
    const char *path;     /* the file's path as given, zero-terminated */
};

#ifdef __cplusplus
}
#endif

/* ---- Shorthands ---- */

/* Defines NAME_payload_get_max_size and NAME_payload_init: the payload is a copy of the arguments. No
 * semicolon follows. The library is marked: a program that calls the function need not run the library's code
 * (in Rust Library::open, in C farjump_library_open()). A library with payload routines of its own has to be
 * loaded. */
#define FARJUMP_COPY_ARGS(name)                                                                                       \
    static const uint32_t name##_copy_args __asm__(#name "_copy_args")                                                \
        __attribute__((used, section(".farjump.copy_args"))) = 1;                                                     \
    FARJUMP_IFUNC size_t name##_payload_get_max_size(void *source_args, size_t source_args_size)                      \
    {                                                                                                                 \
        (void)source_args;                                                                                            \
        return source_args_size;                                                                                      \
    }                                                                                                                 \
    FARJUMP_IFUNC int name##_payload_init(void *payload, size_t payload_size, void *source_args,                      \
                                          size_t source_args_size)                                                    \
    {                                                                                                                 \
        if (payload_size < source_args_size)                                                                          \
            return -1;                                                                                                \
        __builtin_memcpy(payload, source_args, source_args_size);                                                     \
        return 0;                                                                                                     \
    }

/* Lets the compiler use vectors in the loops of the function that follows, although farjump build makes code small (-Os).
 * It is for functions that pass over much data. Others only become longer. Clang uses vectors by itself. A sum of
 * floating-point numbers also needs partial sums, or -ffast-math (docs/guide/writing-ifuncs.md).
 *
 *     FARJUMP_VECTORS FARJUMP_IFUNC void nearest_main(void *payload, size_t payload_size, void *target_args) */
#if defined(__GNUC__) && !defined(__clang__)
#define FARJUMP_VECTORS __attribute__((optimize("O3")))
#else
#define FARJUMP_VECTORS
#endif

/* The object and the arguments of a call that was made by a handle (farjump_handles::Client::call). */
struct farjump_at {
    const void *data; /* the object */
    size_t size;      /* its length in bytes */
    void *args;       /* the arguments, at a multiple of 64 bytes from the payload's start */
    size_t args_size; /* their length in bytes */
};

/* Finds the object and the arguments in the payload of such a call. Returns 0, or a number as farjump_object does. */
static inline int farjump_open_at(void *payload, size_t payload_size, struct farjump_at *at)
{
    uint32_t words[2];
    if (payload_size < sizeof words)
        return FARJUMP_NO_HANDLE;
    __builtin_memcpy(words, payload, sizeof words);
    if (words[1] > payload_size || words[1] < sizeof words || words[0] > words[1] - sizeof words)
        return FARJUMP_NO_HANDLE;
    at->args = (char *)payload + words[1];
    at->args_size = payload_size - words[1];
    return farjump_object((char *)payload + sizeof words, words[0], &at->data, &at->size);
}

/* Aligns payloads of NAME to `bytes`, a power of two from 8 to 4096. `farjump build` writes the alignment
 * into the image; it does not travel as data. */
#define FARJUMP_PAYLOAD_ALIGN(name, bytes)                                                                            \
    FARJUMP_CHECK((bytes) >= 8 && (bytes) <= 4096 && ((bytes) & ((bytes) - 1)) == 0,                                  \
                  "a payload's alignment is a power of two from 8 to 4096");                                          \
    static const uint32_t name##_payload_align __asm__(#name "_payload_align")                                        \
        __attribute__((used, section(".farjump.payload_align"))) = (bytes)

#endif
