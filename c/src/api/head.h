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
