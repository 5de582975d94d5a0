//! The options of a link.

use std::path::PathBuf;
use std::time::Duration;

use farjump_core::wait::WaitPolicy;

use super::kinds::{Auto, Bytes, Device, File, Flag, ModeName, Spinning, Text, Time, TransportName};
use super::table::{Interfaces, options};
use crate::Mode;

options! {
    /// The options of a link.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use farjump::config::LinkConfig;
    ///
    /// let config = LinkConfig { send_timeout: Duration::from_secs(1), ..LinkConfig::default() };
    /// let link = farjump::Link::builder("unix:store.sock").config(config).connect()?;
    /// # Ok::<(), farjump::Error>(())
    /// ```
    LinkConfig of "a link", methods of (crate::LinkBuilder, config);

    /// The transport; ucx for the better of ucx-put and ucx-am.
    transport: [Option<String>] Auto<TransportName> = None, "shm, or the target's choice";

    /// The RDMA device and port for verbs-write and verbs-send, for the whole process: rxe0, rxe0:1 (`farjump transports`
    /// lists them).
    device: [Option<String>] Auto<Device> = None, "the nearest active one, or the one that reaches the peer",
        shown Interfaces::LIBRARY.union(Interfaces::COMMAND_LINE), feature Some("verbs");

    /// Let ucx-am use UCX's TCP, which the peer has to allow too. A process that reaches a UCX port may then write this
    /// process's memory, with or without the key (docs/security.md). tcp reaches other machines without that.
    ucx_tcp: [bool] Flag = false, "no";

    /// The file with the key for tcp: addresses, the same as the peer's (`farjump key`).
    ///
    /// It encrypts the control connection; of the transports, only `tcp` encrypts frames. Without a key, a link connects
    /// only to a target of the same user on this machine's loopback. The file is read only for such an address.
    key_file: [Option<PathBuf>] Auto<File> = None, "none", formerly &["key"];

    /// Time for which the target's machine may be silent before the target counts as gone, at tcp: addresses.
    ///
    /// A target that is only slow is not gone: each wait has its own limit.
    peer_timeout: [Duration] Time = Duration::from_secs(10), "10s", range Some((1_000_000_000, 32_767_000_000_000));

    /// Let frames travel unencrypted by transport tcp although both processes have a key, if the peer allows it too: for
    /// networks that you trust. The control connection is encrypted in any case.
    clear: [bool] Flag = false, "no";

    /// How code reaches the target: cached sends it with the first call, always with each; in mode local the target has
    /// the library itself; in-place sends it with each call and runs it inside the mailbox.
    ///
    /// [`Link::set_mode`](crate::Link::set_mode) changes it.
    mode: [Mode] ModeName = Mode::Cached, "cached";

    /// Limit for connecting as a whole.
    connect_timeout: [Duration] Time = Duration::from_secs(5), "5s", shown Interfaces::LIBRARY;

    /// Longest time that an injection waits for credit.
    send_timeout: [Duration] Time = Duration::from_secs(10), "10s", shown Interfaces::LIBRARY;

    /// Capacity for replies that the target has written and this source has not yet taken, rounded up to a power of two.
    /// Also the largest reply.
    reply_mailbox_size: [usize] Bytes = 1 << 20, "1M", range Some((0, 2 << 30));

    /// Let the mailbox for replies have all of its memory when the link is made.
    prefault: [bool] Flag = false, "no";

    /// The spinning of a wait before it sleeps: a number of turns, never, always, events (aarch64), or the turns of each
    /// phase, SPINS/PAUSES/EVENTS/YIELDS.
    ///
    /// The default is 4,000 turns that spin, 6,000 that pause (1,000 in tasks), some 150 us together, and 16 that yield
    /// the processor. On a machine with one processor a wait yields after 20 turns. Where this machine's timer sends no
    /// events, turns that wait for one ([`WaitPolicy::events_only`](crate::WaitPolicy::events_only)) pause instead.
    wait_policy: [Option<WaitPolicy>] Auto<Spinning> = None, "by the number of processors";

    /// Shortest interval at which a link that polls or spins checks with the system whether the target exists.
    ///
    /// The target reports everything else in memory that the link reads anyway.
    control_interval: [Duration] Time = Duration::from_millis(1), "1ms";

    /// The name shown to users of the target.
    program: [Option<String>] Auto<Text> = None, "the name of the program's file";

    /// Compile functions for exactly the target's CPU, in the background, if the library carries its source (farjump build
    /// --carry-source). Calls run the library's image until the target has the compiled one. The source's flags can make
    /// the compiler run programs: only for libraries whose author you trust.
    ///
    /// It applies to code that has no writable variables. The first call of a library in mode cached starts the compiler,
    /// and no call waits for it. If the compilation fails, or the target refuses the image, calls keep the carried image.
    /// The compiled image belongs to no family: a target with a list of allowed code has to allow its id. A process
    /// compiles once for each source and CPU. The end of the last link that wants an image, and the end of the process,
    /// end its compiler.
    compile_for_peer by hand: [bool] Flag = false, "no", feature Some("build");

    /// The C compiler of `compile-for-peer`, with arguments if it needs some.
    cc by hand: [Option<String>] Auto<Text> = None, "cc, and for another machine its own gcc or clang", needs &["compile-for-peer"];
}
