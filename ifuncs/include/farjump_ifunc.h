/* farjump_ifunc.h - what authors of ifuncs in C and C++ need.
 *
 * An ifunc is three routines of one NAME. Two run where the call is made and make the payload; NAME_main travels and
 * runs at the target:
 *
 *     void   NAME_main(void *payload, size_t payload_size, void *target_args);
 *
 *     size_t NAME_payload_get_max_size(void *source_args, size_t source_args_size);
 *     int    NAME_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size);
 *
 * NAME_payload_get_max_size says how many bytes the payload needs at most. NAME_payload_init fills in exactly the
 * payload_size bytes it is given; it returns 0, or anything else to have nothing sent. Where only filling in shows how
 * much is needed, define this instead of NAME_payload_init: *payload_size is the room on entry, and what was used, at
 * most that, on return:
 *
 *     int    NAME_payload_init_shrink(void *payload, size_t *payload_size, void *source_args, size_t source_args_size);
 *
 * FARJUMP_COPY_ARGS(NAME) defines the two for the common case: the arguments are the payload.
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
 * What travels is what NAME_main reaches: functions, constants, and writable statics, of which the target has one copy
 * as long as it holds the code. What it uses and does not define (printf, or a function of the target's program) is
 * looked up at the target, and must be offered there. NAME_main cannot use thread-local variables, constructors, C++
 * exceptions, or functions marked __attribute__((ifunc)); `farjump build` says where it finds one.
 *
 * Of the payload: it is aligned to 64 bytes, or to 8 if it has at most 40 bytes; FARJUMP_PAYLOAD_ALIGN asks for more.
 * NAME_main may write into it, and must not use it after it has returned. It comes from another process, which may
 * even write to it while NAME_main runs: read each length once, and check it before it is used.
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

/* Goes before the definition of each routine. In C only objects that other build systems compile with hidden
 * visibility need it; in C++ every routine does. */
#define FARJUMP_IFUNC FARJUMP_LINKAGE __attribute__((visibility("default")))

/* ---- What every target offers to NAME_main, besides memcpy, memmove, memset and memcmp ---- */

/* Appends len bytes to the reply of this call; they are copied. The reply is sent when NAME_main returns. Returns 0,
 * also if the source wants no reply, or -1 if the reply would be longer than the target allows: nothing is then
 * appended. */
int farjump_reply(const void *bytes, size_t len);

/* Has this call go on at another target: the function that is running is injected, with this payload as it is (the
 * payload routines do not run again), into the target that this one knows as `peer` (peer_len bytes, no zero needed; see
 * Target::set_peer, farjump serve --peer). What it replies there, or forwards itself to from there, is the answer to
 * this call; if the source wants none, nobody does. Peer and payload are copied, and the call goes on its way when
 * NAME_main returns: not if it panics. From then on nothing is known here of what comes of it; if it gets lost, the
 * source is told why.
 *
 * Returns 0 if it is to be forwarded. farjump_reply then returns -1, and what was given to it before is dropped.
 * Otherwise one of the numbers below, and the call is as it was: NAME_main may reply, panic or try another peer. Never
 * waits. */
int farjump_forward(const char *peer, size_t peer_len, const void *payload, size_t payload_size);

#define FARJUMP_UNKNOWN_PEER (-1) /* the target has no peer of that name */
#define FARJUMP_TOO_LARGE (-2)    /* no frame to that peer can have so long a payload */
#define FARJUMP_BUSY (-3)         /* 1024 calls, or as many bytes as fit a mailbox, are under way to that peer */
#define FARJUMP_TWICE (-4)        /* this call is forwarded already: it has one answer */

/* Ends this call, and it alone: the source's wait fails with the message (len bytes of UTF-8, no zero needed; copied),
 * and the target goes on. Does not return; what NAME_main holds is not released. */
__attribute__((noreturn)) void farjump_panic(const char *message, size_t len);

/* ---- What `farjump serve --data FILE` passes as target_args ---- */

/* The file, mapped read-only for as long as the target runs. */
struct farjump_data {
    uint32_t size;        /* of this structure in bytes, at least 32: later versions may append fields */
    uint32_t reserved;    /* zero */
    const uint8_t *bytes; /* the contents; not NULL, also if len is 0 */
    size_t len;           /* length of the contents, in bytes */
    const char *path;     /* the file's path as it was given, zero-terminated */
};

#ifdef __cplusplus
}
#endif

/* ---- Shorthands ---- */

/* Defines NAME_payload_get_max_size and NAME_payload_init: the payload is a copy of the arguments. No semicolon. The library
 * says so, and a program that calls the function needs run nothing of it (in Rust Library::open, in C
 * farjump_library_open()); one with payload routines of its own has to be loaded. */
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

/* Asks for payloads of NAME at multiples of `bytes`: a power of two from 8 to 4096. `farjump build` writes the wish into
 * the image; nothing of it travels as data. */
#define FARJUMP_PAYLOAD_ALIGN(name, bytes)                                                                            \
    FARJUMP_CHECK((bytes) >= 8 && (bytes) <= 4096 && ((bytes) & ((bytes) - 1)) == 0,                                  \
                  "a payload's alignment is a power of two from 8 to 4096");                                          \
    static const uint32_t name##_payload_align __asm__(#name "_payload_align")                                        \
        __attribute__((used, section(".farjump.payload_align"))) = (bytes)

#endif
