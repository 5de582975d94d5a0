/*
 * The interface of the papers' two prototypes, on an unmodified UCX from 1.13 on.
 *
 * A program that was written for a prototype gets this header by `-include ucp_ifunc.h`, and libfarjump by
 * `-lfarjump`. One of these macros selects the prototype:
 *
 *     IFUNC_API_TWO_CHAINS     the first; the default if neither is defined
 *     IFUNC_API_THREE_CHAINS   the later one: registration parameters, ucp_ifunc_msg_get_payload_ptr, a worker for polling
 *
 * Files of both kinds may be in one program, and frames go between them.
 *
 * An *ifunc* called NAME is three functions in a library NAME.so, in the directory that the environment variable
 * UCX_IFUNC_LIB_DIR names (default: /usr/lib; read each time):
 *
 *     void   NAME_main(void *payload, size_t payload_size, void *target_args);       runs at the target
 *     size_t NAME_payload_get_max_size(void *source_args, size_t source_args_size);  these two run at the source
 *     int    NAME_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size);
 *
 * or, for programs of either variant, in the later prototype's form:
 *
 *     size_t NAME_payload_bound(void *source_args, size_t source_args_size);
 *     int    NAME_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size);
 *
 * If `farjump build` made the library of the same sources (`farjump build NAME.c -o NAME.so`), code travels in
 * frames and a target needs no file. A frame carries the images for all machines. Where the slot shows the target's
 * machine, the frame carries the image for that machine alone. For a library that a compiler made (`cc -shared -fPIC`)
 * only the name travels: the target needs a library of that name in its directory, and calls its NAME_main.
 *
 * Injected code is linked against the target's process: its program's symbols (link it with -rdynamic), those of
 * its libraries, these functions. For other imports the target opens libraries, which runs their constructors. If its
 * directory has a file NAME.so, these are that file and the libraries that it depends on. Otherwise they are the
 * libraries that the code wants (dependencies of bitcode).
 *
 * STATUS. UCX's codes, as each function lists them. `farjump_last_error()` of farjump.h returns the text of this
 * thread's last error.
 *
 * THREADS. Several threads may call every function at once. One thread at a time polls a buffer, and one at a time
 * writes a slot. Endpoints, keys and workers are under UCX's own rules. A running ifunc may call all of these
 * functions.
 *
 * FORKS. A child has none of the code that came to its parent: fork a child that polls before the first frame
 * comes.
 *
 * TRUST. Native code is trusted code: a peer that may write into a polled buffer has all rights of the process.
 */
#ifndef FARJUMP_UCP_IFUNC_H
#define FARJUMP_UCP_IFUNC_H

#include <stddef.h>
#include <stdint.h>

#include <ucp/api/ucp.h>

#if defined(IFUNC_API_TWO_CHAINS) && defined(IFUNC_API_THREE_CHAINS)
#error "define one of IFUNC_API_TWO_CHAINS and IFUNC_API_THREE_CHAINS"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A registered ifunc. A handle stays readable after it was deregistered, so that functions detect later use. */
typedef struct ucp_ifunc *ucp_ifunc_h;

/*
 * A frame that can be sent any number of times, to any slot. It is passed by value. The program may read frame_size,
 * the space that a slot needs, which is a multiple of 8. The memory at frame is private.
 */
typedef struct ucp_ifunc_msg {
    ucp_ifunc_h ifunc_h;
    void *frame;
    size_t frame_size;
} ucp_ifunc_msg_t;

/*
 * Registration parameters of the later prototype. With llvm_bc, ucp_register_ifunc reads bitcode in place of a library.
 * A function that is pure has no dependencies: ucp_register_ifunc does not read NAME.deps for it. Without llvm_bc, pure
 * has no effect, because machine code names its imports itself.
 * ucp_register_ifunc_im reads the name alone.
 */
typedef struct ucp_ifunc_reg_param {
    char *name;
    int pure;
    int llvm_bc;
} ucp_ifunc_reg_param_t;

/*
 * Code that ucp_register_ifunc_im registers for one machine, `size` bytes at `bc`: LLVM's bitcode, with NAME_main and
 * both payload routines. It can also be an image of farjump's, whose payloads are the arguments, or the contents of a
 * library's file; these need no compiler. `triple` is the machine's, as x86_64-linux-gnu or aarch64-unknown-linux-gnu.
 */
typedef struct ucp_llvm_bc {
    char *triple;
    void *bc;
    uint32_t size;
} ucp_llvm_bc_t;

/*
 * Registers an ifunc for a context: from its library in the directory or, where there is none, from code that came
 * to this process in a frame. The latter has no payload routines here: the arguments of its messages are their
 * payload. For a name that is registered already it returns UCS_OK and the existing handle. *ifunc_p is NULL unless
 * the status is UCS_OK.
 *
 * With llvm_bc it registers bitcode in the directory, NAME.TRIPLE.bc for each machine, in place of a library.
 * NAME.deps, if there is one, has the name of a dependency in each line. Bitcode and dependencies are as
 * ucp_register_ifunc_im takes them, with its errors.
 *
 *   UCS_ERR_INVALID_PARAM   an argument is NULL, or the name is invalid: letters, digits and `_`, no digit first
 *   UCS_ERR_EXCEEDS_LIMIT   the name has more than 255 bytes
 *   UCS_ERR_IO_ERROR        the library does not exist, or is no ifunc library; there is no bitcode, or it cannot be
 *                           read
 */
ucs_status_t farjump_ucp2_register_ifunc(ucp_context_h context, const char *ifunc_name, ucp_ifunc_h *ifunc_p);
ucs_status_t farjump_ucp3_register_ifunc(ucp_context_h context, ucp_ifunc_reg_param_t param, ucp_ifunc_h *ifunc_p);

/*
 * Registers an ifunc from memory, which may be freed then. The program farjump_compiler makes an image of each bitcode
 * whose machine its LLVM knows, for any CPU of that machine. The images travel; bitcode for other machines is left out.
 * The program compiles the payload routines for this CPU, and they run here. The program starts with the first bitcode,
 * and ends when the last ifunc made of bitcode is deregistered. docs/guide/ucp-ifunc.md lists the places where it is looked
 * for.
 *
 * The dependencies are the names of libraries that define imports of the bitcode, as libz.so.1. A target opens them for
 * imports that it does not have, and this process for imports of the payload routines. Images and libraries state their
 * own.
 *
 *   UCS_ERR_INVALID_PARAM   an argument is NULL or no UTF-8, an array has more than 256 entries, or the name is invalid
 *   UCS_ERR_EXCEEDS_LIMIT   the name has more than 255 bytes, bitcode more than 64 MiB, or payload routines with their
 *                           variables more than 16 MiB
 *   UCS_ERR_ALREADY_EXISTS  the name is registered for this context
 *   UCS_ERR_OUT_OF_RANGE    two triples are one machine's
 *   UCS_ERR_UNREACHABLE     a dependency is a path, or otherwise no name that a target would look for, or there are
 *                           more than 16
 *   UCS_ERR_UNSUPPORTED     there is no farjump_compiler, or no LLVM 17 or newer, or its LLVM does not know this
 *                           machine; or this process may not make memory executable
 *   UCS_ERR_REJECTED        the bytes are damaged, are code for another machine than the triple's, cannot travel, or
 *                           take more than 1 GiB to compile
 *   UCS_ERR_NO_ELEM         there is bitcode and none of it for this machine, no NAME_main, no payload routine, or an
 *                           import of those is not here
 *   UCS_ERR_NO_RESOURCE     compiling took more than 10 seconds, or the program ended meanwhile
 *   UCS_ERR_IO_ERROR        a library cannot be loaded
 *   UCS_ERR_NO_MEMORY
 */
ucs_status_t farjump_ucp3_register_ifunc_im(ucp_context_h context, ucp_ifunc_reg_param_t param, ucp_llvm_bc_t *bitcodes,
                                            int bitcode_count, char **dependencies, int dependency_count,
                                            ucp_ifunc_h *ifunc_p);

/*
 * Deregisters a handle, and unloads its library unless functions of it are called by name here. Its messages stay
 * valid, and code that came to this process stays placed. A handle that is NULL, was deregistered before, or is
 * another context's changes nothing; farjump_last_error() says so.
 */
void farjump_ucp_deregister_ifunc(ucp_context_h context, ucp_ifunc_h ifunc);

/*
 * Makes a message: calls the payload routines with source_args and source_args_size unchanged. ucp_ifunc_msg_free frees
 * it.
 *
 *   UCS_ERR_CANCELED        payload_init did not return 0, or wrote past its space
 *   UCS_ERR_INVALID_PARAM   an argument is NULL, or the handle was deregistered
 *   UCS_ERR_EXCEEDS_LIMIT   the frame would be longer than 2 GiB
 *   UCS_ERR_NO_MEMORY
 */
ucs_status_t farjump_ucp_ifunc_msg_create(ucp_ifunc_h ifunc, void *source_args, size_t source_args_size,
                                          ucp_ifunc_msg_t *msg_p);

/*
 * Frees a message, at any time after it was sent: UCX sends from a copy. It leaves a message that was freed before
 * unchanged, unless a new message has got its memory. That memory is kept for new messages.
 */
void farjump_ucp_ifunc_msg_free(ucp_ifunc_msg_t msg);

/*
 * Returns the address of a message's payload, to be changed before it is sent, and its length; size may be NULL.
 *
 *   UCS_ERR_INVALID_PARAM   an argument is NULL, or the message was freed
 */
ucs_status_t farjump_ucp_ifunc_msg_get_payload_ptr(ucp_ifunc_msg_t *msg_p, void **payload, size_t *size);

/*
 * Writes a message's frame to remote_addr: a slot, which is frame_size bytes of memory that the target has mapped
 * with UCX and polls at that very address. Returns UCS_OK, or UCS_INPROGRESS (which is positive) while UCX still
 * sends: flush the endpoint or the worker, as after ucp_put_nbi. Neither means that the target has run the frame.
 *
 * Where UCX can map the target's memory here (shared memory), the slot's state is visible:
 *
 *   UCS_ERR_NO_RESOURCE     the slot has a frame that the target has not taken; nothing was written
 *   UCS_ERR_INVALID_ADDR    the frame would not lie in the memory of the key; where the endpoint leads to the process
 *                           itself (UCX 1.15 and later), in no memory that it can write
 *
 * and code travels only until the slot's last frame shows that the target has it. Elsewhere neither is known, and code
 * always travels. Do not send a second frame to a slot there before the target has taken the first. There, the device
 * rejects an address outside the target's memory; where UCX emulates the put, it writes to that address.
 *
 *   UCS_ERR_INVALID_ADDR    remote_addr is no multiple of 8, or of the payload alignment that the function wants
 *   UCS_ERR_INVALID_PARAM   an argument is NULL or 0, or the message was freed
 *   UCS_ERR_NO_MEMORY
 *   others                  UCX's, as ucp_put_nbx returns them
 */
ucs_status_t farjump_ucp_ifunc_send_nbix(ucp_ep_h ep, ucp_ifunc_msg_t msg, uint64_t remote_addr, ucp_rkey_h rkey);

/*
 * Runs the frame at the start of buffer, if a whole one is there. Never waits. The buffer is at a multiple of 8 and
 * has 24 bytes at least; it need not be cleared between uses, nor before the first.
 *
 * The slot counts as taken when NAME_main is called: a frame sent to it before NAME_main has returned overwrites the
 * payload.
 *
 * Puts that UCX emulates (over TCP) come only while ucp_worker_progress is called. A program of the first variant calls
 * it itself. A program of the later one passes the worker, which makes progress where there is no frame.
 *
 *   UCS_ERR_NO_MESSAGE      no frame, or no whole one
 *   UCS_ERR_INVALID_PARAM   an argument is NULL, or the buffer too short or not aligned
 *
 * For a frame that is discarded, without having run unless it panicked:
 *
 *   UCS_ERR_CANCELED        longer than the buffer, malformed, or different from its claims; or its function cannot be
 *                           registered here: its library or an import is missing, it is for another machine, or no
 *                           capacity is left for code (16 MiB, and as much for all else of functions; both stay);
 *                           or it panicked
 *   UCS_ERR_NO_ELEM         it brought no code, and the called code is not here
 *   UCS_ERR_INVALID_ADDR    its function wants another payload alignment
 *   UCS_ERR_TIMED_OUT       its end did not come within a second
 */
ucs_status_t farjump_ucp2_poll_ifunc(ucp_context_h context, void *buffer, size_t buffer_size, void *target_args);
ucs_status_t farjump_ucp3_poll_ifunc(ucp_context_h context, void *buffer, size_t buffer_size, void *target_args,
                                     ucp_worker_h worker);

#ifdef __cplusplus
}
#endif

/* The papers' names. */
#ifdef IFUNC_API_THREE_CHAINS
#define ucp_register_ifunc farjump_ucp3_register_ifunc
#define ucp_register_ifunc_im farjump_ucp3_register_ifunc_im
#define ucp_poll_ifunc farjump_ucp3_poll_ifunc
#define ucp_ifunc_msg_get_payload_ptr farjump_ucp_ifunc_msg_get_payload_ptr
#else
#define ucp_register_ifunc farjump_ucp2_register_ifunc
#define ucp_poll_ifunc farjump_ucp2_poll_ifunc
/* Calls that the first prototype lacks. A file that uses one is of the later kind, compiled without its macro. */
#ifdef __has_attribute
#if __has_attribute(error)
#ifdef __cplusplus
extern "C" {
#endif
__attribute__((error("compile this with -DIFUNC_API_THREE_CHAINS: it calls what only the later prototype has")))
ucs_status_t ucp_register_ifunc_im(ucp_context_h context, ucp_ifunc_reg_param_t param, ucp_llvm_bc_t *bitcodes,
                                   int bitcode_count, char **dependencies, int dependency_count, ucp_ifunc_h *ifunc_p);
__attribute__((error("compile this with -DIFUNC_API_THREE_CHAINS: it calls what only the later prototype has")))
ucs_status_t ucp_ifunc_msg_get_payload_ptr(ucp_ifunc_msg_t *msg_p, void **payload, size_t *size);
#ifdef __cplusplus
}
#endif
#endif
#endif
#endif
#define ucp_deregister_ifunc farjump_ucp_deregister_ifunc
#define ucp_ifunc_msg_create farjump_ucp_ifunc_msg_create
#define ucp_ifunc_msg_free farjump_ucp_ifunc_msg_free
#define ucp_ifunc_send_nbix farjump_ucp_ifunc_send_nbix
#define ucp_ifunc_msg_send_nbix farjump_ucp_ifunc_send_nbix

#endif
