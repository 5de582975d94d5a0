//! A source's choices for a link.

use std::ffi::{c_char, c_int, c_void};

use farjump::{Key, Link, LinkBuilder, Mode, WaitPolicy};

use crate::api::catch::{c_text, duration, give, guarded, take, text, variable};
use crate::api::last_error::Failure;
use crate::api::shared_options::{
    User, cause_number, change, farjump_mode_t, farjump_wait_policy_t, key_in, key_of, set,
};
use crate::api::status::farjump_status_t::{self, *};

/// Runs when the target refuses a one-way call: `cause` is one of FARJUMP_CAUSE_BAD_FRAME and its kin, `text`
/// says more, belongs to the library, and is valid until the callback returns.
pub type farjump_link_refused_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, cause: c_int, text: *const c_char)>;

/// Runs once when the target is gone. `why` belongs to the library, and is valid until the callback returns.
pub type farjump_link_gone_fn = Option<unsafe extern "C" fn(user: *mut c_void, why: *const c_char)>;

/// Runs when the target requests the code of the ifunc called `name` again. The text belongs to the library,
/// and is valid until the callback returns.
pub type farjump_link_code_missing_fn = Option<unsafe extern "C" fn(user: *mut c_void, name: *const c_char)>;

/// Choices for links, each of which has a default that suits a program on the same machine as its target. One
/// thread changes them at a time; any number may connect with them at once. They are copied when a link is
/// made.
#[derive(Clone, Default)]
pub struct farjump_link_options_t {
    transport: Option<String>,
    ucx_tcp: bool,
    clear: bool,
    mode: Option<Mode>,
    connect_timeout: Option<u64>,
    send_timeout: Option<u64>,
    reply_mailbox_size: Option<usize>,
    prefault: bool,
    wait: Option<WaitPolicy>,
    control_interval: Option<u64>,
    key: Option<Key>,
    peer_timeout: Option<u64>,
    program: Option<String>,
    compile_for_peer: bool,
    compiler: Option<String>,
    on_refused: Option<(unsafe extern "C" fn(*mut c_void, c_int, *const c_char), User)>,
    on_gone: Option<(unsafe extern "C" fn(*mut c_void, *const c_char), User)>,
    on_code_missing: Option<(unsafe extern "C" fn(*mut c_void, *const c_char), User)>,
}

impl farjump_link_options_t {
    /// Starts the builder of a link with these options.
    pub(crate) fn builder(&self, address: &str) -> LinkBuilder {
        let builder = Link::builder(address).ucx_tcp(self.ucx_tcp).clear(self.clear);
        let builder = set(builder, self.transport.as_deref(), LinkBuilder::transport);
        let builder = set(builder, self.mode, LinkBuilder::mode);
        let builder = set(builder, self.connect_timeout.map(duration), LinkBuilder::connect_timeout);
        let builder = set(builder, self.send_timeout.map(duration), LinkBuilder::send_timeout);
        let builder = set(builder, self.reply_mailbox_size, LinkBuilder::reply_mailbox_size);
        let builder = builder.prefault(self.prefault);
        let builder = set(builder, self.wait, LinkBuilder::wait_policy);
        let builder = set(builder, self.control_interval.map(duration), LinkBuilder::control_interval);
        let builder = set(builder, self.key.clone(), LinkBuilder::key);
        let builder = set(builder, self.peer_timeout.map(duration), LinkBuilder::peer_timeout);
        let builder = set(builder, self.program.as_deref(), LinkBuilder::program);
        let builder = self.compiling(builder);
        let builder = set(builder, self.on_refused, |builder, (function, user)| {
            builder.on_refused(move |refusal| {
                // SAFETY: the header requires a function of this type, which takes this pointer.
                unsafe {
                    function(user.pointer(), cause_number(refusal.cause), c_text(&refusal.text).as_ptr())
                }
            })
        });
        let builder = set(builder, self.on_gone, |builder, (function, user)| {
            // SAFETY: as above.
            builder.on_peer_gone(move |why| unsafe { function(user.pointer(), c_text(why).as_ptr()) })
        });
        set(builder, self.on_code_missing, |builder, (function, user)| {
            // SAFETY: as above.
            builder.on_code_missing(move |name| unsafe { function(user.pointer(), c_text(name).as_ptr()) })
        })
    }
}

impl farjump_link_options_t {
    /// Adds the compiler of images for the target's CPU, if the options want such images.
    #[cfg(feature = "build")]
    fn compiling(&self, builder: LinkBuilder) -> LinkBuilder {
        use farjump::PeerCompiler;
        let compiler = set(PeerCompiler::new(), self.compiler.as_deref(), PeerCompiler::cc);
        if self.compile_for_peer { builder.compile_for_peer(compiler) } else { builder }
    }

    /// Adds nothing: without the feature, these options cannot be chosen.
    #[cfg(not(feature = "build"))]
    fn compiling(&self, builder: LinkBuilder) -> LinkBuilder {
        builder
    }
}

/// Makes choices, all of them the defaults. farjump_link_options_free() ends them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_new(
    options: *mut *mut farjump_link_options_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable for a pointer.
        let made = unsafe { variable(options, "options")? };
        *made = give(farjump_link_options_t::default());
        Ok(FARJUMP_OK)
    })
}

/// Frees them, and sets the variable to NULL. Does nothing if it is NULL already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_free(
    options: *mut *mut farjump_link_options_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with one of `farjump_link_options_new`, which nothing else
        // uses.
        drop(unsafe { take(options, "options", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// Uses this transport and no other, by the name that `farjump transports` shows; `ucx` stands for the better
/// UCX transport that connects both processes. Default: `shm` where the target has it, else any that both
/// have. The name is checked when a link is made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_set_transport(
    options: *mut farjump_link_options_t,
    name: *const c_char,
) -> farjump_status_t {
    change!(options, options.transport = Some(text(name, "name")?.to_owned()))
}

/// Sets whether `ucx-am` may use UCX's TCP. A process that reaches a UCX port may then write any address of
/// this process without any check, and the target may as long as the link lasts; `tcp` reaches other machines
/// without that. Default: no. The target has to allow it too: farjump_target_options_set_ucx_tcp().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_set_ucx_tcp(
    options: *mut farjump_link_options_t,
    allowed: bool,
) -> farjump_status_t {
    change!(options, options.ucx_tcp = allowed)
}

/// Sets whether frames may travel in the clear by `tcp` although both processes have a key, on a network that
/// you trust. The control connection is encrypted in any case. Default: no. The target has to allow it too:
/// farjump_target_options_set_clear().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_set_clear(
    options: *mut farjump_link_options_t,
    clear: bool,
) -> farjump_status_t {
    change!(options, options.clear = clear)
}

/// Sets the way in which the code of calls travels and runs: one of FARJUMP_MODE_CACHED, which is the
/// default, and its kin. farjump_link_set_mode() changes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_set_mode(
    options: *mut farjump_link_options_t,
    mode: c_int,
) -> farjump_status_t {
    change!(options, options.mode = Some(farjump_mode_t::one(mode)?))
}

/// Sets whether to compile functions for exactly the target's CPU, in the background. It affects functions
/// whose library carries its source (`farjump build --carry-source`) and whose code has no writable statics.
/// Default: no. Calls run the image that the library carries until the target has the compiled one in its
/// store; no call waits for it. farjump_link_compiled_image() returns the state of the compiled image.
///
/// The library's author chooses files and flags of the compiler, which can make it run programs with the
/// rights of this process: only for libraries that you trust.
///
/// FARJUMP_ERROR_ARGUMENT if this library was built without the builder of ifunc libraries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_set_compile_for_peer(
    options: *mut farjump_link_options_t,
    wanted: bool,
) -> farjump_status_t {
    if wanted && !cfg!(feature = "build") {
        let text = "this libfarjump has no builder: build it with the feature `build`";
        return guarded(|| Err(Failure::argument(text)));
    }
    change!(options, options.compile_for_peer = wanted)
}

/// Sets the C compiler of farjump_link_options_set_compile_for_peer(), with arguments if it needs some.
/// Default: `cc`, and for targets of another machine its own gcc or clang.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_set_compiler(
    options: *mut farjump_link_options_t,
    cc: *const c_char,
) -> farjump_status_t {
    change!(options, options.compiler = Some(text(cc, "cc")?.to_owned()))
}

/// Sets the limit for connecting as a whole, in nanoseconds. Default: 5 seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_set_connect_timeout(
    options: *mut farjump_link_options_t,
    nanoseconds: u64,
) -> farjump_status_t {
    change!(options, options.connect_timeout = Some(nanoseconds))
}

/// Sets the longest time that an injection waits for credit, in nanoseconds. Default: 10 seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_set_send_timeout(
    options: *mut farjump_link_options_t,
    nanoseconds: u64,
) -> farjump_status_t {
    change!(options, options.send_timeout = Some(nanoseconds))
}

/// Sets the capacity for replies that the target has written and this source has not yet taken, in bytes,
/// rounded up to a power of two. It also bounds the length of a reply. At most 2 GiB. Default: 1 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_set_reply_mailbox_size(
    options: *mut farjump_link_options_t,
    bytes: usize,
) -> farjump_status_t {
    change!(options, options.reply_mailbox_size = Some(bytes))
}

/// Sets whether the mailbox for replies has all of its memory when the link is made. Default: no.
/// farjump_target_options_set_prefault() does the same for targets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_set_prefault(
    options: *mut farjump_link_options_t,
    prefault: bool,
) -> farjump_status_t {
    change!(options, options.prefault = prefault)
}

/// Sets the spinning of a wait before it sleeps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_set_wait_policy(
    options: *mut farjump_link_options_t,
    policy: farjump_wait_policy_t,
) -> farjump_status_t {
    change!(options, options.wait = Some(policy.into()))
}

/// Sets the shortest interval at which a link that polls or spins checks whether the target still exists, in
/// nanoseconds. Default: 1 millisecond.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_set_control_interval(
    options: *mut farjump_link_options_t,
    nanoseconds: u64,
) -> farjump_status_t {
    change!(options, options.control_interval = Some(nanoseconds))
}

/// Sets the key that the target has too, for a target at `tcp:HOST:PORT`: 32 bytes, as hard to guess as
/// random ones. The control connection is then encrypted with it; of the transports, only `tcp` encrypts
/// frames. No effect on Unix sockets. The bytes are copied, and wiped when the options are freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_set_key(
    options: *mut farjump_link_options_t,
    key: *const u8,
) -> farjump_status_t {
    change!(options, options.key = Some(key_of(key)?))
}

/// Sets the key as farjump_link_options_set_key() does, from a file as `farjump key` makes it. The file is
/// read now.
///
/// FARJUMP_ERROR_CONNECT for a file that holds no key, or that other users may read or write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_set_key_file(
    options: *mut farjump_link_options_t,
    path: *const c_char,
) -> farjump_status_t {
    change!(options, options.key = Some(key_in(path)?))
}

/// Sets the longest silence of the target's machine over TCP before the target counts as gone, in
/// nanoseconds. Default: 10 seconds; from 1 second to 32,767.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_set_peer_timeout(
    options: *mut farjump_link_options_t,
    nanoseconds: u64,
) -> farjump_status_t {
    change!(options, options.peer_timeout = Some(nanoseconds))
}

/// Sets the name shown to users of the target. Default: the executable's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_set_program(
    options: *mut farjump_link_options_t,
    name: *const c_char,
) -> farjump_status_t {
    change!(options, options.program = Some(text(name, "name")?.to_owned()))
}

/// Has `callback` run, with `user`, for each one-way call that the target refuses. It runs inside calls on
/// the link, on their thread, and cannot use the link: such a call returns FARJUMP_ERROR_BUSY. NULL for none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_on_refused(
    options: *mut farjump_link_options_t,
    callback: farjump_link_refused_fn,
    user: *mut c_void,
) -> farjump_status_t {
    change!(options, options.on_refused = callback.map(|callback| (callback, User::new(user))))
}

/// Has `callback` run, with `user`, once when the target is gone. Otherwise it does the same as
/// farjump_link_options_on_refused().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_on_gone(
    options: *mut farjump_link_options_t,
    callback: farjump_link_gone_fn,
    user: *mut c_void,
) -> farjump_status_t {
    change!(options, options.on_gone = callback.map(|callback| (callback, User::new(user))))
}

/// Has `callback` run, with `user`, each time the target requests code again. Otherwise it does the same as
/// farjump_link_options_on_refused().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_options_on_code_missing(
    options: *mut farjump_link_options_t,
    callback: farjump_link_code_missing_fn,
    user: *mut c_void,
) -> farjump_status_t {
    change!(options, options.on_code_missing = callback.map(|callback| (callback, User::new(user))))
}
