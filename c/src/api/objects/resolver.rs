//! Resolvers: the use of objects of any number of owners.

use std::ffi::{c_char, c_void};

use farjump_handles::Resolver;

use crate::api::catch::{bytes, give, guarded, object, take, text, variable};
use crate::api::library::farjump_library_t;
use crate::api::objects::calls::{farjump_outcomes_t, handles_in};
use crate::api::objects::client::farjump_client_t;
use crate::api::objects::handle::farjump_handle_t;
use crate::api::objects::view::farjump_view_t;
use crate::api::shared::key_in;
use crate::api::status::farjump_status_t::{self, *};

/// Clients for the owners of handles: one for each owner, made when the first handle of it is used. A client
/// whose owner has ended is made anew. Any number of threads may use it at once.
#[derive(Debug)]
pub struct farjump_resolver_t {
    resolver: Resolver,
}

/// Makes one without clients. farjump_resolver_free() ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_resolver_new(resolver: *mut *mut farjump_resolver_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable for a pointer.
        let made = unsafe { variable(resolver, "resolver")? };
        *made = give(farjump_resolver_t { resolver: Resolver::new() });
        Ok(FARJUMP_OK)
    })
}

/// Frees it, and sets the variable to NULL. Does nothing if it is NULL already. No other thread may be using
/// it. Clients and views that came by it stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_resolver_free(resolver: *mut *mut farjump_resolver_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with one of `farjump_resolver_new`, which nothing else uses.
        drop(unsafe { take(resolver, "resolver", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// Sets the key for an owner at `address`, `tcp:HOST:PORT` as its handles have it, from a file as `farjump
/// key` makes it. The file is read now.
///
/// FARJUMP_ERROR_CONNECT for a file that holds no key, or that other users may read or write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_resolver_set_key_file(
    resolver: *const farjump_resolver_t,
    address: *const c_char,
    path: *const c_char,
) -> farjump_status_t {
    // SAFETY: the header requires a resolver and texts.
    guarded(|| unsafe {
        let (resolver, address) = (object(resolver, "resolver")?, text(address, "address")?);
        resolver.resolver.set_key(address, key_in(path)?);
        Ok(FARJUMP_OK)
    })
}

/// Gives the client of a handle's owner: one that is connected, or a new one at the first of the handle's
/// addresses that can be reached. farjump_client_close() ends it; the resolver keeps its own.
///
/// FARJUMP_ERROR_CONNECT when none of the addresses reaches the owner, FARJUMP_ERROR_GONE when the owner has
/// restarted since.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_resolver_client(
    resolver: *const farjump_resolver_t,
    handle: *const farjump_handle_t,
    client: *mut *mut farjump_client_t,
) -> farjump_status_t {
    // SAFETY: the header requires a resolver, a handle and a variable for a pointer.
    guarded(|| unsafe {
        let made = variable(client, "client")?;
        let (resolver, handle) = (object(resolver, "resolver")?, object(handle, "handle")?);
        *made = give(farjump_client_t::of(resolver.resolver.client(handle.rust())?));
        Ok(FARJUMP_OK)
    })
}

/// Does the same as farjump_client_get(), for a handle of any owner. farjump_view_release() ends the view.
///
/// Fails as farjump_resolver_client() and farjump_client_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_resolver_get(
    resolver: *const farjump_resolver_t,
    handle: *const farjump_handle_t,
    view: *mut *mut farjump_view_t,
) -> farjump_status_t {
    // SAFETY: the header requires a resolver, a handle and a variable for a pointer.
    guarded(|| unsafe {
        let made = variable(view, "view")?;
        let (resolver, handle) = (object(resolver, "resolver")?, object(handle, "handle")?);
        *made = farjump_view_t::give(resolver.resolver.get(handle.rust())?);
        Ok(FARJUMP_OK)
    })
}

/// Does the same as farjump_client_map(), for handles of any owners: each call goes to the owner of its
/// object. Each call has 30 seconds. An owner that cannot be reached fails the calls at its objects, and no
/// others.
///
/// Fails as farjump_client_map(); each call also as farjump_resolver_client().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_resolver_map(
    resolver: *const farjump_resolver_t,
    library: *const farjump_library_t,
    handles: *const *const farjump_handle_t,
    count: usize,
    args: *const c_void,
    args_size: usize,
    outcomes: *mut *mut farjump_outcomes_t,
) -> farjump_status_t {
    // SAFETY: the header requires a resolver, an open library, `count` handles, `args_size` bytes and a
    // variable for a pointer.
    guarded(|| unsafe {
        let made = variable(outcomes, "outcomes")?;
        let (resolver, library) = (object(resolver, "resolver")?, object(library, "library")?);
        let (handles, args) = (handles_in(handles, count)?, bytes(args, args_size, "args")?);
        *made = farjump_outcomes_t::give(resolver.resolver.map(library.rust(), handles, args));
        Ok(FARJUMP_OK)
    })
}
