//! The functions and types of `farjump.h`: one file for each of its sections, in the order of the header.
//!
//! The docs here are read in C: they use C's words, and a pointer to `const` in a signature says that several
//! threads may use the object at once.

#![allow(non_camel_case_types, reason = "the names are C's")]
#![allow(
    clippy::missing_safety_doc,
    reason = "farjump.h says once, at its top, what all of its functions require of pointers"
)]

pub mod bytes;
pub(crate) mod c_text;
pub(crate) mod catch;
pub(crate) mod config;
pub mod introspection;
pub(crate) mod last_error;
pub mod library;
pub mod link;
pub mod objects;
pub mod shared;
pub mod status;
pub mod streams;
pub mod target;
pub mod thread_error;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_threads_may_share_are_sync_and_all_are_send() {
        fn shared<T: Send + Sync>() {}
        fn moved<T: Send>() {}
        shared::<library::farjump_library_t>();
        shared::<link::config::farjump_link_config_t>();
        shared::<target::config::farjump_target_config_t>();
        shared::<target::thread::farjump_stopper_t>();
        shared::<target::admin::farjump_admin_t>();
        shared::<bytes::farjump_bytes_t>();
        shared::<target::data::farjump_data_t>();
        shared::<objects::handle::farjump_handle_t>();
        shared::<objects::store::farjump_store_t>();
        shared::<objects::client::farjump_client_t>();
        shared::<objects::view::farjump_view_t>();
        shared::<objects::calls::farjump_outcomes_t>();
        shared::<objects::resolver::farjump_resolver_t>();
        shared::<objects::lifetimes::farjump_owned_t>();
        shared::<objects::lifetimes::farjump_counted_t>();
        shared::<streams::subscriber::farjump_item_t>();
        shared::<streams::publisher::farjump_publisher_t>();
        shared::<streams::subscriber::farjump_subscriber_t>();
        moved::<objects::calls::farjump_object_call_t>();
        moved::<objects::placement::farjump_placement_t>();
        moved::<streams::publisher::farjump_publisher_config_t>();
        moved::<streams::subscriber::farjump_subscriber_config_t>();
        moved::<objects::store::farjump_store_config_t>();
        moved::<objects::client::farjump_client_config_t>();
        moved::<link::farjump_link_t>();
        moved::<target::farjump_target_t>();
        moved::<target::thread::farjump_target_thread_t>();
    }
}
