//! What a target lets its sources do, and how long and how much it takes.

use std::ffi::{c_char, c_int};

use farjump::{CodeId, Keys};

use crate::api::choices::{change, farjump_mode_t, farjump_wait_policy_t, key_of, rights_of};
use crate::api::library::farjump_code_id_t;
use crate::api::status::farjump_status_t;
use crate::api::target_options::farjump_target_options_t;
use crate::boundary::{object, path as path_of, text};
use crate::failure::Failure;

/// Allows these modes and no others: some of FARJUMP_MODE_CACHED and its kin, or-ed together. All but FARJUMP_MODE_IN_PLACE unless set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_modes(
    options: *mut farjump_target_options_t,
    modes: c_int,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.modes = Some(farjump_mode_t::several(modes)?);
            Ok(())
        })
    }
}

/// What processes may do that may connect: some of FARJUMP_RIGHT_OBSERVE and its kin, or-ed together, or 0. To observe, to call and to
/// inject unless set. Each is told when it connects (farjump_link_rights()), and what it asks for without the right is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_rights(
    options: *mut farjump_target_options_t,
    rights: c_int,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.rights = Some(rights_of(rights)?);
            Ok(())
        })
    }
}

/// Room for code in bytes. 16 MiB unless set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_code_room(
    options: *mut farjump_target_options_t,
    bytes: usize,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.code_room = Some(bytes);
            Ok(())
        })
    }
}

/// How much code is held, in bytes of images as they travel and in images. When more comes, the code that was not called for the
/// longest time is dropped, with its statics; who calls it again is asked for it. Twice as many bytes as there is room for code,
/// and 8192 images, unless set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_store_capacity(
    options: *mut farjump_target_options_t,
    bytes: usize,
    images: usize,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.store = Some((bytes, images));
            Ok(())
        })
    }
}

/// Bytes of frames that one source may have written and the target not yet run, rounded up to a power of two, and at most 2 GiB. Each
/// source has its own. 4 MiB unless set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_mailbox(
    options: *mut farjump_target_options_t,
    bytes: usize,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.mailbox = Some(bytes);
            Ok(())
        })
    }
}

/// How long to spin before sleeping when there is nothing to do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_wait_policy(
    options: *mut farjump_target_options_t,
    policy: farjump_wait_policy_t,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.wait = Some(policy.into());
            Ok(())
        })
    }
}

/// How long the rest of a frame may take after it has begun, before its source's link is cut, in nanoseconds. 1 second unless set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_stall_limit(
    options: *mut farjump_target_options_t,
    nanoseconds: u64,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.stall_limit = Some(nanoseconds);
            Ok(())
        })
    }
}

/// How long a process that connects may take to make its link, a source to take the bigger mailbox that it asked for, and a peer to be
/// linked to, in nanoseconds. 2 seconds unless set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_meeting_limit(
    options: *mut farjump_target_options_t,
    nanoseconds: u64,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.meeting_limit = Some(nanoseconds);
            Ok(())
        })
    }
}

/// How often a target that is busy looks for new connections, at most, in nanoseconds. 1 millisecond unless set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_control_interval(
    options: *mut farjump_target_options_t,
    nanoseconds: u64,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.control_interval = Some(nanoseconds);
            Ok(())
        })
    }
}

/// Most sources at a time; more are turned away. 256 unless set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_max_sources(
    options: *mut farjump_target_options_t,
    sources: usize,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.max_sources = Some(sources);
            Ok(())
        })
    }
}

/// Lets in code with this identity and no other, whatever the mode; called again, also this one. All code unless called. The functions
/// of farjump_target_options_add_local() do not come in, and need not be among it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_allow_code(
    options: *mut farjump_target_options_t,
    id: *const farjump_code_id_t,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses, and for an id.
    unsafe {
        change(options, |options| {
            let id = CodeId(object(id, "id")?.bytes);
            options.allowed.get_or_insert_default().push(id);
            Ok(())
        })
    }
}

/// Largest frame in bytes, with header and code, rounded down to a multiple of 64. No limit but what the largest payload and code
/// need unless set. Sources are told when they connect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_max_frame(
    options: *mut farjump_target_options_t,
    bytes: usize,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.max_frame = Some(bytes);
            Ok(())
        })
    }
}

/// Largest image in bytes that may come in. No limit but the room for code unless set. Sources are told when they connect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_max_image(
    options: *mut farjump_target_options_t,
    bytes: usize,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.max_image = Some(bytes);
            Ok(())
        })
    }
}

/// Largest payload in bytes that is run. Unless set 64 MiB, or what the mailbox holds if that is more. One of less than 40 bytes makes
/// small calls slower. Sources are told when they connect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_max_payload(
    options: *mut farjump_target_options_t,
    bytes: usize,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.max_payload = Some(bytes);
            Ok(())
        })
    }
}

/// Memory in bytes that one source may take here: mailbox, code that it brought, answers that wait. No limit unless set. What is over
/// it is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_max_source_memory(
    options: *mut farjump_target_options_t,
    bytes: usize,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.max_source_memory = Some(bytes);
            Ok(())
        })
    }
}

/// Takes this transport and no other, by the name that `farjump transports` shows; `ucx` stands for all of UCX's that are usable here.
/// `shm` unless set. Whether there is one of that name shows when a target is made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_transport(
    options: *mut farjump_target_options_t,
    name: *const c_char,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses, and for texts.
    unsafe {
        change(options, |options| {
            options.transport = Some(text(name, "name")?.to_owned());
            Ok(())
        })
    }
}

/// Whether `ucx-am` may go over UCX's TCP, to sources and to peers. A process that reaches a port of UCX's may then write any address
/// of this process without being asked for anything, and a source may as long as its link lasts; `tcp` reaches other machines
/// without that. Off unless set. Sources have to allow it too: farjump_link_options_set_ucx_tcp().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_ucx_tcp(
    options: *mut farjump_target_options_t,
    allowed: bool,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.ucx_tcp = allowed;
            Ok(())
        })
    }
}

/// Whether frames may travel in the clear by `tcp` although both sides have a key, on a network that you trust. Control connections are
/// sealed in any case. Off unless set. Sources have to say so too: farjump_link_options_set_clear().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_clear(
    options: *mut farjump_target_options_t,
    clear: bool,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.clear = clear;
            Ok(())
        })
    }
}

/// The key that sources have too, for a target at `tcp:HOST:PORT`, and that peers at such addresses have: 32 bytes, as hard to guess as
/// random ones. Who has it is let in. Without one a target listens on this machine's loopback only. Means nothing on Unix sockets.
/// The bytes are copied, and wiped when the options are freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_key(
    options: *mut farjump_target_options_t,
    key: *const u8,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses, and for 32 bytes.
    unsafe {
        change(options, |options| {
            (options.key, options.key_file) = (Some(key_of(key)?), None);
            Ok(())
        })
    }
}

/// The keys that sources have, for a target at `tcp:HOST:PORT`, in a file as `farjump key` makes it: up to 64, each with a name and rights of
/// its own if it has some. It is read now, and again and again while the target runs: what changes counts within about a second, and a key that is taken out
/// ends its links. If it holds one key alone, peers are met with that.
///
/// FARJUMP_ERROR_CONNECT for a file that holds no key, or that others than this user may read or write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_key_file(
    options: *mut farjump_target_options_t,
    path: *const c_char,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses, and for texts.
    unsafe {
        change(options, |options| {
            let file = path_of(path, "path")?;
            Keys::read(file).map_err(|error| Failure::from(farjump::Error::from(error)))?;
            (options.key, options.key_file) = (None, Some(file.to_owned()));
            Ok(())
        })
    }
}

/// How long a source's machine, or a peer's, may be silent before it is taken for gone, over TCP, in nanoseconds. 10 seconds unless
/// set; from 1 second to 32,767.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_peer_timeout(
    options: *mut farjump_target_options_t,
    nanoseconds: u64,
) -> farjump_status_t {
    // SAFETY: the header asks for options that nobody else uses.
    unsafe {
        change(options, |options| {
            options.peer_timeout = Some(nanoseconds);
            Ok(())
        })
    }
}
