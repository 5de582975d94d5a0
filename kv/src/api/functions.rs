//! Functions of the server, found by name when the module is loaded.

use std::ffi::{c_char, c_double, c_int, c_long, c_longlong, c_uint, c_void};
use std::sync::OnceLock;

use super::types::*;

/// Declares the table of functions. The names are those of the server without `RedisModule_`.
macro_rules! functions {
    ($($field:ident = $name:literal: fn($($type:ty),* $(; $dots:tt)?) $(-> $returned:ty)?;)*) => {
        /// Addresses of the server's functions.
        #[derive(Default)]
        pub(super) struct Functions {
            $($field: Option<unsafe extern "C" fn($($type),* $(, $dots)?) $(-> $returned)?>,)*
        }

        impl Functions {
            /// Names of all functions, zero-terminated, as the server knows them.
            const NAMES: &[&str] = &[$(concat!("RedisModule_", $name, "\0")),*];

            /// Queries `get_api` for each.
            ///
            /// # Safety
            /// `get_api` must be the server's `RM_GetApi`, and the server's functions must have the types above.
            unsafe fn find(get_api: GetApi) -> Functions {
                let mut functions = Functions::default();
                let mut names = Functions::NAMES.iter();
                $(
                    let name = names.next().map_or(std::ptr::null(), |name| name.as_ptr().cast::<c_char>());
                    // SAFETY: the name is zero-terminated. The slot is one for a pointer to a function. The server
                    // writes the address of the function of that name to it, or leaves it null.
                    unsafe { get_api(name, (&raw mut functions.$field).cast()) };
                )*
                functions
            }

            /// Names of the functions that the server lacks.
            pub(super) fn missing(&self) -> Vec<&'static str> {
                let mut missing = Vec::new();
                $(if self.$field.is_none() { missing.push($name); })*
                missing
            }

            $(
                /// The function of this name. In a server that lacks a function, only the start of the module runs.
                #[inline]
                pub(super) fn $field(&self) -> unsafe extern "C" fn($($type),* $(, $dots)?) $(-> $returned)? {
                    self.$field.expect(concat!("the server has ", $name))
                }
            )*
        }
    };
}

functions! {
    // The module, its commands and their replies.
    is_module_name_busy = "IsModuleNameBusy": fn(*const c_char) -> c_int;
    set_module_attribs = "SetModuleAttribs": fn(*mut RawContext, *const c_char, c_int, c_int);
    create_command = "CreateCommand": fn(*mut RawContext, *const c_char, CommandFn, *const c_char, c_int, c_int, c_int) -> c_int;
    get_command = "GetCommand": fn(*mut RawContext, *const c_char) -> *mut RawCommand;
    set_command_info = "SetCommandInfo": fn(*mut RawCommand, *const CommandInfo) -> c_int;
    is_keys_position_request = "IsKeysPositionRequest": fn(*mut RawContext) -> c_int;
    key_at_pos_with_flags = "KeyAtPosWithFlags": fn(*mut RawContext, c_int, c_int);
    reply_with_error = "ReplyWithError": fn(*mut RawContext, *const c_char) -> c_int;
    reply_with_string_buffer = "ReplyWithStringBuffer": fn(*mut RawContext, *const c_char, usize) -> c_int;
    reply_with_long_long = "ReplyWithLongLong": fn(*mut RawContext, c_longlong) -> c_int;
    reply_with_double = "ReplyWithDouble": fn(*mut RawContext, c_double) -> c_int;
    reply_with_array = "ReplyWithArray": fn(*mut RawContext, c_long) -> c_int;
    reply_with_null = "ReplyWithNull": fn(*mut RawContext) -> c_int;
    // Strings.
    create_string = "CreateString": fn(*mut RawContext, *const c_char, usize) -> *mut RawString;
    free_string = "FreeString": fn(*mut RawContext, *mut RawString);
    string_append_buffer = "StringAppendBuffer": fn(*mut RawContext, *mut RawString, *const c_char, usize) -> c_int;
    string_ptr_len = "StringPtrLen": fn(*const RawString, *mut usize) -> *const c_char;
    // Keys.
    open_key = "OpenKey": fn(*mut RawContext, *mut RawString, c_int) -> *mut RawKey;
    close_key = "CloseKey": fn(*mut RawKey);
    key_type = "KeyType": fn(*mut RawKey) -> c_int;
    value_length = "ValueLength": fn(*mut RawKey) -> usize;
    string_dma = "StringDMA": fn(*mut RawKey, *mut usize, c_int) -> *mut c_char;
    hash_get = "HashGet": fn(*mut RawKey, c_int; ...) -> c_int;
    list_get = "ListGet": fn(*mut RawKey, c_long) -> *mut RawString;
    zset_score = "ZsetScore": fn(*mut RawKey, *mut RawString, *mut c_double) -> c_int;
    zset_first_in_score_range = "ZsetFirstInScoreRange": fn(*mut RawKey, c_double, c_double, c_int, c_int) -> c_int;
    zset_last_in_score_range = "ZsetLastInScoreRange": fn(*mut RawKey, c_double, c_double, c_int, c_int) -> c_int;
    zset_range_current_element = "ZsetRangeCurrentElement": fn(*mut RawKey, *mut c_double) -> *mut RawString;
    zset_range_next = "ZsetRangeNext": fn(*mut RawKey) -> c_int;
    zset_range_prev = "ZsetRangePrev": fn(*mut RawKey) -> c_int;
    zset_range_end_reached = "ZsetRangeEndReached": fn(*mut RawKey) -> c_int;
    zset_range_stop = "ZsetRangeStop": fn(*mut RawKey);
    stream_iterator_start = "StreamIteratorStart": fn(*mut RawKey, c_int, *mut StreamId, *mut StreamId) -> c_int;
    stream_iterator_stop = "StreamIteratorStop": fn(*mut RawKey) -> c_int;
    stream_iterator_next_id = "StreamIteratorNextID": fn(*mut RawKey, *mut StreamId, *mut c_long) -> c_int;
    stream_iterator_next_field = "StreamIteratorNextField": fn(*mut RawKey, *mut *mut RawString, *mut *mut RawString) -> c_int;
    scan_cursor_create = "ScanCursorCreate": fn() -> *mut RawScanCursor;
    scan_cursor_destroy = "ScanCursorDestroy": fn(*mut RawScanCursor);
    scan_key = "ScanKey": fn(*mut RawKey, *mut RawScanCursor, ScanKeyFn, *mut c_void) -> c_int;
    random_key = "RandomKey": fn(*mut RawContext) -> *mut RawString;
    get_expire = "GetExpire": fn(*mut RawKey) -> c_longlong;
    get_lru = "GetLRU": fn(*mut RawKey, *mut c_longlong) -> c_int;
    get_lfu = "GetLFU": fn(*mut RawKey, *mut c_longlong) -> c_int;
    get_selected_db = "GetSelectedDb": fn(*mut RawContext) -> c_int;
    select_db = "SelectDb": fn(*mut RawContext, c_int) -> c_int;
    subscribe_to_keyspace_events = "SubscribeToKeyspaceEvents": fn(*mut RawContext, c_int, NotifyFn) -> c_int;
    notify_keyspace_event = "NotifyKeyspaceEvent": fn(*mut RawContext, c_int, *const c_char, *mut RawString) -> c_int;
    // Commands by name.
    call = "Call": fn(*mut RawContext, *const c_char, *const c_char; ...) -> *mut RawReply;
    free_call_reply = "FreeCallReply": fn(*mut RawReply);
    call_reply_type = "CallReplyType": fn(*mut RawReply) -> c_int;
    call_reply_integer = "CallReplyInteger": fn(*mut RawReply) -> c_longlong;
    call_reply_length = "CallReplyLength": fn(*mut RawReply) -> usize;
    call_reply_array_element = "CallReplyArrayElement": fn(*mut RawReply, usize) -> *mut RawReply;
    call_reply_string_ptr = "CallReplyStringPtr": fn(*mut RawReply, *mut usize) -> *const c_char;
    // Users.
    get_client_user_name_by_id = "GetClientUserNameById": fn(*mut RawContext, u64) -> *mut RawString;
    get_current_user_name = "GetCurrentUserName": fn(*mut RawContext) -> *mut RawString;
    get_module_user_from_user_name = "GetModuleUserFromUserName": fn(*mut RawString) -> *mut RawUser;
    get_module_user_acl_string = "GetModuleUserACLString": fn(*mut RawUser) -> *mut RawString;
    free_module_user = "FreeModuleUser": fn(*mut RawUser);
    set_context_user = "SetContextUser": fn(*mut RawContext, *const RawUser);
    acl_check_command_permissions = "ACLCheckCommandPermissions": fn(*mut RawUser, *mut *mut RawString, c_int) -> c_int;
    get_client_id = "GetClientId": fn(*mut RawContext) -> u64;
    // State of the server.
    get_server_version = "GetServerVersion": fn() -> c_int;
    get_context_flags = "GetContextFlags": fn(*mut RawContext) -> c_int;
    get_used_memory_ratio = "GetUsedMemoryRatio": fn() -> f32;
    avoid_replica_traffic = "AvoidReplicaTraffic": fn() -> c_int;
    monotonic_microseconds = "MonotonicMicroseconds": fn() -> u64;
    latency_add_sample = "LatencyAddSample": fn(*const c_char, c_longlong);
    log = "Log": fn(*mut RawContext, *const c_char, *const c_char; ...);
    // The event loop.
    event_loop_add = "EventLoopAdd": fn(c_int, c_int, EventLoopFn, *mut c_void) -> c_int;
    event_loop_del = "EventLoopDel": fn(c_int, c_int) -> c_int;
    subscribe_to_server_event = "SubscribeToServerEvent": fn(*mut RawContext, RawEvent, EventFn) -> c_int;
    create_timer = "CreateTimer": fn(*mut RawContext, c_longlong, TimerFn, *mut c_void) -> u64;
    // Settings.
    register_string_config = "RegisterStringConfig": fn(*mut RawContext, *const c_char, *const c_char, c_uint, GetTextFn, SetTextFn, *const c_void, *mut c_void) -> c_int;
    load_configs = "LoadConfigs": fn(*mut RawContext) -> c_int;
    // INFO.
    register_info_func = "RegisterInfoFunc": fn(*mut RawContext, InfoFn) -> c_int;
    info_add_section = "InfoAddSection": fn(*mut RawInfo, *const c_char) -> c_int;
    info_add_field_cstring = "InfoAddFieldCString": fn(*mut RawInfo, *const c_char, *const c_char) -> c_int;
    info_add_field_ulonglong = "InfoAddFieldULongLong": fn(*mut RawInfo, *const c_char, u64) -> c_int;
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// Finds the server's functions, through the first word of the context of `RedisModule_OnLoad`.
///
/// # Safety
/// `context` must be the one that a server has called `RedisModule_OnLoad` with, which has not returned.
pub(super) unsafe fn find(context: *mut RawContext) -> &'static Functions {
    FUNCTIONS.get_or_init(|| {
        // SAFETY: a context begins with the address of `RM_GetApi`: modules built with the server's own header find it so.
        let get_api = unsafe { context.cast::<GetApi>().read() };
        // SAFETY: it is `RM_GetApi`. The types are those of the server's header, the same in Redis 7.0, Valkey 8 and 9.
        unsafe { Functions::find(get_api) }
    })
}

/// Declares options of the module to Valkey. Its function has this name there alone: the same bits mean other things to Redis.
///
/// # Safety
/// `context` must be the one that a server has called `RedisModule_OnLoad` with, which has not returned.
pub(super) unsafe fn set_valkey_options(context: *mut RawContext, options: c_int) {
    let mut set: Option<unsafe extern "C" fn(*mut RawContext, c_int)> = None;
    // SAFETY: a context begins with the address of `RM_GetApi`, as in `find`.
    let get_api = unsafe { context.cast::<GetApi>().read() };
    // SAFETY: the name is zero-terminated. The slot is one of a pointer to a function of this type, which stays null in Redis.
    unsafe { get_api(c"ValkeyModule_SetModuleOptions".as_ptr(), (&raw mut set).cast()) };
    if let Some(set) = set {
        // SAFETY: the caller's context is valid.
        unsafe { set(context, options) };
    }
}

/// The server's functions. Nothing is called before they are found.
#[inline]
pub(super) fn functions() -> &'static Functions {
    FUNCTIONS.get().expect("OnLoad has found the server's functions")
}
