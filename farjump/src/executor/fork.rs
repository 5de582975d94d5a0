//! Forked children of a process that runs injected code.
//!
//! A function may fork, and so may the program while a function runs. The child has a copy of the code and continues in
//! it, but nothing after it is the child's: the reply, the source and the mailbox are its parent's. So the call that
//! runs in a new child is changed to end the child when it returns or panics. Other calls pay nothing for it.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Most characters of a panic's message that are shown.
const MESSAGE: usize = 512;

/// The process that made the last fork, in itself and in its child.
static PARENT: AtomicU32 = AtomicU32::new(0);

/// From now on, runs `in_child` in each child, on the thread that forked. It makes the call that runs there end the
/// child when it returns or panics.
pub(super) fn watch(in_child: extern "C" fn()) {
    static WATCH: Once = Once::new();
    // SAFETY: the functions stay as long as this library, which takes them off when it is unloaded; they only
    // write memory that is theirs or the forking thread's.
    WATCH.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), None, Some(in_child));
    });
}

extern "C" fn before() {
    PARENT.store(std::process::id(), Ordering::Relaxed);
}

/// Ends the child, whose call has ended: `panicked` is the message of its panic.
pub(super) fn end_child(main: u64, panicked: Option<&[u8]>) -> ! {
    let name = farjump_loader::address_map::find(main);
    let name =
        name.as_ref().map_or_else(|| "an ifunc".to_owned(), |found| format!("ifunc `{}`", found.name()));
    let how = panicked.map_or_else(
        || "returned".to_owned(),
        |message| {
            format!("panicked ({})", farjump_control::plain(&String::from_utf8_lossy(message), MESSAGE))
        },
    );
    let (child, parent) = (std::process::id(), PARENT.load(Ordering::Relaxed));
    let line = format!(
        "farjump: {name} {how} in process {child}, a forked child of the target with pid {parent}: the child ends, because \
         only the target replies; end a forked child by _exit()\n"
    );
    // The lock of the standard stream may have been held at the fork by a thread that is not in the child.
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
    // SAFETY: it has no conditions.
    unsafe { libc::_exit(1) }
}
