//! Questions to a target that runs, from any process of its user.

use std::ffi::{c_char, c_void};

use farjump::CodeId;
use farjump::admin::{Admin, Dropped, TargetStats};

use crate::api::choices::key_in;
use crate::api::knowledge::{farjump_image_fn, farjump_image_t, tell_images};
use crate::api::library::farjump_code_id_t;
use crate::api::status::farjump_status_t::{self, *};
use crate::api::target::farjump_target_stats_t;
use crate::boundary::{duration, fill, give, guarded, object, object_mut, take, text, variable};
use crate::failure::Failure;

/// Asks the target at an address: what code it holds, what it has counted; and drops code. Each question is a connection of its own,
/// which makes no link and takes no source's place: nothing is held in between. Any number of threads may ask at once.
///
/// All questions fail with FARJUMP_ERROR_CONNECT when nobody listens there, what listens is no target or another user's, or it does
/// not answer in time.
#[derive(Debug)]
pub struct farjump_admin_t {
    admin: Admin,
}

impl farjump_admin_t {
    pub(crate) fn rust(&self) -> &Admin {
        &self.admin
    }
}

/// For the target at `address` (`unix:PATH`, `tcp:HOST:PORT`). Nothing is sent yet. farjump_admin_free() ends it.
///
/// FARJUMP_ERROR_CONNECT when the address makes no sense.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_admin_new(
    address: *const c_char,
    admin: *mut *mut farjump_admin_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header asks for a place for a pointer, and for a text.
        let (made, address) = unsafe { (variable(admin, "admin")?, text(address, "address")?) };
        *made = give(farjump_admin_t { admin: Admin::new(address)? });
        Ok(FARJUMP_OK)
    })
}

/// Frees it, and sets the variable to NULL. One that is NULL already is none to be freed, and no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_admin_free(admin: *mut *mut farjump_admin_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header asks for a variable with one of `farjump_admin_new`, used by nobody else.
        drop(unsafe { take(admin, "admin", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// How long each question may take, in nanoseconds: a target answers when the function that it is running has returned. 10 seconds
/// unless set. No other thread may be asking.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_admin_set_timeout(
    admin: *mut farjump_admin_t,
    nanoseconds: u64,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header asks for one of `farjump_admin_new`, used by nobody else.
        let admin = unsafe { object_mut(admin, "admin")? };
        admin.admin = admin.admin.clone().timeout(duration(nanoseconds));
        Ok(FARJUMP_OK)
    })
}

/// The key that the target has too, for one at `tcp:HOST:PORT`, from a file as `farjump key` makes it, which is read now. No other
/// thread may be asking.
///
/// FARJUMP_ERROR_CONNECT for a file that is no key, or that others than this user may read or write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_admin_set_key_file(
    admin: *mut farjump_admin_t,
    path: *const c_char,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header asks for one of `farjump_admin_new`, used by nobody else, and for a text.
        let (admin, key) = unsafe { (object_mut(admin, "admin")?, key_in(path)?) };
        admin.admin = admin.admin.clone().key(key);
        Ok(FARJUMP_OK)
    })
}

/// Runs `callback`, with `user`, for each image that the target holds, what was used last first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_admin_images(
    admin: *const farjump_admin_t,
    callback: farjump_image_fn,
    user: *mut c_void,
) -> farjump_status_t {
    guarded(|| {
        let callback = callback.ok_or_else(|| Failure::null("callback"))?;
        // SAFETY: the header asks for one of `farjump_admin_new`.
        let images = unsafe { object(admin, "admin")? }.admin.store()?.images;
        // SAFETY: the header asks for a function of this type, which takes this pointer.
        tell_images(images.iter().map(Into::into), |image: &farjump_image_t| unsafe {
            callback(user, image)
        });
        Ok(FARJUMP_OK)
    })
}

/// Drops code from its store, with its statics; `dropped`, unless it is NULL, becomes how many images are gone. Calls under way are not
/// lost: a source that calls it again is asked for it. Functions of the target's own are kept. That no such code is held is no
/// error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_admin_drop(
    admin: *const farjump_admin_t,
    id: *const farjump_code_id_t,
    dropped: *mut u64,
) -> farjump_status_t {
    // SAFETY: the header asks for one of `farjump_admin_new`, an id, and NULL or a place for a number.
    unsafe { drop_some(admin, dropped, |admin| Ok(admin.drop_code(&CodeId(object(id, "id")?.bytes))?)) }
}

/// As farjump_admin_drop(), all that it holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_admin_drop_all(
    admin: *const farjump_admin_t,
    dropped: *mut u64,
) -> farjump_status_t {
    // SAFETY: the header asks for one of `farjump_admin_new`, and NULL or a place for a number.
    unsafe { drop_some(admin, dropped, |admin| Ok(admin.drop_all()?)) }
}

/// Has code dropped, and says how much.
///
/// # Safety
/// Unless they are NULL, `admin` must be one of `farjump_admin_new`, and `dropped` writable.
unsafe fn drop_some(
    admin: *const farjump_admin_t,
    dropped: *mut u64,
    ask: impl FnOnce(&Admin) -> Result<Dropped, Failure>,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the caller's promise.
        let images = ask(&unsafe { object(admin, "admin")? }.admin)?.images;
        if !dropped.is_null() {
            // SAFETY: the caller's promise.
            unsafe { dropped.write(images) };
        }
        Ok(FARJUMP_OK)
    })
}

/// What it has counted; see farjump_target_stats().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_admin_stats(
    admin: *const farjump_admin_t,
    stats: *mut farjump_target_stats_t,
    size: usize,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header asks for one of `farjump_admin_new`.
        let told = unsafe { object(admin, "admin")? }.admin.stats()?;
        // SAFETY: the header asks for so many bytes; the structure is of numbers of one size.
        unsafe { fill(stats, size, size_of::<farjump_target_stats_t>(), "stats", (&told).into())? };
        Ok(FARJUMP_OK)
    })
}

impl From<&TargetStats> for farjump_target_stats_t {
    fn from(told: &TargetStats) -> farjump_target_stats_t {
        farjump_target_stats_t {
            calls: told.calls,
            forwarded: told.forwarded,
            frames: told.frames,
            bytes: told.bytes,
            refused: told.refused.iter().sum(),
            images_linked: told.images_linked,
            link_ns: told.link_ns,
            sources: told.links,
            links: told.links_made,
            links_ended: told.links_ended,
            sources_refused: told.sources_refused,
            store_images: told.store.images,
            store_bytes: told.store.bytes,
            store_evictions: told.store.evictions,
            store_capacity_images: told.store.capacity_images.unwrap_or(u64::MAX),
            store_capacity_bytes: told.store.capacity_bytes.unwrap_or(u64::MAX),
            room_used: told.store.room_used,
            room: told.store.room,
        }
    }
}
