//! The choice between a call at an object and a fetch of it.

use std::ffi::{c_char, c_int, c_void};

use farjump::placement::{Place, Wire};
use farjump_handles::{Placed, Placement};

use crate::api::bytes::farjump_bytes_t;
use crate::api::catch::{bytes, fill, give, guarded, object, object_mut, take, text, variable};
use crate::api::last_error::Failure;
use crate::api::library::farjump_library_t;
use crate::api::objects::client::{both, deliver, farjump_client_t};
use crate::api::objects::handle::farjump_handle_t;
use crate::api::status::farjump_status_t::{self, *};

/// A chooser of places for functions, which learns from the times that they took. Keep one for a program. One
/// thread uses it at a time.
#[derive(Debug)]
pub struct farjump_placement_t {
    placement: Placement,
}

/// A place for a function.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum farjump_place_t {
    /// At the object's owner, by a call.
    FARJUMP_PLACE_OWNER = 0,
    /// In this process, on bytes that were fetched or mapped.
    FARJUMP_PLACE_HERE = 1,
}

/// A choice, and the values that it rests on. It may grow at its end.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct farjump_choice_t {
    /// Expected time in this process, in nanoseconds, that of the fetch included.
    pub here_ns: u64,
    /// Expected time of a call at the owner, in nanoseconds, until its reply is here.
    pub owner_ns: u64,
    /// The way to the owner: time of a message without bytes from one process to the other, in nanoseconds.
    pub latency_ns: u64,
    /// The way to the owner: its bandwidth. UINT64_MAX where many bytes took no longer than few.
    pub bytes_per_second: u64,
    /// The chosen place: one of FARJUMP_PLACE_OWNER and its kin.
    pub place: c_int,
    /// 1 if the place is expected to take longer than the other, and was chosen to learn its time; 0 otherwise.
    pub is_trial: c_int,
}

impl From<&Placed> for farjump_choice_t {
    fn from(placed: &Placed) -> farjump_choice_t {
        // Numbers out of range saturate.
        let scaled = |micros: f64, by: f64| (micros * by) as u64;
        let place = match placed.choice.place {
            Place::AtData => farjump_place_t::FARJUMP_PLACE_OWNER,
            Place::Here => farjump_place_t::FARJUMP_PLACE_HERE,
        };
        farjump_choice_t {
            here_ns: scaled(placed.choice.here_us, 1e3),
            owner_ns: scaled(placed.choice.there_us, 1e3),
            latency_ns: scaled(placed.wire.latency_us, 1e3),
            bytes_per_second: scaled(placed.wire.bytes_per_us, 1e6),
            place: place as c_int,
            is_trial: placed.choice.is_trial().into(),
        }
    }
}

/// Makes one that knows nothing yet. farjump_placement_free() ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_placement_new(placement: *mut *mut farjump_placement_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable for a pointer.
        let made = unsafe { variable(placement, "placement")? };
        *made = give(farjump_placement_t { placement: Placement::new() });
        Ok(FARJUMP_OK)
    })
}

/// Frees it, and sets the variable to NULL. Does nothing if it is NULL already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_placement_free(
    placement: *mut *mut farjump_placement_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with one of `farjump_placement_new`, which nothing else uses.
        drop(unsafe { take(placement, "placement", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// Sets the way to the owner at `address`: the time of a message without bytes from one process to the other,
/// in nanoseconds, and the bandwidth. It also drops the times learnt of functions there. Without this,
/// farjump_client_call_auto() measures the way at the first call, by some small objects that it puts and
/// evicts.
///
/// FARJUMP_ERROR_ARGUMENT for a bandwidth of 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_placement_set_wire(
    placement: *mut farjump_placement_t,
    address: *const c_char,
    latency_ns: u64,
    bytes_per_second: u64,
) -> farjump_status_t {
    // SAFETY: the header requires a placement that nothing else uses, and a text.
    guarded(|| unsafe {
        let (placement, address) = (object_mut(placement, "placement")?, text(address, "address")?);
        if bytes_per_second == 0 {
            return Err(Failure::argument("`bytes_per_second` is 0: give the bytes that pass in a second"));
        }
        let wire = Wire { latency_us: latency_ns as f64 / 1e3, bytes_per_us: bytes_per_second as f64 / 1e6 };
        placement.placement.set_wire(address, wire);
        Ok(FARJUMP_OK)
    })
}

/// Runs the function of `library` on an object at the place where `placement` expects it to take less time:
/// at the owner, as farjump_client_call() does, or in this process, on the object's bytes. `placement`
/// decides by the lengths of the object and the arguments, the way to the owner, and the times of earlier
/// calls at either place. These rise with the load there. Now and then it tries a place of which little is
/// known. The call takes as long as requests may (the option `timeout` of clients).
///
/// The function may run in this process: call only functions that you trust with it. `reply` receives the
/// reply. `choice` becomes the choice, and `choice_size` is `sizeof *choice`: fields beyond it are not
/// written, and fields that the library does not know become 0. `why` receives a sentence with the place
/// where the function ran, and the reason. Each of the three may be NULL if it is not needed. After a failure
/// `choice` is 0 in all fields and `why` unchanged.
///
/// Fails as farjump_client_call() and farjump_client_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_call_auto(
    client: *const farjump_client_t,
    placement: *mut farjump_placement_t,
    library: *const farjump_library_t,
    handle: *const farjump_handle_t,
    args: *const c_void,
    args_size: usize,
    reply: *mut farjump_bytes_t,
    choice: *mut farjump_choice_t,
    choice_size: usize,
    why: *mut farjump_bytes_t,
) -> farjump_status_t {
    // SAFETY: the header requires a client, a placement that nothing else uses, an open library, a handle,
    // `args_size` bytes, NULL or bytes that nothing else uses, and NULL or `choice_size` writable bytes. The
    // choice is of numbers without padding. The header also says that the caller trusts the function.
    guarded(|| unsafe {
        let tell = |told| match choice.is_null() {
            true => Ok(()),
            false => fill(choice, choice_size, size_of::<farjump_choice_t>(), "choice", told),
        };
        tell(farjump_choice_t::default())?;
        let placement = object_mut(placement, "placement")?;
        let (client, handle) = both(client, handle)?;
        let (library, args) = (object(library, "library")?, bytes(args, args_size, "args")?);
        match client.call_auto(&mut placement.placement, library.rust(), handle, args) {
            Ok(placed) => {
                tell(farjump_choice_t::from(&placed))?;
                if let Some(why) = why.as_mut() {
                    why.set_text(&placed.to_string());
                }
                deliver(Ok(placed.reply), reply)?;
            }
            Err(error) => deliver(Err(error), reply)?,
        }
        Ok(FARJUMP_OK)
    })
}
