//! Clients: the use of objects that another process owns.

use std::ffi::{CString, c_char, c_void};

use farjump_handles::{Client, ClientConfig, Error, Handle, Patience};

use crate::api::bytes::farjump_bytes_t;
use crate::api::c_text::c_text;
use crate::api::catch::{bytes, duration, give, guarded, object, place, take, text, value, variable};
use crate::api::config::{self, Options, configuration};
use crate::api::last_error::Failure;
use crate::api::library::farjump_library_t;
use crate::api::objects::handle::farjump_handle_t;
use crate::api::objects::store::{type_name, write_bool};
use crate::api::objects::view::farjump_view_t;
use crate::api::status::farjump_status_t::{self, *};

/// Options for clients. One thread changes it at a time. It is copied when a client connects.
#[derive(Debug, Default)]
pub struct farjump_client_config_t {
    pub(crate) options: Options<ClientConfig>,
}

configuration!(farjump_client_config_t of ClientConfig);

/// A connection to the owner of objects: a target that has a store. Any number of threads may use it at once.
/// A forked child cannot use it: the child makes a connection of its own.
///
/// Requests fail with FARJUMP_ERROR_TIMEOUT when the owner does not respond in time, and with
/// FARJUMP_ERROR_PEER_GONE when it has ended. A client whose owner has ended is of no further use: close it,
/// and connect again.
#[derive(Debug)]
pub struct farjump_client_t {
    client: Client,
    address: CString,
}

impl farjump_client_t {
    fn connect(address: &str, config: ClientConfig) -> Result<Self, Failure> {
        Ok(farjump_client_t::of(Client::builder(address).config(config).connect()?))
    }

    /// Wraps a connected client for C.
    pub(crate) fn of(client: Client) -> farjump_client_t {
        let address = c_text(client.address());
        farjump_client_t { client, address }
    }

    pub(crate) fn rust(&self) -> &Client {
        &self.client
    }
}

/// Makes a configuration, all of its options the defaults. farjump_client_config_free() ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_config_new(
    config: *mut *mut farjump_client_config_t,
) -> farjump_status_t {
    // SAFETY: the header requires a variable for a pointer.
    unsafe { config::new(config) }
}

/// Frees it, and sets the variable to NULL. Does nothing if it is NULL already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_config_free(
    config: *mut *mut farjump_client_config_t,
) -> farjump_status_t {
    // SAFETY: the header requires a variable with one of `farjump_client_config_new`, which nothing else uses.
    unsafe { config::free(config) }
}

/// Sets the option `name` to `value`. docs/reference/options.md lists the options of clients. The top of
/// this header says how values are written.
///
/// FARJUMP_ERROR_ARGUMENT if no option has the name, or it cannot have the value. Nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_config_set(
    config: *mut farjump_client_config_t,
    name: *const c_char,
    value: *const c_char,
) -> farjump_status_t {
    // SAFETY: the header requires one of `farjump_client_config_new` that nothing else uses, and texts.
    unsafe { config::set(config, name, value) }
}

/// Gives the value of the option `name`, as farjump_client_config_set() takes it; otherwise it does the
/// same as farjump_link_config_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_config_get(
    config: *mut farjump_client_config_t,
    name: *const c_char,
    value: *mut *const c_char,
) -> farjump_status_t {
    // SAFETY: the header requires one of `farjump_client_config_new` that nothing else uses, a text, and a
    // variable for a pointer.
    unsafe { config::get(config, name, value) }
}

/// Connects to the owner at `address` (`unix:PATH`, `unix:@NAME`, `tcp:HOST:PORT`). `config` may be NULL for
/// the defaults. farjump_client_close() ends it.
///
/// FARJUMP_ERROR_CONNECT and FARJUMP_ERROR_ARGUMENT as farjump_link_connect(); FARJUMP_ERROR_REFUSED when the
/// target there has no store, or this process does not have the right to call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_connect(
    address: *const c_char,
    config: *const farjump_client_config_t,
    client: *mut *mut farjump_client_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable for a pointer, a text, and NULL or a configuration that nothing
        // changes.
        let (made, address, config) =
            unsafe { (variable(client, "client")?, text(address, "address")?, config::chosen(config)) };
        *made = give(farjump_client_t::connect(address, config)?);
        Ok(FARJUMP_OK)
    })
}

/// Connects to the owner of an object, at the first of the handle's addresses that can be reached; otherwise
/// as farjump_client_connect(). A program that uses many objects of one owner keeps the client.
///
/// FARJUMP_ERROR_ARGUMENT for a handle without an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_connect_to_owner(
    handle: *const farjump_handle_t,
    config: *const farjump_client_config_t,
    client: *mut *mut farjump_client_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable for a pointer, a handle, and NULL or a configuration that nothing
        // changes.
        let (made, handle, config) = unsafe {
            (variable(client, "client")?, object(handle, "handle")?.rust(), config::chosen(config))
        };
        let mut first = None;
        for address in handle.addresses() {
            match farjump_client_t::connect(address, config.clone()) {
                Ok(client) => {
                    *made = give(client);
                    return Ok(FARJUMP_OK);
                }
                Err(failure) => _ = first.get_or_insert(failure),
            }
        }
        Err(first.unwrap_or_else(|| {
            Failure::argument("`handle` has no address of its owner: connect by farjump_client_connect()")
        }))
    })
}

/// Closes it, and sets the variable to NULL. Does nothing if it is NULL already. No other thread may be using
/// it. Views that came by it stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_close(client: *mut *mut farjump_client_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with one of `farjump_client_connect`, which nothing else
        // uses.
        drop(unsafe { take(client, "client", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// Returns the address that the client is connected to. The text belongs to the client. NULL if `client` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_address(client: *const farjump_client_t) -> *const c_char {
    // SAFETY: the header requires a client.
    value(std::ptr::null(), || Ok(unsafe { object(client, "client")? }.address.as_ptr()))
}

/// Returns the epoch of the owner's store: another number each time a store is made. 0 if `client` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_epoch(client: *const farjump_client_t) -> u64 {
    // SAFETY: the header requires a client.
    value(0, || Ok(unsafe { object(client, "client")? }.client.epoch()))
}

/// Returns whether the owner's memory is mapped here, so that views make no copy. If it is not,
/// farjump_last_error() returns the reason. False if `client` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_is_mapped(client: *const farjump_client_t) -> bool {
    value(false, || {
        // SAFETY: the header requires a client.
        let mapping = unsafe { object(client, "client")? }.client.mapping();
        mapping.map(|()| true).map_err(|why| Failure::new(FARJUMP_ERROR_SYSTEM, why))
    })
}

/// Gets the bytes of an object: in the owner's memory if that is mapped, otherwise a copy.
/// farjump_view_release() ends the view.
///
/// FARJUMP_ERROR_GONE, FARJUMP_ERROR_WRONG_KEY, FARJUMP_ERROR_UNSET.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_get(
    client: *const farjump_client_t,
    handle: *const farjump_handle_t,
    view: *mut *mut farjump_view_t,
) -> farjump_status_t {
    // SAFETY: the header requires a client, a handle and a variable for a pointer.
    guarded(|| unsafe {
        let made = variable(view, "view")?;
        let (client, handle) = both(client, handle)?;
        *made = farjump_view_t::give(client.get(handle)?);
        Ok(FARJUMP_OK)
    })
}

/// Gets the bytes as farjump_client_get() does, and waits for the contents of a reserved object, `timeout_ns`
/// nanoseconds at most. After that it fails with FARJUMP_ERROR_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_wait(
    client: *const farjump_client_t,
    handle: *const farjump_handle_t,
    timeout_ns: u64,
    view: *mut *mut farjump_view_t,
) -> farjump_status_t {
    // SAFETY: the header requires a client, a handle and a variable for a pointer.
    guarded(|| unsafe {
        let made = variable(view, "view")?;
        let (client, handle) = both(client, handle)?;
        *made = farjump_view_t::give(client.wait(handle, &mut Patience::of(duration(timeout_ns)))?);
        Ok(FARJUMP_OK)
    })
}

/// Makes an object of a copy of `size` bytes at the owner. `type_name` is a name for its type, of at most 255
/// bytes; NULL for none. The call takes `timeout_ns` nanoseconds at most. farjump_handle_free() ends the
/// handle, and not the object.
///
/// FARJUMP_ERROR_STORE_FULL when the owner has no memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_put(
    client: *const farjump_client_t,
    type_name: *const c_char,
    bytes: *const c_void,
    size: usize,
    timeout_ns: u64,
    handle: *mut *mut farjump_handle_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a client, a variable for a pointer, NULL or a text, and `size` bytes.
        let (client, made, type_name, bytes) = unsafe {
            let made = variable(handle, "handle")?;
            (object(client, "client")?, made, self::type_name(type_name)?, self::bytes(bytes, size, "bytes")?)
        };
        let put = client.client.put_parts(type_name, &[bytes], &mut Patience::of(duration(timeout_ns)))?;
        *made = farjump_handle_t::give(put);
        Ok(FARJUMP_OK)
    })
}

/// Makes a handle at the owner whose object gets its contents later, by farjump_client_set() or
/// farjump_store_set().
///
/// FARJUMP_ERROR_STORE_FULL when the owner has no memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_reserve(
    client: *const farjump_client_t,
    type_name: *const c_char,
    handle: *mut *mut farjump_handle_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a client, a variable for a pointer, and NULL or a text.
        let (client, made, type_name) = unsafe {
            let made = variable(handle, "handle")?;
            (object(client, "client")?, made, self::type_name(type_name)?)
        };
        *made = farjump_handle_t::give(client.client.reserve(type_name)?);
        Ok(FARJUMP_OK)
    })
}

/// Gives a reserved object contents, a copy of `size` bytes, in place of those that it has. Readers that wait
/// for them wake up. The call takes `timeout_ns` nanoseconds at most.
///
/// FARJUMP_ERROR_ARGUMENT for an object that was not reserved; FARJUMP_ERROR_GONE, FARJUMP_ERROR_WRONG_KEY,
/// FARJUMP_ERROR_STORE_FULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_set(
    client: *const farjump_client_t,
    handle: *const farjump_handle_t,
    bytes: *const c_void,
    size: usize,
    timeout_ns: u64,
) -> farjump_status_t {
    // SAFETY: the header requires a client, a handle and `size` bytes.
    guarded(|| unsafe {
        let (client, handle) = both(client, handle)?;
        let bytes = self::bytes(bytes, size, "bytes")?;
        client.set(handle, &[bytes], &mut Patience::of(duration(timeout_ns)))?;
        Ok(FARJUMP_OK)
    })
}

/// Evicts an object; see farjump_store_evict().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_evict(
    client: *const farjump_client_t,
    handle: *const farjump_handle_t,
    was_there: *mut bool,
) -> farjump_status_t {
    // SAFETY: the header requires a client, a handle, and NULL or a variable.
    guarded(|| unsafe {
        let (client, handle) = both(client, handle)?;
        write_bool(was_there, client.evict(handle)?);
        Ok(FARJUMP_OK)
    })
}

/// Sets `exists` to true if an object is there or reserved; see farjump_store_exists().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_exists(
    client: *const farjump_client_t,
    handle: *const farjump_handle_t,
    exists: *mut bool,
) -> farjump_status_t {
    // SAFETY: the header requires a client, a handle and a variable.
    guarded(|| unsafe {
        let answer = place(exists, "exists")?.write(false);
        let (client, handle) = both(client, handle)?;
        *answer = client.exists(handle)?;
        Ok(FARJUMP_OK)
    })
}

/// Leases an object; see farjump_store_lease(). Whole milliseconds count, and at least one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_lease(
    client: *const farjump_client_t,
    handle: *const farjump_handle_t,
    nanoseconds: u64,
) -> farjump_status_t {
    // SAFETY: the header requires a client and a handle.
    guarded(|| unsafe {
        let (client, handle) = both(client, handle)?;
        client.lease(handle, Some(duration(nanoseconds)).filter(|_| nanoseconds != u64::MAX))?;
        Ok(FARJUMP_OK)
    })
}

/// Adds `difference` to the object's count of references, which begins at 0. `count`, unless it is NULL,
/// becomes the new count. The owner evicts the object when the count comes to 0.
///
/// FARJUMP_ERROR_GONE, FARJUMP_ERROR_WRONG_KEY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_count(
    client: *const farjump_client_t,
    handle: *const farjump_handle_t,
    difference: i64,
    count: *mut u64,
) -> farjump_status_t {
    // SAFETY: the header requires a client, a handle, and NULL or a place for a number.
    guarded(|| unsafe {
        let (client, handle) = both(client, handle)?;
        let counted = client.count(handle, difference)?;
        if !count.is_null() {
            count.write(counted);
        }
        Ok(FARJUMP_OK)
    })
}

/// Runs the function of `library` at the owner of an object, on that object: the arguments travel, and the
/// object does not. The function finds both by farjump_open_at() of farjump_ifunc.h. Waits for the reply,
/// `timeout_ns` nanoseconds at most; `reply` receives it, and may be NULL if it is not needed.
///
/// Fails as farjump_link_call(), for example with FARJUMP_ERROR_REFUSED when the owner takes no code;
/// FARJUMP_ERROR_GONE for a handle of an owner that has restarted since.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_call(
    client: *const farjump_client_t,
    library: *const farjump_library_t,
    handle: *const farjump_handle_t,
    args: *const c_void,
    args_size: usize,
    timeout_ns: u64,
    reply: *mut farjump_bytes_t,
) -> farjump_status_t {
    // SAFETY: the header requires a client, an open library, a handle, `args_size` bytes, and NULL or bytes
    // that nothing else uses.
    guarded(|| unsafe {
        let (client, handle) = both(client, handle)?;
        let (library, args) = (object(library, "library")?, bytes(args, args_size, "args")?);
        let patience = &mut Patience::of(duration(timeout_ns));
        deliver(client.call_with(library.rust(), handle, args, patience), reply)?;
        Ok(FARJUMP_OK)
    })
}

/// Makes an object of another one at its owner: runs the function of `library` on it, which makes the new one
/// by farjump_new_object() of farjump_ifunc.h, and replies nothing itself. No bytes of either object travel.
/// The call takes as long as a request may (the option `timeout` of clients). farjump_handle_free() ends
/// the handle, and not the object.
///
/// Fails as farjump_client_call(); FARJUMP_ERROR_TRANSPORT when the function has not made one object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_derive(
    client: *const farjump_client_t,
    library: *const farjump_library_t,
    handle: *const farjump_handle_t,
    args: *const c_void,
    args_size: usize,
    derived: *mut *mut farjump_handle_t,
) -> farjump_status_t {
    // SAFETY: the header requires a client, an open library, a handle, `args_size` bytes and a variable for a
    // pointer.
    guarded(|| unsafe {
        let made = variable(derived, "derived")?;
        let (client, handle) = both(client, handle)?;
        let (library, args) = (object(library, "library")?, bytes(args, args_size, "args")?);
        *made = farjump_handle_t::give(client.derive(library.rust(), handle, args)?);
        Ok(FARJUMP_OK)
    })
}

/// Writes the reply of a call at an object to C's bytes, unless `reply` is NULL.
///
/// # Safety
/// Unless it is NULL, `reply` must come from `farjump_bytes_new`, and nothing else may use it.
pub(crate) unsafe fn deliver(
    outcome: Result<Vec<u8>, Error>,
    reply: *mut farjump_bytes_t,
) -> Result<(), Failure> {
    // SAFETY: this function's caller guarantees it.
    let Some(reply) = (unsafe { reply.as_mut() }) else { return Ok(outcome.map(drop)?) };
    reply.fill(|content| match outcome {
        Ok(mut came) => {
            content.append(&mut came);
            Ok(())
        }
        Err(error) => Err(Failure::of_object_call(error, content)),
    })
}

/// Returns the client and the handle of a request.
///
/// # Safety
/// Unless they are NULL, `client` must come from `farjump_client_connect` and `handle` must be a handle, for `'a`.
pub(crate) unsafe fn both<'a>(
    client: *const farjump_client_t,
    handle: *const farjump_handle_t,
) -> Result<(&'a Client, &'a Handle), Failure> {
    // SAFETY: this function's caller guarantees it.
    unsafe { Ok((&object(client, "client")?.client, object(handle, "handle")?.rust())) }
}
