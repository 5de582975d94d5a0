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
