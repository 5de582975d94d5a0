//! The time that objects stay: owned and counted ones.

use farjump_handles::{Counted, Keeper, Owned};

use crate::api::catch::{give, guarded, object, take, value, variable};
use crate::api::last_error::Failure;
use crate::api::objects::client::{self, farjump_client_t};
use crate::api::objects::handle::farjump_handle_t;
use crate::api::objects::store::{self, farjump_store_t, write_bool};
use crate::api::status::farjump_status_t::{self, *};

/// An object that this process alone owns: farjump_owned_release() evicts it. It keeps the store or client
/// that it came by. Any number of threads may use it at once.
///
/// Each object is static at first: it stays until it is evicted or its store ends. An object that is owned,
/// counted (farjump_counted_t) or leased (farjump_store_lease(), farjump_client_lease()) goes earlier.
#[derive(Debug)]
pub struct farjump_owned_t {
    owned: Owned,
    handle: farjump_handle_t,
}

/// One reference to a counted object. The object is evicted with its last reference, in any process. A
/// reference keeps the store or client that it came by. Any number of threads may use it at once.
///
/// The store counts the references. A process that ends without farjump_counted_release() leaves its
/// references counted: give such objects a lease as well.
#[derive(Debug)]
pub struct farjump_counted_t {
    counted: Counted,
    handle: farjump_handle_t,
}

/// Gives C an owned object.
fn own(keeper: impl Into<Keeper>, handle: &farjump_handle_t) -> *mut farjump_owned_t {
    let handle = handle.rust().clone();
    let (owned, handle) = (Owned::new(keeper, handle.clone()), farjump_handle_t::new(handle));
    give(farjump_owned_t { owned, handle })
}

/// Gives C a reference.
fn counted(counted: Counted) -> *mut farjump_counted_t {
    let handle = farjump_handle_t::new((*counted).clone());
    give(farjump_counted_t { counted, handle })
}

/// Makes this process the owner of an object of this store, which nothing else should own. The handle is
/// copied. farjump_owned_release() or farjump_owned_into_static() ends the ownership.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_own(
    store: *const farjump_store_t,
    handle: *const farjump_handle_t,
    owned: *mut *mut farjump_owned_t,
) -> farjump_status_t {
    // SAFETY: the header requires a store, a handle and a variable for a pointer.
    guarded(|| unsafe {
        let made = variable(owned, "owned")?;
        let (store, handle) = (object(store, "store")?, object(handle, "handle")?);
        *made = own(store.rust(), handle);
        Ok(FARJUMP_OK)
    })
}

/// Does the same as farjump_store_own(), for an object of another process's store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_own(
    client: *const farjump_client_t,
    handle: *const farjump_handle_t,
    owned: *mut *mut farjump_owned_t,
) -> farjump_status_t {
    // SAFETY: the header requires a client, a handle and a variable for a pointer.
    guarded(|| unsafe {
        let made = variable(owned, "owned")?;
        let (client, handle) = (object(client, "client")?, object(handle, "handle")?);
        *made = own(client.rust(), handle);
        Ok(FARJUMP_OK)
    })
}

/// Returns the handle of the object. It belongs to `owned`, and ends with it. NULL if `owned` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_owned_handle(owned: *const farjump_owned_t) -> *const farjump_handle_t {
    // SAFETY: the header requires an owned object.
    value(std::ptr::null(), || Ok(&raw const unsafe { object(owned, "owned")? }.handle))
}

/// Evicts the object, and sets the variable to NULL. Does nothing if it is NULL already: `was_there` becomes
/// false then. `was_there`, unless it is NULL, becomes true if the object was there.
///
/// Fails as farjump_client_evict(). The variable is NULL also after a failure, and the object may be there
/// still.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_owned_release(
    owned: *mut *mut farjump_owned_t,
    was_there: *mut bool,
) -> farjump_status_t {
    // SAFETY: the header requires a variable with an owned object, which nothing else uses, and NULL or a
    // variable.
    guarded(|| unsafe {
        write_bool(was_there, false);
        if let Some(taken) = take(owned, "owned", |_| Ok(()))? {
            write_bool(was_there, taken.owned.evict()?);
        }
        Ok(FARJUMP_OK)
    })
}

/// Ends the ownership, and sets the variable to NULL. Does nothing if it is NULL already. The object stays
/// until it is evicted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_owned_into_static(owned: *mut *mut farjump_owned_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with an owned object, which nothing else uses.
        if let Some(taken) = unsafe { take(owned, "owned", |_| Ok(()))? } {
            drop(taken.owned.into_static());
        }
        Ok(FARJUMP_OK)
    })
}

/// Takes a reference to an object of this store: the first one, by which it becomes a counted object, or a
/// further one. The handle is copied. farjump_counted_release() or farjump_counted_send() ends the reference.
///
/// FARJUMP_ERROR_GONE, FARJUMP_ERROR_WRONG_KEY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_retain(
    store: *const farjump_store_t,
    handle: *const farjump_handle_t,
    reference: *mut *mut farjump_counted_t,
) -> farjump_status_t {
    // SAFETY: the header requires a store, a handle and a variable for a pointer.
    guarded(|| unsafe {
        let made = variable(reference, "reference")?;
        let (store, handle) = store::both(store, handle)?;
        *made = counted(Counted::new(store, handle.clone())?);
        Ok(FARJUMP_OK)
    })
}

/// Does the same as farjump_store_retain(), for an object of another process's store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_retain(
    client: *const farjump_client_t,
    handle: *const farjump_handle_t,
    reference: *mut *mut farjump_counted_t,
) -> farjump_status_t {
    // SAFETY: the header requires a client, a handle and a variable for a pointer.
    guarded(|| unsafe {
        let made = variable(reference, "reference")?;
        let (client, handle) = client::both(client, handle)?;
        *made = counted(Counted::new(client, handle.clone())?);
        Ok(FARJUMP_OK)
    })
}

/// Takes over a reference that another process has given away by farjump_counted_send(), with the handle that
/// it sent. The count does not change, and no request goes to the store. For an object of this store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_receive(
    store: *const farjump_store_t,
    handle: *const farjump_handle_t,
    reference: *mut *mut farjump_counted_t,
) -> farjump_status_t {
    // SAFETY: the header requires a store, a handle and a variable for a pointer.
    guarded(|| unsafe {
        let made = variable(reference, "reference")?;
        let (store, handle) = store::both(store, handle)?;
        *made = counted(Counted::receive(store, handle.clone()));
        Ok(FARJUMP_OK)
    })
}

/// Does the same as farjump_store_receive(), for an object of another process's store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_receive(
    client: *const farjump_client_t,
    handle: *const farjump_handle_t,
    reference: *mut *mut farjump_counted_t,
) -> farjump_status_t {
    // SAFETY: the header requires a client, a handle and a variable for a pointer.
    guarded(|| unsafe {
        let made = variable(reference, "reference")?;
        let (client, handle) = client::both(client, handle)?;
        *made = counted(Counted::receive(client, handle.clone()));
        Ok(FARJUMP_OK)
    })
}

/// Takes a further reference to the same object.
///
/// FARJUMP_ERROR_GONE when the object was evicted all the same, or its lease has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_counted_retain(
    reference: *const farjump_counted_t,
    another: *mut *mut farjump_counted_t,
) -> farjump_status_t {
    // SAFETY: the header requires a reference and a variable for a pointer.
    guarded(|| unsafe {
        let made = variable(another, "another")?;
        *made = counted(object(reference, "reference")?.counted.another()?);
        Ok(FARJUMP_OK)
    })
}

/// Returns the handle of the object. It belongs to `reference`, and ends with it. NULL if `reference` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_counted_handle(
    reference: *const farjump_counted_t,
) -> *const farjump_handle_t {
    // SAFETY: the header requires a reference.
    value(std::ptr::null(), || Ok(&raw const unsafe { object(reference, "reference")? }.handle))
}

/// Releases the reference, and sets the variable to NULL. Does nothing if it is NULL already. `left`, unless
/// it is NULL, becomes the number of references that are left. The object is evicted with the last one.
///
/// FARJUMP_ERROR_GONE, FARJUMP_ERROR_WRONG_KEY. The variable is NULL also after a failure, and the reference
/// may be counted still.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_counted_release(
    reference: *mut *mut farjump_counted_t,
    left: *mut u64,
) -> farjump_status_t {
    // SAFETY: the header requires a variable with a reference, which nothing else uses, and NULL or a place for
    // a number.
    guarded(|| unsafe {
        if !left.is_null() {
            left.write(0);
        }
        if let Some(taken) = take(reference, "reference", |_| Ok(()))? {
            let counted = taken.counted.release()?;
            if !left.is_null() {
                left.write(counted);
            }
        }
        Ok(FARJUMP_OK)
    })
}

/// Gives the reference away, and sets the variable to NULL: it stays counted until another process that has
/// the handle has taken it over (farjump_client_receive()) and released it. `handle` becomes the handle, to
/// be sent (farjump_handle_to_bytes()); farjump_handle_free() ends that handle.
///
/// FARJUMP_ERROR_ARGUMENT when the variable is NULL already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_counted_send(
    reference: *mut *mut farjump_counted_t,
    handle: *mut *mut farjump_handle_t,
) -> farjump_status_t {
    // SAFETY: the header requires a variable with a reference, which nothing else uses, and a variable for a
    // pointer.
    guarded(|| unsafe {
        let made = variable(handle, "handle")?;
        let taken = take(reference, "reference", |_| Ok(()))?;
        let taken = taken.ok_or_else(|| Failure::null("reference"))?;
        *made = farjump_handle_t::give(taken.counted.send());
        Ok(FARJUMP_OK)
    })
}

/// Adds `difference` to the object's count of references, for programs that keep account of them themselves;
/// see farjump_client_count().
///
/// FARJUMP_ERROR_GONE, FARJUMP_ERROR_WRONG_KEY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_count(
    store: *const farjump_store_t,
    handle: *const farjump_handle_t,
    difference: i64,
    count: *mut u64,
) -> farjump_status_t {
    // SAFETY: the header requires a store, a handle, and NULL or a place for a number.
    guarded(|| unsafe {
        let (store, handle) = store::both(store, handle)?;
        let counted = store.count(handle, difference)?;
        if !count.is_null() {
            count.write(counted);
        }
        Ok(FARJUMP_OK)
    })
}
