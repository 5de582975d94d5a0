//! Admin requests to a running target, from any process of its user.

use std::ffi::{c_char, c_void};

use farjump::CodeId;
use farjump::admin::{Admin, Dropped, TargetStats};

use crate::api::catch::{duration, fill, give, guarded, object, object_mut, take, text, variable};
use crate::api::introspection::{each_image, farjump_image_fn, farjump_image_t};
use crate::api::last_error::Failure;
use crate::api::library::farjump_code_id_t;
use crate::api::objects::store::{each_object, farjump_object_fn};
use crate::api::shared::key_in;
use crate::api::status::farjump_status_t::{self, *};
use crate::api::target::farjump_target_stats_t;

/// The admin interface of the target at an address: requests list its stored code, read its statistics and
/// drop code. Each request opens a connection of its own, which makes no link and does not count as a source.
/// Nothing stays open between requests. Any number of threads may send requests at once.
///
/// All requests fail with FARJUMP_ERROR_CONNECT when no process listens there, when the listener is no target
/// or another user's, or when it does not respond in time.
#[derive(Debug)]
pub struct farjump_admin_t {
    admin: Admin,
}

impl farjump_admin_t {
    pub(crate) fn rust(&self) -> &Admin {
        &self.admin
    }
}

/// Makes one for the target at `address` (`unix:PATH`, `unix:@NAME`, `tcp:HOST:PORT`). Nothing is sent yet.
/// farjump_admin_free() ends it.
///
/// FARJUMP_ERROR_CONNECT when the address is malformed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_admin_new(
    address: *const c_char,
    admin: *mut *mut farjump_admin_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable for a pointer, and for a text.
        let (made, address) = unsafe { (variable(admin, "admin")?, text(address, "address")?) };
        *made = give(farjump_admin_t { admin: Admin::new(address)? });
        Ok(FARJUMP_OK)
    })
}

/// Frees it, and sets the variable to NULL. Does nothing if it is NULL already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_admin_free(admin: *mut *mut farjump_admin_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with one of `farjump_admin_new`, which nothing else uses.
        drop(unsafe { take(admin, "admin", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// Sets the limit for each request, in nanoseconds. A target responds when the function that it is running
/// has returned. Default: 10 seconds. No other thread may be sending a request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_admin_set_timeout(
    admin: *mut farjump_admin_t,
    nanoseconds: u64,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires one of `farjump_admin_new`, which nothing else uses.
        let admin = unsafe { object_mut(admin, "admin")? };
        admin.admin = admin.admin.clone().timeout(duration(nanoseconds));
        Ok(FARJUMP_OK)
    })
}

/// Sets the key that the target has too, for a target at `tcp:HOST:PORT`, from a file as `farjump key` makes
/// it. The file is read now. No other thread may be sending a request.
///
/// FARJUMP_ERROR_CONNECT for a file that holds no key, or that other users may read or write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_admin_set_key_file(
    admin: *mut farjump_admin_t,
    path: *const c_char,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires one of `farjump_admin_new`, which nothing else uses, and for a text.
        let (admin, key) = unsafe { (object_mut(admin, "admin")?, key_in(path)?) };
        admin.admin = admin.admin.clone().key(key);
        Ok(FARJUMP_OK)
    })
}

/// Runs `callback`, with `user`, for each image in the target's store, most recently used first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_admin_images(
    admin: *const farjump_admin_t,
    callback: farjump_image_fn,
    user: *mut c_void,
) -> farjump_status_t {
    guarded(|| {
        let callback = callback.ok_or_else(|| Failure::null("callback"))?;
        // SAFETY: the header requires one of `farjump_admin_new`.
        let images = unsafe { object(admin, "admin")? }.admin.store()?.images;
        // SAFETY: the header requires a function of this type, which takes this pointer.
        each_image(images.iter().map(Into::into), |image: &farjump_image_t| unsafe { callback(user, image) });
        Ok(FARJUMP_OK)
    })
}

/// Runs `callback`, with `user`, for each object in the target's store of objects, the most recently used
/// first: 65,536 at most.
///
/// FARJUMP_ERROR_CONNECT also when the target has no such store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_admin_objects(
    admin: *const farjump_admin_t,
    callback: farjump_object_fn,
    user: *mut c_void,
) -> farjump_status_t {
    guarded(|| {
        let callback = callback.ok_or_else(|| Failure::null("callback"))?;
        // SAFETY: the header requires one of `farjump_admin_new`.
        let objects = unsafe { object(admin, "admin")? }.admin.objects()?;
        // SAFETY: the header requires a function of this type, which takes this pointer.
        each_object(&objects, |object| unsafe { callback(user, object) });
        Ok(FARJUMP_OK)
    })
}

/// Drops code from the target's store, with its statics. `dropped`, unless it is NULL, becomes the number of
/// images dropped. Calls under way are not lost: the target requests the code from a source that calls it
/// again. The target keeps its own functions. Absence of such code is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_admin_drop(
    admin: *const farjump_admin_t,
    id: *const farjump_code_id_t,
    dropped: *mut u64,
) -> farjump_status_t {
    // SAFETY: the header requires one of `farjump_admin_new`, an id, and NULL or a place for a number.
    unsafe { drop_some(admin, dropped, |admin| Ok(admin.drop_code(&CodeId(object(id, "id")?.bytes))?)) }
}

/// Drops all code from the target's store, as farjump_admin_drop() does for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_admin_drop_all(
    admin: *const farjump_admin_t,
    dropped: *mut u64,
) -> farjump_status_t {
    // SAFETY: the header requires one of `farjump_admin_new`, and NULL or a place for a number.
    unsafe { drop_some(admin, dropped, |admin| Ok(admin.drop_all()?)) }
}

/// Drops code, and writes the number of images dropped.
///
/// # Safety
/// Unless they are NULL, `admin` must be one of `farjump_admin_new`, and `dropped` writable.
unsafe fn drop_some(
    admin: *const farjump_admin_t,
    dropped: *mut u64,
    request: impl FnOnce(&Admin) -> Result<Dropped, Failure>,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: this function's caller guarantees it.
        let images = request(&unsafe { object(admin, "admin")? }.admin)?.images;
        if !dropped.is_null() {
            // SAFETY: this function's caller guarantees it.
            unsafe { dropped.write(images) };
        }
        Ok(FARJUMP_OK)
    })
}

/// Reads the target's statistics; see farjump_target_stats().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_admin_stats(
    admin: *const farjump_admin_t,
    stats: *mut farjump_target_stats_t,
    size: usize,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires one of `farjump_admin_new`.
        let found = unsafe { object(admin, "admin")? }.admin.stats()?;
        // SAFETY: the header requires so many bytes; the structure is of numbers of one size.
        unsafe { fill(stats, size, size_of::<farjump_target_stats_t>(), "stats", (&found).into())? };
        Ok(FARJUMP_OK)
    })
}

impl From<&TargetStats> for farjump_target_stats_t {
    fn from(stats: &TargetStats) -> farjump_target_stats_t {
        farjump_target_stats_t {
            calls: stats.calls,
            forwarded: stats.forwarded,
            frames: stats.frames,
            bytes: stats.bytes,
            refused: stats.refused.iter().sum(),
            images_linked: stats.images_linked,
            link_ns: stats.link_ns,
            sources: stats.links,
            links: stats.links_made,
            links_ended: stats.links_ended,
            sources_refused: stats.sources_refused,
            store_images: stats.store.images,
            store_bytes: stats.store.bytes,
            store_evictions: stats.store.evictions,
            store_capacity_images: stats.store.capacity_images.unwrap_or(u64::MAX),
            store_capacity_bytes: stats.store.capacity_bytes.unwrap_or(u64::MAX),
            room_used: stats.store.arena_used,
            room: stats.store.arena_capacity,
        }
    }
}
