//! The options of a target.

use std::path::PathBuf;
use std::time::Duration;

use farjump_control::{Limits, Rights};
use farjump_core::image::{CodeId, Level};
use farjump_core::wait::WaitPolicy;

use super::kinds::{
    Address, Auto, Bitcode, BitcodeUse, Bytes, CodeList, Count, Count32, CpuLevel, Destination, Device, File,
    Flag, Folder, List, ModeName, ModeNames, RightNames, SharedLibrary, Soname, Spinning, Text, Time,
    TransportName,
};
use super::table::{Interfaces, options};
use crate::Mode;

/// All but the memory that the interfaces give in objects of their own.
const LIBRARIES: Interfaces = Interfaces::LIBRARY.union(Interfaces::PROGRAM);
/// Also the module, whose target is the server.
const EVERYWHERE: Interfaces = LIBRARIES.union(Interfaces::MODULE);
/// Options whose variable the libraries read themselves.
const READ_ELSEWHERE: Interfaces = LIBRARIES.difference(Interfaces::ENVIRONMENT);
/// Times that a target adds to the present one: up to a day.
const A_DAY: Option<(u64, u64)> = Some((1, 86_400_000_000_000));
/// Options that take an object of the program's in libraries.
const TEXT_ONLY: Interfaces = Interfaces::PYTHON.union(Interfaces::PROGRAM);

options! {
    /// The options of a target.
    ///
    /// ```no_run
    /// use farjump::config::TargetConfig;
    ///
    /// let config = TargetConfig { mailbox_size: 64 << 10, max_sources: 8, ..TargetConfig::default() };
    /// let target = farjump::Target::listen("unix:store.sock").config(config).build()?;
    /// # Ok::<(), farjump::Error>(())
    /// ```
    TargetConfig of "a target", methods of (crate::TargetBuilder<'_>, config);

    /// The address to listen at: unix:PATH, unix:@NAME (abstract) or tcp:HOST:PORT. At unix:PATH it takes over the
    /// socket of an ended target. At tcp: it needs keys, unless HOST is this machine's loopback. For port 0 the system
    /// chooses one.
    ///
    /// In Rust, C and Python the address is an argument of its own.
    listen by hand: [Option<String>] Auto<Address> = None, "none", shown Interfaces::PROGRAM;

    /// The file with the keys of sources at tcp: addresses (`farjump key`).
    ///
    /// It has a line for each key: 64 at most, each with a name and optionally its own rights (`rights` otherwise;
    /// docs/guide/operations.md). It takes precedence over a key in memory. If it holds one key alone, destinations at
    /// such addresses use it (`peer-key-file` otherwise). The target reads the file only if it, or a destination that it is built
    /// with, is at such an address.
    ///
    /// The target checks the file while it runs: changes count within about a second. Removing a key ends its links, and
    /// so does a change of its rights; their sources get the reason. While the file cannot be read or parsed, the last
    /// valid contents stay in force. If it is gone, or holds no key, all links by its keys end.
    key_file: [Option<PathBuf>] Auto<File> = None, "none", shown EVERYWHERE, formerly &["key"];

    /// The file with the key for destinations at tcp: addresses.
    ///
    /// The target reads it when it is built.
    peer_key_file: [Option<PathBuf>] Auto<File> = None, "that of `key-file`, if its file holds only one", formerly &["peer-key"];

    /// Time for which the machine of a source or destination may be silent before the peer counts as gone, at tcp:
    /// addresses.
    ///
    /// A source whose machine responds may leave its link idle for any time.
    peer_timeout: [Duration] Time = Duration::from_secs(10), "10s",
        shown EVERYWHERE, range Some((1_000_000_000, 32_767_000_000_000));

    /// Let frames travel unencrypted by transport tcp although both processes have a key, if the peer allows it too: for
    /// networks that you trust. The control connection is encrypted in any case.
    clear: [bool] Flag = false, "no", shown EVERYWHERE;

    /// The file that injected functions work on, mapped read-only.
    ///
    /// Functions get a `struct farjump_data *` as `target_args`. A target with arguments of its own has no file.
    data by hand: [Option<PathBuf>] Auto<File> = None, "no bytes", shown TEXT_ONLY;

    /// Shared libraries to load, by path or soname, whose symbols are offered to injected code.
    ///
    /// They are loaded when the target is built, and run their constructors then.
    export_library by hand: [Vec<PathBuf>] List<SharedLibrary> = Vec::new(), "none", formerly &["export", "exports"];

    /// Shared libraries to load for injected code that wants them, by soname (libz.so.1).
    ///
    /// An image names the libraries that it wants; one that is not among these is never opened, and a name with a slash is
    /// an error. The first code that wants a library and imports a symbol found nowhere else opens it.
    wanted_library by hand: [Vec<String>] List<Soname> = Vec::new(), "none", formerly &["wanted-libraries"];

    /// The rights of sources: observe (statistics, the code store), call (functions that the target has), inject (bring
    /// code), drop (drop stored code), export (add libraries); or none. A list replaces the default; names with a sign
    /// change it: +drop,-inject.
    ///
    /// They are those of processes of the target's user, or that hold a key without rights of its own. Each process
    /// learns its rights when it connects, and a request without the right is refused.
    rights: [Rights] RightNames = Rights::default(), "observe,call,inject", formerly &["allow"];

    /// Let sources add libraries while the target runs (farjump export), whose symbols take precedence over all others.
    /// Adds export to `rights`.
    ///
    /// A process restricted to the code of `allow-code` could run any code by this.
    allow_export: [bool] Flag = false, "no";

    /// Offer the symbols of this process to injected code too, all of libc included, after everything else.
    process_symbols: [bool] Flag = false, "no", formerly &["allow-process-symbols"];

    /// The modes that sources may use: cached, always, local, in-place.
    modes: [Vec<Mode>] ModeNames = Mode::DEFAULT.to_vec(), "cached,always,local", formerly &["mode"];

    /// Libraries whose functions sources may call in mode local: only the name travels then.
    ///
    /// Their functions are linked with the target's exports when the target is built.
    local by hand: [Vec<PathBuf>] List<File> = Vec::new(), "none";

    /// Other targets, to which injected code may forward itself by a name (farjump_forward).
    ///
    /// The first call makes a link, over one of the built-in transports; so does the first call after a link has ended.
    /// Processes that may inject into this target may then run code at the destination too.
    destination by hand: [Vec<(String, String)>] List<Destination> = Vec::new(), "none", formerly &["destinations"];

    /// Let functions make code, as images or bitcode, and send it messages (farjump_make, farjump_inject).
    ///
    /// The target treats the code like code that a source brings, with the same checks and limits, except that no source
    /// pays for its memory.
    allow_making: [bool] Flag = false, "no";

    /// The mode in which functions that forward themselves reach destinations: cached, or always if each message brings
    /// the code.
    ///
    /// The mode of the call that came here does not matter. A destination where this target may bring no code gets its id
    /// instead.
    forward_mode: [Mode] ModeName = Mode::Cached, "cached";

    /// Messages that a call may send, by farjump_forward and farjump_again.
    max_forwards: [usize] Count = 64, "64";

    /// Targets that may forward a call, one after the other.
    ///
    /// The target reports a call that would go farther to its source, and refuses calls that come here after more hops.
    max_hops: [u32] Count32 = 256, "256";

    /// Payload that may wait for one destination, or to run again. One payload may wait in any case.
    max_forward_bytes: [Option<usize>] Auto<Bytes> = None, "the capacity of the mailbox", range Some((1, u64::MAX));

    /// Times that a call may run again here, one after the other (farjump_again).
    ///
    /// The target reports a call that would run more often to its source.
    max_again: [u32] Count32 = 1 << 20, "1048576";

    /// Allow code with these ids, or of the families with these ids (a library's images for all machines), and no other.
    /// @FILE lists several. Those of `local` are always allowed.
    ///
    /// The target requests the list of a library's images from a source; the family id is the hash of that list. Code
    /// that a source compiled for this CPU is in no list.
    allow_code by hand: [Option<Vec<CodeId>>] CodeList = None, "all code", shown EVERYWHERE, formerly &["allow"];

    /// Largest frame of a source, with header and code, rounded down to a multiple of 64.
    ///
    /// Sources learn it when they connect, and send no longer one; the target cuts the link of a source that does.
    max_frame: [Option<usize>] Auto<Bytes> = None, "as the largest payload and code need", range Some((1, u64::MAX));

    /// Largest image of a source.
    ///
    /// Sources learn it when they connect.
    max_image: [Option<usize>] Auto<Bytes> = None, "limited by the frame and the arena alone", range Some((1, u64::MAX));

    /// Largest payload of a source.
    ///
    /// A source whose payload does not fit its mailbox gets a large mailbox while it needs it, which takes two to four
    /// times as many bytes of memory, at this limit about twice as many. With code a payload may have up to 1 GiB; a larger
    /// limit is taken as that. Where the transport delivers whole frames, such a payload takes as many bytes as it has,
    /// and comes when nothing else of its source is under way. Sources learn an explicit limit when they connect. A limit
    /// below 40 bytes makes small calls slower, which otherwise need no check of their length.
    max_payload: [Option<usize>] Auto<Bytes> = None, "64M, or the mailbox's capacity", range Some((1, u64::MAX));

    /// Most sources at a time, including those in the handshake; more are rejected. A process may be several sources.
    max_sources: [usize] Count = 256, "256", shown EVERYWHERE, range Some((1, u32::MAX as u64)), formerly &["max-links"];

    /// Memory that one source may take here, its mailbox included.
    ///
    /// It counts the mailbox and the control page of 4096 bytes before it; a large mailbox while there is one; where the
    /// transport delivers whole frames, the longest frame that the source may send if that is more than the mailbox, which
    /// then has at most half of the rest; code that the source was the first to bring, for as long as that is in the store:
    /// the image as it came, and the space of its code and its statics; a reply that waits for credit, or is held, also one
    /// of a destination or of a call that ran again; and replies of destinations that are gathered for a call. Requests
    /// over the limit are refused.
    max_source_memory: [Option<usize>] Auto<Bytes> = None, "no limit", range Some((1, u64::MAX));

    /// Capacity for the frames of each source that the target has not run yet, rounded up to a power of two.
    ///
    /// A source gets a large mailbox while it sends payloads that do not fit, see `max-payload`.
    mailbox_size: [usize] Bytes = 4 << 20, "4M", shown EVERYWHERE, range Some((0, 2 << 30)), formerly &["mailbox"];

    /// Let a mailbox have all of its memory when its link is made.
    ///
    /// Otherwise it takes memory over `shm` as frames first come to it, from 256 KiB up to its size. This costs the source
    /// of a stream a page fault for each 4 KiB of the first lap. Where the system counts what it promises
    /// (`vm.overcommit_memory` 2), the mailbox has all in any case.
    prefault: [bool] Flag = false, "no";

    /// Capacity of the code store in bytes of images as they travel. The target drops the least recently used image first,
    /// with its statics.
    ///
    /// It requests the code again from a source that calls it. Functions of `local` count, and are not dropped.
    store_bytes: [Option<usize>] Auto<Bytes> = None, "twice `arena-size`",
        range Some((1, u64::MAX)), formerly &["store-capacity"];

    /// Capacity of the code store in images.
    store_images: [usize] Count = 8192, "8192", range Some((1, u64::MAX));

    /// Bytes reserved for code, and as many again for its statics. Both take memory at once.
    ///
    /// They take as much address space, and 1 GiB more (`ulimit -v`).
    arena_size: [usize] Bytes = 16 << 20, "16M", shown EVERYWHERE, memory true, formerly &["code-room"];

    /// Keep objects for other processes (farjump put), in at most this much memory. Only the used part is taken.
    objects by hand: [Option<usize>] Auto<Bytes> = None, "no objects",
        shown TEXT_ONLY, memory true, range Some((1, u64::MAX)), formerly &["store"];

    /// When the memory for objects is full, write the least recently used ones to a file without a name in this folder.
    objects_spill_folder by hand: [Option<PathBuf>] Auto<Folder> = None, "refuse new objects",
        shown TEXT_ONLY, needs &["objects", "objects-spill-bytes"], formerly &["objects-spill"];

    /// Most bytes of the file in `objects-spill-folder`.
    objects_spill_bytes by hand: [Option<usize>] Auto<Bytes> = None, "none",
        shown TEXT_ONLY, needs &["objects", "objects-spill-folder"], range Some((1, u64::MAX));

    /// Claim a CPU of this level, and no features above it: baseline, and on x86-64 v2, v3 or v4. Sources send code for
    /// no higher level.
    ///
    /// So sources can send the same code to all machines of a fleet whose CPUs differ, and one machine can stand for
    /// several in tests. The CPU then has no name either.
    cpu_level: [Option<Level>] Auto<CpuLevel> = None, "all features of the CPU";

    /// Take bitcode (farjump build --bitcode), which the program farjump_compiler compiles for this CPU: with fallback
    /// that of libraries without an image for this CPU, with prefer that of all libraries that have any.
    ///
    /// The program is started with the target and ends with it; it opens LLVM. A first, unoptimised image comes within
    /// milliseconds; an optimised one replaces it between two calls. Other frames of a source wait for the first image of
    /// its next one; other sources do not.
    bitcode: [Option<BitcodeUse>] Auto<Bitcode> = None, "no bitcode", feature Some("bitcode");

    /// The program that compiles bitcode.
    ///
    /// Otherwise it is the one that `FARJUMP_COMPILER` names; or `farjump_compiler` beside the running program, or in
    /// `../libexec/farjump` from the folder of the library or program that farjump is in. There it must be one that only
    /// root, this user or the owner of that library can have put there.
    compiler: [Option<PathBuf>] Auto<File> = None, "farjump_compiler beside this program", needs &["bitcode"];

    /// The library of LLVM, 17 or newer.
    ///
    /// Otherwise it is the one that `FARJUMP_LIBLLVM` names, or the newest that is installed, or in the toolchain of the
    /// compiler of Rust that `RUSTC` names.
    llvm: [Option<PathBuf>] Auto<SharedLibrary> = None, "the newest that is installed", needs &["bitcode"];

    /// Keep compiled images in this folder, for later runs. It must belong to this user alone.
    bitcode_cache: [Option<PathBuf>] Auto<Folder> = None, "none", needs &["bitcode"];

    /// Time limit for compiling one library.
    compile_timeout: [Duration] Time = Duration::from_secs(10), "10s", range A_DAY, needs &["bitcode"];

    /// Memory limit for compiling one library, besides the memory that LLVM takes before it.
    compile_memory: [usize] Bytes = 1 << 30, "1G", needs &["bitcode"];

    /// Polls without a frame before the target sleeps: a number, never to sleep at once, always never to sleep, events
    /// never to sleep but to stop the core between polls (aarch64 with one source; elsewhere it pauses), or the turns of
    /// each phase, SPINS/PAUSES/EVENTS/YIELDS.
    ///
    /// Spinning makes calls fast if each process has a core of its own; otherwise it keeps the peer from running.
    wait_policy: [Option<WaitPolicy>] Auto<Spinning> = None, "by the number of processors", formerly &["spin"];

    /// Time limit for the rest of a frame after its signal. The target cuts the link of a source that exceeds it.
    ///
    /// A frame in a large mailbox has another second for each MiB.
    stall_timeout: [Duration] Time = Duration::from_secs(1), "1s", range A_DAY;

    /// Time for a source to make its link here, and for a link to a destination.
    ///
    /// Also for a source to connect to the large mailbox that it requested. `ucx-put` between machines connects in an
    /// exchange with the source, which may take as long again. The target does nothing else meanwhile, so the limit also
    /// bounds the delay of other sources if one falls silent then.
    handshake_timeout: [Duration] Time = Duration::from_secs(2), "2s", range A_DAY;

    /// Shortest interval at which a busy target looks for new connections.
    ///
    /// Sources that need attention sooner set a notice in memory that the target reads anyway.
    control_interval: [Duration] Time = Duration::from_millis(1), "1ms";

    /// Let exported functions query the principal of the running call, and the program the caller of the last one.
    ///
    /// Otherwise each poll is some instructions shorter.
    expose_callers: [bool] Flag = false, "no", shown Interfaces::RUST;

    /// The name under which sources, destinations and `farjump stats` show this target: 64 characters of it.
    program: [Option<String>] Auto<Text> = None, "the name of the program's file";

    /// Use this transport and no other, by the name that `farjump transports` shows; ucx for ucx-put and ucx-am.
    transport: [Option<String>] Auto<TransportName> = None, "shm", shown EVERYWHERE;

    /// The RDMA device and port for verbs-write and verbs-send, for the whole process: rxe0, rxe0:1 (`farjump transports`
    /// lists them).
    device: [Option<String>] Auto<Device> = None, "the nearest active one, or the one that reaches the peer", shown READ_ELSEWHERE, feature Some("verbs");

    /// Let ucx-am use UCX's TCP, which the peer has to allow too. A process that reaches a UCX port may then write this
    /// process's memory, with or without the key (docs/security.md). tcp reaches other machines without that.
    ucx_tcp: [bool] Flag = false, "no";

    /// Write /tmp/perf-PID.map, by which perf shows injected code as ifunc:NAME. It is kept for `perf report`.
    ///
    /// One file serves all targets of a process; the first one replaces an existing file.
    perf_map: [bool] Flag = false, "no";

    /// Let standard error name the injected code that ended the process: signal, ifunc, offset in its image, code id.
    ///
    /// Then the process ends as it would have. The report covers faults and `abort`, also in a function that the code had
    /// called; signals that the code sends to its own process, by `raise` or `kill`; and `exit`, `quick_exit`, and `_exit` if
    /// the code imports it. It does not cover events that the system shows to no process (`SIGKILL`, `_exit` as a system
    /// call), nor the end of a thread that the code made, and ends in functions that a library calls. A report from a
    /// forked child names its parent. A fault in the file of [`Data`](crate::Data) names the file.
    ///
    /// The first target of the process with this option installs handlers for faults, and for signals that end a process
    /// and are not ignored. The handlers stay. Handlers installed before are called after the report; handlers installed
    /// later take their place. Signals that have nothing to do with injected code are passed on silently. `farjump serve`
    /// always reports.
    crash_report: [bool] Flag = false, "no", shown Interfaces::LIBRARY;

    /// Let debuggers set breakpoints in injected code, and show them its symbols.
    ///
    /// Each image then lies in pages of its own, which ptrace(2) can write: 4 KiB at least of `arena-size`. It is
    /// registered by GDB's JIT interface, under the name of its main function, or with the symbols of `debug-symbols`.
    /// Placing an image costs more, and some milliseconds while gdb is attached; calls cost the same. Code of mode in
    /// place runs in the mailbox, and takes hardware breakpoints alone.
    ///
    /// Debuggers find the interface in the symbol table of the program: not if that is stripped.
    debug: [Option<bool>] Auto<Flag> = None, "as `FARJUMP_DEBUG` says, otherwise no", shown READ_ELSEWHERE;

    /// Libraries built with `farjump build -g` whose code sources will send: debuggers then know its functions, lines and
    /// variables.
    ///
    /// They know those of `local` in any case. The target reads the libraries when it is built, and runs nothing of them.
    debug_symbols by hand: [Vec<PathBuf>] List<File> = Vec::new(), "none", formerly &["symbols"];
}

impl TargetConfig {
    /// The limits for sources.
    pub(crate) fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            payload: self.max_payload.unwrap_or(default.payload),
            large_payload: self.max_payload.unwrap_or(default.large_payload),
            image: self.max_image.unwrap_or(default.image),
            frame: self.max_frame.unwrap_or(default.frame),
            sources: self.max_sources,
            source_memory: self.max_source_memory.unwrap_or(default.source_memory),
        }
    }
}
