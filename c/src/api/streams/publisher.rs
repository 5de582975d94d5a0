//! Publishers: the writing endpoints of streams of handles.

use std::ffi::{CString, c_char, c_void};

use farjump_handles::{Error, Patience, Publisher, PublisherConfig};

use crate::api::c_text::c_text;
use crate::api::catch::{bytes, duration, give, guarded, object, object_mut, take, text, value, variable};
use crate::api::config::{self, Options, configuration};
use crate::api::last_error::Failure;
use crate::api::objects::client::farjump_client_t;
use crate::api::objects::handle::farjump_handle_t;
use crate::api::objects::store::{farjump_store_t, type_name, write_bool};
use crate::api::status::farjump_status_t::{self, *};

/// Options for publishers. One thread changes it at a time. It is copied when a publisher is made.
#[derive(Debug, Default)]
pub struct farjump_publisher_config_t {
    pub(crate) options: Options<PublisherConfig>,
}

configuration!(farjump_publisher_config_t of PublisherConfig);

/// A publisher of handles in a topic, a queue at a store. Subscribers get the handles in the order in which
/// they were published. It keeps the store or client that it came by. One thread uses it at a time.
#[derive(Debug)]
pub struct farjump_publisher_t {
    publisher: Publisher,
    topic: CString,
}

impl farjump_publisher_t {
    fn give(publisher: Publisher) -> *mut farjump_publisher_t {
        let topic = c_text(publisher.topic());
        give(farjump_publisher_t { publisher, topic })
    }
}

/// Makes a configuration, all of its options the defaults. farjump_publisher_config_free() ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_publisher_config_new(
    config: *mut *mut farjump_publisher_config_t,
) -> farjump_status_t {
    // SAFETY: the header requires a variable for a pointer.
    unsafe { config::new(config) }
}

/// Frees it, and sets the variable to NULL. Does nothing if it is NULL already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_publisher_config_free(
    config: *mut *mut farjump_publisher_config_t,
) -> farjump_status_t {
    // SAFETY: the header requires a variable with one of `farjump_publisher_config_new`, which nothing else uses.
    unsafe { config::free(config) }
}

/// Sets the option `name` to `value`. docs/reference/options.md lists the options of publishers. The top of
/// this header says how values are written.
///
/// FARJUMP_ERROR_ARGUMENT if no option has the name, or it cannot have the value. Nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_publisher_config_set(
    config: *mut farjump_publisher_config_t,
    name: *const c_char,
    value: *const c_char,
) -> farjump_status_t {
    // SAFETY: the header requires one of `farjump_publisher_config_new` that nothing else uses, and texts.
    unsafe { config::set(config, name, value) }
}

/// Gives the value of the option `name`, as farjump_publisher_config_set() takes it; otherwise it does the
/// same as farjump_link_config_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_publisher_config_get(
    config: *mut farjump_publisher_config_t,
    name: *const c_char,
    value: *mut *const c_char,
) -> farjump_status_t {
    // SAFETY: the header requires one of `farjump_publisher_config_new` that nothing else uses, a text, and a
    // variable for a pointer.
    unsafe { config::get(config, name, value) }
}

/// Opens a topic of this store to publish in it. The topic is made if it is not there. Its name has 1 to 255
/// bytes. `config` may be NULL for the defaults. farjump_publisher_close() ends it.
///
/// FARJUMP_ERROR_ARGUMENT for an impossible name or capacity, or a capacity that is not the first
/// publisher's; FARJUMP_ERROR_TOO_MANY when the store has 1,024 topics, or the topic 1,024 publishers;
/// FARJUMP_ERROR_STORE_FULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_publisher(
    store: *const farjump_store_t,
    topic: *const c_char,
    config: *const farjump_publisher_config_t,
    publisher: *mut *mut farjump_publisher_t,
) -> farjump_status_t {
    // SAFETY: the header requires a store, a text, NULL or a configuration that nothing changes, and a variable for a
    // pointer.
    guarded(|| unsafe {
        let made = variable(publisher, "publisher")?;
        let (store, topic) = (object(store, "store")?, text(topic, "topic")?);
        *made = farjump_publisher_t::give(store.rust().publisher(topic, config::chosen(config))?);
        Ok(FARJUMP_OK)
    })
}

/// Does the same as farjump_store_publisher(), for a topic of another process's store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_publisher(
    client: *const farjump_client_t,
    topic: *const c_char,
    config: *const farjump_publisher_config_t,
    publisher: *mut *mut farjump_publisher_t,
) -> farjump_status_t {
    // SAFETY: the header requires a client, a text, NULL or a configuration that nothing changes, and a variable for a
    // pointer.
    guarded(|| unsafe {
        let made = variable(publisher, "publisher")?;
        let (client, topic) = (object(client, "client")?, text(topic, "topic")?);
        *made = farjump_publisher_t::give(client.rust().publisher(topic, config::chosen(config))?);
        Ok(FARJUMP_OK)
    })
}

/// Ends it, and sets the variable to NULL. Does nothing if it is NULL already. Without
/// farjump_publisher_finish() before, subscribers get FARJUMP_ERROR_PUBLISHER_GONE, as when the process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_publisher_close(
    publisher: *mut *mut farjump_publisher_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with a publisher, which nothing else uses.
        drop(unsafe { take(publisher, "publisher", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// Returns the topic's name. The text belongs to the publisher. NULL if `publisher` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_publisher_topic(publisher: *const farjump_publisher_t) -> *const c_char {
    // SAFETY: the header requires a publisher.
    value(std::ptr::null(), || Ok(unsafe { object(publisher, "publisher")? }.topic.as_ptr()))
}

/// Returns the number of the publisher, which no other publisher of the store has (farjump_item_publisher()).
/// 0 if `publisher` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_publisher_number(publisher: *const farjump_publisher_t) -> u64 {
    // SAFETY: the header requires a publisher.
    value(0, || Ok(unsafe { object(publisher, "publisher")? }.publisher.number()))
}

/// Publishes by `publish`, and writes the entry's number for C, unless `number` is NULL.
///
/// # Safety
/// Unless they are NULL, `publisher` must be one that nothing else uses, and `number` be writable.
unsafe fn published(
    publisher: *mut farjump_publisher_t,
    timeout_ns: u64,
    number: *mut u64,
    publish: impl FnOnce(&mut Publisher, &mut Patience<'_>) -> Result<u64, Error>,
) -> Result<farjump_status_t, Failure> {
    // SAFETY: this function's caller guarantees it.
    let publisher = unsafe { object_mut(publisher, "publisher")? };
    let entry = publish(&mut publisher.publisher, &mut Patience::of(duration(timeout_ns)))?;
    if !number.is_null() {
        // SAFETY: this function's caller guarantees it.
        unsafe { number.write(entry) };
    }
    Ok(FARJUMP_OK)
}

/// Publishes a handle, of an object of any store. The object stays as it is: its maker evicts it. At a full
/// topic it acts as the option `overflow` says, and waits `timeout_ns` nanoseconds at
/// most. `number`, unless it is NULL, becomes the entry's number in the topic. The handle is copied.
///
/// FARJUMP_ERROR_TOPIC_FULL when the topic stays full; nothing is published then. FARJUMP_ERROR_GONE,
/// FARJUMP_ERROR_WRONG_KEY for an object of the topic's store; FARJUMP_ERROR_TOO_LARGE for a handle of more
/// than 1,024 bytes; FARJUMP_ERROR_ARGUMENT after farjump_publisher_finish(). After FARJUMP_ERROR_TIMEOUT and
/// FARJUMP_ERROR_PEER_GONE it may have been published.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_publisher_publish(
    publisher: *mut farjump_publisher_t,
    handle: *const farjump_handle_t,
    timeout_ns: u64,
    number: *mut u64,
) -> farjump_status_t {
    // SAFETY: the header requires a publisher that nothing else uses, a handle, and NULL or a place for a
    // number.
    guarded(|| unsafe {
        let handle = object(handle, "handle")?.rust();
        published(publisher, timeout_ns, number, |publisher, patience| {
            publisher.publish_with(handle, false, patience)
        })
    })
}

/// Publishes as farjump_publisher_publish() does, and the topic owns the object. The store evicts the object
/// when all subscribers have received it and released their items.
///
/// Fails as farjump_publisher_publish(); FARJUMP_ERROR_ARGUMENT for an object of another store than the
/// topic's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_publisher_give(
    publisher: *mut farjump_publisher_t,
    handle: *const farjump_handle_t,
    timeout_ns: u64,
    number: *mut u64,
) -> farjump_status_t {
    // SAFETY: the header requires a publisher that nothing else uses, a handle, and NULL or a place for a
    // number.
    guarded(|| unsafe {
        let handle = object(handle, "handle")?.rust();
        published(publisher, timeout_ns, number, |publisher, patience| {
            publisher.publish_with(handle, true, patience)
        })
    })
}

/// Makes an object of a copy of `size` bytes at the topic's store, and publishes it: the topic owns it, as by
/// farjump_publisher_give(). `type_name` is a name for its type, of at most 255 bytes; NULL for none.
///
/// Fails as farjump_publisher_publish(), and with FARJUMP_ERROR_STORE_FULL. After a failure there is no such
/// object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_publisher_publish_bytes(
    publisher: *mut farjump_publisher_t,
    type_name: *const c_char,
    bytes: *const c_void,
    size: usize,
    timeout_ns: u64,
    number: *mut u64,
) -> farjump_status_t {
    // SAFETY: the header requires a publisher that nothing else uses, NULL or a text, `size` bytes, and NULL or
    // a place for a number.
    guarded(|| unsafe {
        let (type_name, bytes) = (self::type_name(type_name)?, self::bytes(bytes, size, "bytes")?);
        published(publisher, timeout_ns, number, |publisher, patience| {
            publisher.publish_bytes_with(type_name, &[bytes], patience)
        })
    })
}

/// Announces that no more entries of this publisher follow. When all publishers have finished, the stream
/// ends for a subscriber that has received all entries. Finishing again does nothing.
/// farjump_publisher_close() follows. The call takes `timeout_ns` nanoseconds at most.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_publisher_finish(
    publisher: *mut farjump_publisher_t,
    timeout_ns: u64,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a publisher that nothing else uses.
        let publisher = unsafe { object_mut(publisher, "publisher")? };
        publisher.publisher.finish_with(&mut Patience::of(duration(timeout_ns)))?;
        Ok(FARJUMP_OK)
    })
}

/// Discards a topic of this store that has neither publishers nor subscribers, and evicts the objects that it
/// owns: for a topic whose entries no subscriber takes. `was_there`, unless it is NULL, becomes true if there
/// was such a topic.
///
/// FARJUMP_ERROR_BUSY for a topic that has publishers or subscribers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_discard_topic(
    store: *const farjump_store_t,
    topic: *const c_char,
    was_there: *mut bool,
) -> farjump_status_t {
    // SAFETY: the header requires a store, a text, and NULL or a variable.
    guarded(|| unsafe {
        let (store, topic) = (object(store, "store")?, text(topic, "topic")?);
        write_bool(was_there, store.rust().discard_topic(topic)?);
        Ok(FARJUMP_OK)
    })
}

/// Does the same as farjump_store_discard_topic(), for a topic of another process's store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_discard_topic(
    client: *const farjump_client_t,
    topic: *const c_char,
    was_there: *mut bool,
) -> farjump_status_t {
    // SAFETY: the header requires a client, a text, and NULL or a variable.
    guarded(|| unsafe {
        let (client, topic) = (object(client, "client")?, text(topic, "topic")?);
        write_bool(was_there, client.rust().discard_topic(topic)?);
        Ok(FARJUMP_OK)
    })
}
