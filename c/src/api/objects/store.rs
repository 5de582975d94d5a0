//! Stores: objects that this process owns, for itself and other processes.

use std::ffi::{CString, c_char, c_int, c_void};

use farjump::objects::{ObjectListing, ObjectState, StoredObject};
use farjump_handles::{Handle, Store, StoreConfig};

use crate::api::c_text::c_text;
use crate::api::catch::{bytes, duration, fill, give, guarded, object, path, place, take, text, variable};
use crate::api::config::{self, Options, change, configuration};
use crate::api::last_error::Failure;
use crate::api::objects::handle::farjump_handle_t;
use crate::api::objects::view::farjump_view_t;
use crate::api::status::farjump_status_t::{self, *};
use crate::api::target::config::farjump_target_config_t;

/// Options for stores. One thread changes it at a time. It is copied when a store is opened.
#[derive(Debug, Default)]
pub struct farjump_store_config_t {
    pub(crate) options: Options<StoreConfig>,
}

configuration!(farjump_store_config_t of StoreConfig);

/// Objects that this process owns: bytes that it keeps for other processes, which read them where they lie. A
/// target that is made with it (farjump_target_config_set_objects()) lets other processes reach it. Any
/// number of threads may use it at once.
#[derive(Debug)]
pub struct farjump_store_t {
    store: Store,
}

impl farjump_store_t {
    pub(crate) fn rust(&self) -> &Store {
        &self.store
    }
}

/// Writes the `size` bytes of a new object to `data`. They are not zeroed before. Anything but 0 is a
/// failure: no object is made then.
pub type farjump_store_write_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, data: *mut c_void, size: usize) -> c_int>;

/// The state of an object.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum farjump_object_state_t {
    /// It is reserved, and has no contents yet.
    FARJUMP_OBJECT_RESERVED = 0,
    /// Its contents are being written.
    FARJUMP_OBJECT_UNFINISHED = 1,
    /// It can be read.
    FARJUMP_OBJECT_PRESENT = 2,
    /// It can be read. It lies in a file, because the memory was full.
    FARJUMP_OBJECT_SPILLED = 3,
    /// It is evicted, and its last readers still use it.
    FARJUMP_OBJECT_EVICTED = 4,
}

/// One object of a store. The structure and its text belong to the library, and are valid until the callback
/// returns; it may grow at its end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct farjump_object_t {
    /// Its number.
    pub number: u64,
    /// Length in bytes.
    pub size: u64,
    /// The name of its type, as its maker gave it.
    pub type_name: *const c_char,
    /// Readers and calls that use it now.
    pub claims: u64,
    /// Counted references; 0 if they are not counted.
    pub references: u64,
    /// Time left of its lease, in nanoseconds; FARJUMP_FOREVER without one.
    pub lease_ns: u64,
    /// One of FARJUMP_OBJECT_RESERVED and its kin.
    pub state: c_int,
}

/// Runs for each object of a store.
pub type farjump_object_fn = Option<unsafe extern "C" fn(user: *mut c_void, object: *const farjump_object_t)>;

/// Statistics of a store. It may grow at its end.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct farjump_store_stats_t {
    /// Objects, those included that are reserved, or evicted and still read.
    pub objects: u64,
    /// Bytes of its memory in use.
    pub used: u64,
    /// Bytes of its memory.
    pub capacity: u64,
    /// Bytes in use for links that have ended, as their processes may still read or write them.
    pub quarantined: u64,
}

/// Passes each object to C.
pub(crate) fn each_object(listing: &ObjectListing, mut each: impl FnMut(&farjump_object_t)) {
    for listed in &listing.objects {
        let type_name: CString = c_text(&listed.type_name);
        each(&farjump_object_t { type_name: type_name.as_ptr(), ..without_text(listed) });
    }
}

fn without_text(listed: &StoredObject) -> farjump_object_t {
    use farjump_object_state_t::*;
    let state = match listed.state {
        ObjectState::Reserved => FARJUMP_OBJECT_RESERVED,
        ObjectState::Unfinished => FARJUMP_OBJECT_UNFINISHED,
        ObjectState::Present => FARJUMP_OBJECT_PRESENT,
        ObjectState::Spilled => FARJUMP_OBJECT_SPILLED,
        ObjectState::Evicted => FARJUMP_OBJECT_EVICTED,
    };
    farjump_object_t {
        number: listed.number,
        size: listed.len,
        type_name: std::ptr::null(),
        claims: listed.claims,
        references: listed.references,
        lease_ns: listed.lease_ns.unwrap_or(u64::MAX),
        state: state as c_int,
    }
}

/// Returns the name of a type from C. NULL stands for no name.
///
/// # Safety
/// Unless it is NULL, `name` must be readable up to a zero byte, and stay unchanged for `'a`.
pub(crate) unsafe fn type_name<'a>(name: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: this function's caller guarantees it.
    if name.is_null() { Ok("") } else { unsafe { text(name, "type_name") } }
}

/// Writes yes or no for C, unless `answer` is NULL.
///
/// # Safety
/// Unless it is NULL, `answer` must be writable.
pub(crate) unsafe fn write_bool(answer: *mut bool, is_so: bool) {
    if !answer.is_null() {
        // SAFETY: this function's caller guarantees it.
        unsafe { answer.write(is_so) };
    }
}

/// Makes a configuration, all of its options the defaults. farjump_store_config_free() ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_config_new(
    config: *mut *mut farjump_store_config_t,
) -> farjump_status_t {
    // SAFETY: the header requires a variable for a pointer.
    unsafe { config::new(config) }
}

/// Frees it, and sets the variable to NULL. Does nothing if it is NULL already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_config_free(
    config: *mut *mut farjump_store_config_t,
) -> farjump_status_t {
    // SAFETY: the header requires a variable with one of `farjump_store_config_new`, which nothing else uses.
    unsafe { config::free(config) }
}

/// Sets the option `name` to `value`. docs/reference/options.md lists the options of stores. The top of
/// this header says how values are written.
///
/// FARJUMP_ERROR_ARGUMENT if no option has the name, or it cannot have the value. Nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_config_set(
    config: *mut farjump_store_config_t,
    name: *const c_char,
    value: *const c_char,
) -> farjump_status_t {
    // SAFETY: the header requires one of `farjump_store_config_new` that nothing else uses, and texts.
    unsafe { config::set(config, name, value) }
}

/// Gives the value of the option `name`, as farjump_store_config_set() takes it; otherwise it does the
/// same as farjump_link_config_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_config_get(
    config: *mut farjump_store_config_t,
    name: *const c_char,
    value: *mut *const c_char,
) -> farjump_status_t {
    // SAFETY: the header requires one of `farjump_store_config_new` that nothing else uses, a text, and a
    // variable for a pointer.
    unsafe { config::get(config, name, value) }
}

/// Opens a store. `config` may be NULL for the defaults. farjump_store_close() ends it.
///
/// FARJUMP_ERROR_SYSTEM when there is no memory for it, or no file can be made in the folder for spilled
/// objects. FARJUMP_ERROR_ARGUMENT for options that lack each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_open(
    config: *const farjump_store_config_t,
    store: *mut *mut farjump_store_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable for a pointer, and NULL or a configuration that nothing changes.
        let (made, config) = unsafe { (variable(store, "store")?, config::chosen(config)) };
        *made = give(farjump_store_t { store: Store::options().config(config).build()? });
        Ok(FARJUMP_OK)
    })
}

/// Closes it, and sets the variable to NULL. Does nothing if it is NULL already. No other thread may be using
/// it. Targets and views that use the store keep it, and its objects go with the last of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_close(store: *mut *mut farjump_store_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with one of `farjump_store_open`, which nothing else uses.
        drop(unsafe { take(store, "store", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// Gives targets the store: other processes reach its objects there (farjump_client_connect()), and injected
/// functions too. Several targets may have the same store. Default: no store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_config_set_objects(
    config: *mut farjump_target_config_t,
    store: *const farjump_store_t,
) -> farjump_status_t {
    change!(config, config.objects = Some(object(store, "store")?.store.clone()))
}

/// Makes an object of a copy of `size` bytes. `type_name` is a name for its type, of at most 255 bytes; NULL
/// for none. farjump_handle_free() ends the handle, and not the object.
///
/// FARJUMP_ERROR_STORE_FULL when there is no memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_put(
    store: *const farjump_store_t,
    type_name: *const c_char,
    bytes: *const c_void,
    size: usize,
    handle: *mut *mut farjump_handle_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a store, a variable for a pointer, NULL or a text, and `size` bytes.
        let (store, made, type_name, bytes) = unsafe {
            let made = variable(handle, "handle")?;
            (object(store, "store")?, made, self::type_name(type_name)?, self::bytes(bytes, size, "bytes")?)
        };
        *made = farjump_handle_t::give(store.store.put_as(type_name, bytes)?);
        Ok(FARJUMP_OK)
    })
}

/// Makes an object of `size` bytes, which `write` writes where they stay: no copy is made. It runs once, with
/// `user`, inside this call, and may use the store. Otherwise it does the same as farjump_store_put().
///
/// FARJUMP_ERROR_ARGUMENT when `write` fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_put_with(
    store: *const farjump_store_t,
    type_name: *const c_char,
    size: usize,
    write: farjump_store_write_fn,
    user: *mut c_void,
    handle: *mut *mut farjump_handle_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a store, a variable for a pointer, and NULL or a text.
        let (store, made, type_name) = unsafe {
            let made = variable(handle, "handle")?;
            (&object(store, "store")?.store, made, self::type_name(type_name)?)
        };
        let write = write.ok_or_else(|| Failure::null("write"))?;
        let mut failed = 0;
        let put = store.put_with(type_name, size, |into| {
            // SAFETY: the header requires a function of this type, which takes this pointer; `into` has
            // `size` bytes.
            failed = unsafe { write(user, into.as_mut_ptr().cast(), into.len()) };
        })?;
        if failed != 0 {
            // No other part of the program has seen the object's handle.
            store.evict(&put)?;
            return Err(Failure::argument(format!("`write` failed with {failed}: no object was made")));
        }
        *made = farjump_handle_t::give(put);
        Ok(FARJUMP_OK)
    })
}

/// Makes an object of a copy of the file at `path`. Later changes of the file do not reach its readers.
///
/// FARJUMP_ERROR_SYSTEM for a file that does not exist, cannot be read, or is not regular; otherwise as
/// farjump_store_put().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_put_file(
    store: *const farjump_store_t,
    path: *const c_char,
    handle: *mut *mut farjump_handle_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a store, a variable for a pointer, and a text.
        let (store, made, path) =
            unsafe { (object(store, "store")?, variable(handle, "handle")?, self::path(path, "path")?) };
        *made = farjump_handle_t::give(store.store.put_file(path)?);
        Ok(FARJUMP_OK)
    })
}

/// Gets the bytes of an object of this store, without a copy. farjump_view_release() ends the view.
///
/// FARJUMP_ERROR_GONE, FARJUMP_ERROR_WRONG_KEY, FARJUMP_ERROR_UNSET; FARJUMP_ERROR_STORE_FULL when a spilled
/// object cannot be read back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_get(
    store: *const farjump_store_t,
    handle: *const farjump_handle_t,
    view: *mut *mut farjump_view_t,
) -> farjump_status_t {
    // SAFETY: the header requires a store, a handle and a variable for a pointer.
    guarded(|| unsafe {
        let made = variable(view, "view")?;
        let (store, handle) = both(store, handle)?;
        *made = farjump_view_t::give(store.get(handle)?);
        Ok(FARJUMP_OK)
    })
}

/// Evicts an object: it is gone for all readers that come later, and stays for those that have a view.
/// `was_there`, unless it is NULL, becomes true if the object was there, and false otherwise. Its absence is
/// no error.
///
/// FARJUMP_ERROR_WRONG_KEY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_evict(
    store: *const farjump_store_t,
    handle: *const farjump_handle_t,
    was_there: *mut bool,
) -> farjump_status_t {
    // SAFETY: the header requires a store, a handle, and NULL or a variable.
    guarded(|| unsafe {
        let (store, handle) = both(store, handle)?;
        write_bool(was_there, store.evict(handle)?);
        Ok(FARJUMP_OK)
    })
}

/// Sets `exists` to true if an object is there or reserved, and to false otherwise.
///
/// FARJUMP_ERROR_WRONG_KEY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_exists(
    store: *const farjump_store_t,
    handle: *const farjump_handle_t,
    exists: *mut bool,
) -> farjump_status_t {
    // SAFETY: the header requires a store, a handle and a variable.
    guarded(|| unsafe {
        let answer = place(exists, "exists")?.write(false);
        let (store, handle) = both(store, handle)?;
        *answer = store.exists(handle)?;
        Ok(FARJUMP_OK)
    })
}

/// Makes a handle whose object gets its contents later, by farjump_store_set() or farjump_client_set().
///
/// FARJUMP_ERROR_STORE_FULL when there is no memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_reserve(
    store: *const farjump_store_t,
    type_name: *const c_char,
    handle: *mut *mut farjump_handle_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a store, a variable for a pointer, and NULL or a text.
        let (store, made, type_name) = unsafe {
            let made = variable(handle, "handle")?;
            (object(store, "store")?, made, self::type_name(type_name)?)
        };
        *made = farjump_handle_t::give(store.store.reserve(type_name)?);
        Ok(FARJUMP_OK)
    })
}

/// Gives a reserved object contents, a copy of `size` bytes, in place of those that it has. Readers that wait
/// for them wake up (farjump_client_wait()).
///
/// FARJUMP_ERROR_ARGUMENT for an object that was not reserved; FARJUMP_ERROR_GONE, FARJUMP_ERROR_WRONG_KEY,
/// FARJUMP_ERROR_STORE_FULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_set(
    store: *const farjump_store_t,
    handle: *const farjump_handle_t,
    bytes: *const c_void,
    size: usize,
) -> farjump_status_t {
    // SAFETY: the header requires a store, a handle and `size` bytes.
    guarded(|| unsafe {
        let (store, handle) = both(store, handle)?;
        store.set(handle, self::bytes(bytes, size, "bytes")?)?;
        Ok(FARJUMP_OK)
    })
}

/// Leases an object: the store evicts it `nanoseconds` from now, in place of an earlier limit. Call this
/// again to renew the lease. FARJUMP_FOREVER removes the limit.
///
/// FARJUMP_ERROR_GONE, also when the lease has ended before it was renewed; FARJUMP_ERROR_WRONG_KEY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_lease(
    store: *const farjump_store_t,
    handle: *const farjump_handle_t,
    nanoseconds: u64,
) -> farjump_status_t {
    // SAFETY: the header requires a store and a handle.
    guarded(|| unsafe {
        let (store, handle) = both(store, handle)?;
        store.lease(handle, Some(duration(nanoseconds)).filter(|_| nanoseconds != u64::MAX))?;
        Ok(FARJUMP_OK)
    })
}

/// Runs `callback`, with `user`, for each object of the store, the most recently used first. The callback may
/// use the store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_objects(
    store: *const farjump_store_t,
    callback: farjump_object_fn,
    user: *mut c_void,
) -> farjump_status_t {
    guarded(|| {
        let callback = callback.ok_or_else(|| Failure::null("callback"))?;
        // SAFETY: the header requires a store.
        let listing = unsafe { object(store, "store")? }.store.list(usize::MAX);
        // SAFETY: the header requires a function of this type, which takes this pointer.
        each_object(&listing, |object| unsafe { callback(user, object) });
        Ok(FARJUMP_OK)
    })
}

/// Reads the statistics of the store. `size` is `sizeof *stats`: fields beyond it are not written, and fields
/// that the library does not know become 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_stats(
    store: *const farjump_store_t,
    stats: *mut farjump_store_stats_t,
    size: usize,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a store.
        let listing = unsafe { object(store, "store")? }.store.list(0);
        let ObjectListing { left_out, used, capacity, quarantined, .. } = listing;
        let counted = farjump_store_stats_t { objects: left_out, used, capacity, quarantined };
        // SAFETY: the header requires so many bytes; the structure is of numbers of one size.
        unsafe { fill(stats, size, size_of::<farjump_store_stats_t>(), "stats", counted)? };
        Ok(FARJUMP_OK)
    })
}

/// Returns the store and the handle of a request.
///
/// # Safety
/// Unless they are NULL, `store` must come from `farjump_store_open` and `handle` must be a handle, for `'a`.
pub(crate) unsafe fn both<'a>(
    store: *const farjump_store_t,
    handle: *const farjump_handle_t,
) -> Result<(&'a Store, &'a Handle), Failure> {
    // SAFETY: this function's caller guarantees it.
    unsafe { Ok((&object(store, "store")?.store, object(handle, "handle")?.rust())) }
}
