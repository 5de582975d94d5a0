//! Subscribers: the reading endpoints of streams of handles.

use std::ffi::{CString, c_char};

use farjump_handles::{Error, Item, Patience, StreamFault, Subscriber, SubscriberConfig};

use crate::api::c_text::c_text;
use crate::api::catch::{duration, give, guarded, object, object_mut, take, text, value, variable};
use crate::api::config::{self, Options, configuration};
use crate::api::objects::client::farjump_client_t;
use crate::api::objects::handle::farjump_handle_t;
use crate::api::objects::store::farjump_store_t;
use crate::api::status::farjump_status_t::{self, *};

/// Options for subscribers. One thread changes it at a time. It is copied when a subscriber is made.
#[derive(Debug, Default)]
pub struct farjump_subscriber_config_t {
    pub(crate) options: Options<SubscriberConfig>,
}

configuration!(farjump_subscriber_config_t of SubscriberConfig);

/// A subscriber to a topic, which gets the handles published there, in order. It keeps the store or client
/// that it came by. One thread uses it at a time.
#[derive(Debug)]
pub struct farjump_subscriber_t {
    subscriber: Subscriber,
    topic: CString,
    /// Number of the publisher whose end was reported last, and the number of its entries.
    gone: (u64, u64),
}

impl farjump_subscriber_t {
    fn give(subscriber: Subscriber) -> *mut farjump_subscriber_t {
        let topic = c_text(subscriber.topic());
        give(farjump_subscriber_t { subscriber, topic, gone: (0, 0) })
    }
}

/// An entry of a topic: the handle of an object. An object that the topic owns stays until all subscribers
/// have received it and released their items; a view keeps the bytes beyond that. Any number of threads may
/// use it at once.
#[derive(Debug)]
pub struct farjump_item_t {
    item: Item,
    handle: farjump_handle_t,
}

/// Makes a configuration, all of its options the defaults. farjump_subscriber_config_free() ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_subscriber_config_new(
    config: *mut *mut farjump_subscriber_config_t,
) -> farjump_status_t {
    // SAFETY: the header requires a variable for a pointer.
    unsafe { config::new(config) }
}

/// Frees it, and sets the variable to NULL. Does nothing if it is NULL already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_subscriber_config_free(
    config: *mut *mut farjump_subscriber_config_t,
) -> farjump_status_t {
    // SAFETY: the header requires a variable with one of `farjump_subscriber_config_new`, which nothing else uses.
    unsafe { config::free(config) }
}

/// Sets the option `name` to `value`. docs/reference/options.md lists the options of subscribers. The top of
/// this header says how values are written.
///
/// FARJUMP_ERROR_ARGUMENT if no option has the name, or it cannot have the value. Nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_subscriber_config_set(
    config: *mut farjump_subscriber_config_t,
    name: *const c_char,
    value: *const c_char,
) -> farjump_status_t {
    // SAFETY: the header requires one of `farjump_subscriber_config_new` that nothing else uses, and texts.
    unsafe { config::set(config, name, value) }
}

/// Gives the value of the option `name`, as farjump_subscriber_config_set() takes it; otherwise it does the
/// same as farjump_link_config_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_subscriber_config_get(
    config: *mut farjump_subscriber_config_t,
    name: *const c_char,
    value: *mut *const c_char,
) -> farjump_status_t {
    // SAFETY: the header requires one of `farjump_subscriber_config_new` that nothing else uses, a text, and a
    // variable for a pointer.
    unsafe { config::get(config, name, value) }
}

/// Subscribes to a topic of this store. The topic is made if it is not there, and need not have publishers
/// yet. `config` may be NULL for the defaults. farjump_subscriber_close() ends it.
///
/// FARJUMP_ERROR_ARGUMENT for an impossible name; FARJUMP_ERROR_TOO_MANY when the store has 1,024 topics, or
/// the topic 1,024 subscribers; FARJUMP_ERROR_STORE_FULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_store_subscribe(
    store: *const farjump_store_t,
    topic: *const c_char,
    config: *const farjump_subscriber_config_t,
    subscriber: *mut *mut farjump_subscriber_t,
) -> farjump_status_t {
    // SAFETY: the header requires a store, a text, NULL or a configuration that nothing changes, and a variable for a
    // pointer.
    guarded(|| unsafe {
        let made = variable(subscriber, "subscriber")?;
        let (store, topic) = (object(store, "store")?, text(topic, "topic")?);
        *made = farjump_subscriber_t::give(store.rust().subscribe(topic, config::chosen(config))?);
        Ok(FARJUMP_OK)
    })
}

/// Does the same as farjump_store_subscribe(), for a topic of another process's store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_subscribe(
    client: *const farjump_client_t,
    topic: *const c_char,
    config: *const farjump_subscriber_config_t,
    subscriber: *mut *mut farjump_subscriber_t,
) -> farjump_status_t {
    // SAFETY: the header requires a client, a text, NULL or a configuration that nothing changes, and a variable for a
    // pointer.
    guarded(|| unsafe {
        let made = variable(subscriber, "subscriber")?;
        let (client, topic) = (object(client, "client")?, text(topic, "topic")?);
        *made = farjump_subscriber_t::give(client.rust().subscribe(topic, config::chosen(config))?);
        Ok(FARJUMP_OK)
    })
}

/// Ends it, and sets the variable to NULL. Does nothing if it is NULL already. The subscriber no longer
/// delays publishers. Its items stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_subscriber_close(
    subscriber: *mut *mut farjump_subscriber_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with a subscriber, which nothing else uses.
        drop(unsafe { take(subscriber, "subscriber", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// Waits for the next entry, `timeout_ns` nanoseconds at most; with 0 an entry that is there comes. The reply
/// of an owner elsewhere may take up to a second more. farjump_item_release() ends the item.
///
/// FARJUMP_NOT_YET when no entry came in time. FARJUMP_STREAM_END when all publishers have finished and the
/// subscriber has received all entries; publishers that come later continue the stream.
/// FARJUMP_ERROR_PUBLISHER_GONE once for each publisher that ended without finishing, after its entries:
/// other publishers continue, and so does the next call. FARJUMP_ERROR_TOO_MANY when the subscriber holds
/// more items of owned objects than the topic has entries: release some. FARJUMP_ERROR_TIMEOUT,
/// FARJUMP_ERROR_PEER_GONE. After any other error than FARJUMP_ERROR_PUBLISHER_GONE the same entry comes
/// again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_subscriber_next(
    subscriber: *mut farjump_subscriber_t,
    timeout_ns: u64,
    item: *mut *mut farjump_item_t,
) -> farjump_status_t {
    // SAFETY: the header requires a subscriber that nothing else uses, and a variable for a pointer.
    guarded(|| unsafe {
        let made = variable(item, "item")?;
        let subscriber = object_mut(subscriber, "subscriber")?;
        match subscriber.subscriber.next(&mut Patience::of(duration(timeout_ns))) {
            Ok(Some(item)) => {
                let handle = farjump_handle_t::new(item.handle().clone());
                *made = give(farjump_item_t { item, handle });
                Ok(FARJUMP_OK)
            }
            Ok(None) => Ok(FARJUMP_STREAM_END),
            Err(Error::Stream { fault: StreamFault::NoEntry(_), .. }) => Ok(FARJUMP_NOT_YET),
            Err(error) => {
                if let Error::Stream { fault: StreamFault::PublisherGone { publisher, published }, .. } =
                    error
                {
                    subscriber.gone = (publisher, published);
                }
                Err(error.into())
            }
        }
    })
}

/// Returns the topic's name. The text belongs to the subscriber. NULL if `subscriber` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_subscriber_topic(subscriber: *const farjump_subscriber_t) -> *const c_char {
    // SAFETY: the header requires a subscriber.
    value(std::ptr::null(), || Ok(unsafe { object(subscriber, "subscriber")? }.topic.as_ptr()))
}

/// Returns the number of entries that the topic has dropped so far because this subscriber was too slow
/// (`drop-oldest` of the option `overflow`). 0 if `subscriber` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_subscriber_lost(subscriber: *const farjump_subscriber_t) -> u64 {
    // SAFETY: the header requires a subscriber.
    value(0, || Ok(unsafe { object(subscriber, "subscriber")? }.subscriber.lost()))
}

/// Returns the number of the publisher that the last FARJUMP_ERROR_PUBLISHER_GONE was about. `published`,
/// unless it is NULL, becomes the number of its entries. 0 if there was none, or `subscriber` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_subscriber_gone(
    subscriber: *const farjump_subscriber_t,
    published: *mut u64,
) -> u64 {
    value(0, || {
        // SAFETY: the header requires a subscriber.
        let (number, entries) =
            unsafe { object(subscriber, "subscriber") }.map_or((0, 0), |subscriber| subscriber.gone);
        if !published.is_null() {
            // SAFETY: the header requires NULL or a place for a number.
            unsafe { published.write(entries) };
        }
        Ok(number)
    })
}

/// Returns the handle. It belongs to the item, and ends with it. NULL if `item` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_item_handle(item: *const farjump_item_t) -> *const farjump_handle_t {
    // SAFETY: the header requires an item.
    value(std::ptr::null(), || Ok(&raw const unsafe { object(item, "item")? }.handle))
}

/// Returns the number of the entry in the topic. Numbers ascend, not always by one. 0 if `item` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_item_number(item: *const farjump_item_t) -> u64 {
    // SAFETY: the header requires an item.
    value(0, || Ok(unsafe { object(item, "item")? }.item.number()))
}

/// Returns the number of its publisher (farjump_publisher_number()). 0 if `item` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_item_publisher(item: *const farjump_item_t) -> u64 {
    // SAFETY: the header requires an item.
    value(0, || Ok(unsafe { object(item, "item")? }.item.publisher()))
}

/// Returns the number of entries that the topic dropped between the item before and this one, because the
/// subscriber was too slow. 0 if `item` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_item_lost(item: *const farjump_item_t) -> u64 {
    // SAFETY: the header requires an item.
    value(0, || Ok(unsafe { object(item, "item")? }.item.lost()))
}

/// Returns whether the topic owns the object (farjump_publisher_give(), farjump_publisher_publish_bytes()).
/// False if `item` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_item_is_owned(item: *const farjump_item_t) -> bool {
    // SAFETY: the header requires an item.
    value(false, || Ok(unsafe { object(item, "item")? }.item.is_owned()))
}

/// Ends it, and sets the variable to NULL. Does nothing if it is NULL already. The subscriber may be closed
/// before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_item_release(item: *mut *mut farjump_item_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with an item, which nothing else uses.
        drop(unsafe { take(item, "item", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}
