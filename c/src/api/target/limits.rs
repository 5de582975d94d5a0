//! A target's policy, limits, transports and keys.

use std::ffi::{c_char, c_int};

use farjump::{CodeId, Keys};

use crate::api::catch::{object, path as path_of, text};
use crate::api::last_error::Failure;
use crate::api::library::farjump_code_id_t;
use crate::api::shared_options::{change, farjump_mode_t, farjump_wait_policy_t, key_of, rights_of};
use crate::api::status::farjump_status_t;
use crate::api::target::options::farjump_target_options_t;

/// Allows these modes and no others: some of FARJUMP_MODE_CACHED and its kin, or-ed together. Default: all
/// but FARJUMP_MODE_IN_PLACE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_modes(
    options: *mut farjump_target_options_t,
    modes: c_int,
) -> farjump_status_t {
    change!(options, options.modes = Some(farjump_mode_t::several(modes)?))
}

/// Sets the rights of processes that may connect: some of FARJUMP_RIGHT_OBSERVE and its kin, or-ed together,
/// or 0. Default: to observe, to call and to inject. Each process learns its rights when it connects
/// (farjump_link_rights()), and a request without the right is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_rights(
    options: *mut farjump_target_options_t,
    rights: c_int,
) -> farjump_status_t {
    change!(options, options.rights = Some(rights_of(rights)?))
}

/// Sets the capacity for placed code in bytes. Default: 16 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_arena_size(
    options: *mut farjump_target_options_t,
    bytes: usize,
) -> farjump_status_t {
    change!(options, options.arena_size = Some(bytes))
}

/// Sets the capacity of the code store, in bytes of images as they travel and in images. When more comes, the
/// target drops the least recently called code, with its statics. It requests that code from a source that
/// calls it again. Default: twice the capacity for placed code, and 8192 images.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_store_capacity(
    options: *mut farjump_target_options_t,
    bytes: usize,
    images: usize,
) -> farjump_status_t {
    change!(options, options.store = Some((bytes, images)))
}

/// Sets the size of a mailbox: bytes of frames that one source may have written and the target not yet run.
/// They are rounded up to a power of two, and are at most 2 GiB. Each source has its own mailbox. Default: 4
/// MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_mailbox_size(
    options: *mut farjump_target_options_t,
    bytes: usize,
) -> farjump_status_t {
    change!(options, options.mailbox = Some(bytes))
}

/// Sets whether a mailbox has all of its memory when its link is made. Default: no. Over `shm` it takes
/// memory as frames first come to it, from 256 KiB up to its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_prefault(
    options: *mut farjump_target_options_t,
    prefault: bool,
) -> farjump_status_t {
    change!(options, options.prefault = prefault)
}

/// Sets the spinning before sleep when there is nothing to do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_wait_policy(
    options: *mut farjump_target_options_t,
    policy: farjump_wait_policy_t,
) -> farjump_status_t {
    change!(options, options.wait = Some(policy.into()))
}

/// Sets the time limit for the rest of a frame after its beginning, in nanoseconds. After it the target ends
/// the source's link. Default: 1 second.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_stall_timeout(
    options: *mut farjump_target_options_t,
    nanoseconds: u64,
) -> farjump_status_t {
    change!(options, options.stall_timeout = Some(nanoseconds))
}

/// Sets the limit for a connecting process to make its link, in nanoseconds. It also limits a source that
/// connects to the large mailbox that it requested, and a link to a destination. Default: 2 seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_handshake_timeout(
    options: *mut farjump_target_options_t,
    nanoseconds: u64,
) -> farjump_status_t {
    change!(options, options.handshake_timeout = Some(nanoseconds))
}

/// Sets the shortest interval at which a busy target looks for new connections, in nanoseconds. Default: 1
/// millisecond.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_control_interval(
    options: *mut farjump_target_options_t,
    nanoseconds: u64,
) -> farjump_status_t {
    change!(options, options.control_interval = Some(nanoseconds))
}

/// Sets the maximum number of sources at a time. The target rejects further ones. Default: 256.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_max_sources(
    options: *mut farjump_target_options_t,
    sources: usize,
) -> farjump_status_t {
    change!(options, options.max_sources = Some(sources))
}

/// Admits code with this id, or of the family with this id, and no other, in any mode. Further calls add ids.
/// A family is the images of one library for all of its platforms. Default: all code. Functions of
/// farjump_target_options_add_local() need not be listed, because they do not come in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_allow_code(
    options: *mut farjump_target_options_t,
    id: *const farjump_code_id_t,
) -> farjump_status_t {
    change!(options, {
        let id = CodeId(object(id, "id")?.bytes);
        options.allowed.get_or_insert_default().push(id);
    })
}

/// Sets the largest frame in bytes, with header and code, rounded down to a multiple of 64. Default: bounded
/// only by the largest payload and code. Sources learn it when they connect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_max_frame(
    options: *mut farjump_target_options_t,
    bytes: usize,
) -> farjump_status_t {
    change!(options, options.max_frame = Some(bytes))
}

/// Sets the largest image that may come in, in bytes. Default: the capacity for placed code is the only
/// limit. Sources learn it when they connect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_max_image(
    options: *mut farjump_target_options_t,
    bytes: usize,
) -> farjump_status_t {
    change!(options, options.max_image = Some(bytes))
}

/// Sets the largest payload with which a function runs, in bytes. Default: 64 MiB, or the mailbox's capacity
/// if that is more. A limit below 40 bytes makes small calls slower. Sources learn an explicit limit when
/// they connect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_max_payload(
    options: *mut farjump_target_options_t,
    bytes: usize,
) -> farjump_status_t {
    change!(options, options.max_payload = Some(bytes))
}

/// Sets the memory that one source may take here, in bytes: its mailbox, code that it brought, and replies
/// that wait for credit, are held or are gathered. Default: no limit. The target refuses requests over the
/// limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_max_source_memory(
    options: *mut farjump_target_options_t,
    bytes: usize,
) -> farjump_status_t {
    change!(options, options.max_source_memory = Some(bytes))
}

/// Sets the name by which sources, destinations and `farjump stats` show the target: 64 characters of it.
/// Default: the executable's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_program(
    options: *mut farjump_target_options_t,
    name: *const c_char,
) -> farjump_status_t {
    change!(options, options.program = Some(text(name, "name")?.to_owned()))
}

/// Uses this transport and no other, by the name that `farjump transports` shows; `ucx` stands for all UCX
/// transports that are usable here. Default: `shm`. The name is checked when a target is made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_transport(
    options: *mut farjump_target_options_t,
    name: *const c_char,
) -> farjump_status_t {
    change!(options, options.transport = Some(text(name, "name")?.to_owned()))
}

/// Sets whether `ucx-am` may use UCX's TCP, to sources and to destinations. A process that reaches a UCX port
/// may then write any address of this process without any check, and a source may as long as its link lasts;
/// `tcp` reaches other machines without that. Default: no. Sources have to allow it too:
/// farjump_link_options_set_ucx_tcp().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_ucx_tcp(
    options: *mut farjump_target_options_t,
    allowed: bool,
) -> farjump_status_t {
    change!(options, options.ucx_tcp = allowed)
}

/// Sets whether frames may travel in the clear by `tcp` although both processes have a key, on a network that
/// you trust. Control connections are encrypted in any case. Default: no. Sources have to allow it too:
/// farjump_link_options_set_clear().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_clear(
    options: *mut farjump_target_options_t,
    clear: bool,
) -> farjump_status_t {
    change!(options, options.clear = clear)
}

/// Sets the key that sources have too, for a target at `tcp:HOST:PORT`, and that destinations at such
/// addresses have: 32 bytes, as hard to guess as random ones. The target admits processes that have the key.
/// Without a key a target listens on this machine's loopback only. No effect on Unix sockets. The bytes are
/// copied, and wiped when the options are freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_key(
    options: *mut farjump_target_options_t,
    key: *const u8,
) -> farjump_status_t {
    change!(options, (options.key, options.key_file) = (Some(key_of(key)?), None))
}

/// Sets the keys of sources, for a target at `tcp:HOST:PORT`, in a file as `farjump key` makes it: up to 64,
/// each with a name and optionally rights of its own. The file is read now, and checked while the target
/// runs: changes count within about a second. Removing a key ends its links. If the file holds one key alone,
/// destinations use it.
///
/// FARJUMP_ERROR_CONNECT for a file that holds no key, or that other users may read or write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_key_file(
    options: *mut farjump_target_options_t,
    path: *const c_char,
) -> farjump_status_t {
    change!(options, {
        let file = path_of(path, "path")?;
        Keys::read(file).map_err(|error| Failure::from(farjump::Error::from(error)))?;
        (options.key, options.key_file) = (None, Some(file.to_owned()));
    })
}

/// Sets the longest silence of the machine of a source or destination over TCP before the peer counts as
/// gone, in nanoseconds. Default: 10 seconds; from 1 second to 32,767.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_options_set_peer_timeout(
    options: *mut farjump_target_options_t,
    nanoseconds: u64,
) -> farjump_status_t {
    change!(options, options.peer_timeout = Some(nanoseconds))
}
