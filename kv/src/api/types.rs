//! Types and numbers of the server's module interface.

use std::ffi::{c_char, c_int, c_void};

/// Declares types whose contents only the server knows.
macro_rules! opaque {
    ($($(#[$docs:meta])* $name:ident;)*) => {
        $($(#[$docs])* #[repr(C)] pub(super) struct $name { _opaque: [u8; 0] })*
    };
}

opaque! {
    /// `RedisModuleCommand`.
    RawCommand;
    /// `RedisModuleString`.
    RawString;
    /// `RedisModuleKey`.
    RawKey;
    /// `RedisModuleCallReply`.
    RawReply;
    /// `RedisModuleUser`.
    RawUser;
    /// `RedisModuleInfoCtx`.
    RawInfo;
    /// `RedisModuleScanCursor`.
    RawScanCursor;
}

/// `RedisModuleCtx`: of the context only the first word is known.
#[repr(C)]
pub(super) struct RawContext {
    _opaque: [u8; 0],
}

pub(super) type GetApi = unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int;
pub(super) type CommandFn = unsafe extern "C" fn(*mut RawContext, *mut *mut RawString, c_int) -> c_int;
pub(super) type EventLoopFn = unsafe extern "C" fn(c_int, *mut c_void, c_int);
pub(super) type EventFn = unsafe extern "C" fn(*mut RawContext, RawEvent, u64, *mut c_void);
pub(super) type GetTextFn = unsafe extern "C" fn(*const c_char, *mut c_void) -> *mut RawString;
pub(super) type SetTextFn =
    unsafe extern "C" fn(*const c_char, *mut RawString, *mut c_void, *mut *mut RawString) -> c_int;
pub(super) type TimerFn = unsafe extern "C" fn(*mut RawContext, *mut c_void);
pub(super) type NotifyFn =
    unsafe extern "C" fn(*mut RawContext, c_int, *const c_char, *mut RawString) -> c_int;
pub(super) type InfoFn = unsafe extern "C" fn(*mut RawInfo, c_int);
pub(super) type ScanKeyFn = unsafe extern "C" fn(*mut RawKey, *mut RawString, *mut RawString, *mut c_void);

/// `REDISMODULE_OK`.
pub(super) const OK: c_int = 0;
/// The version of the interface.
pub(super) const API_VERSION: c_int = 1;
/// `REDISMODULE_READ`.
pub(super) const READ: c_int = 1;
/// `REDISMODULE_OPEN_KEY_NOTOUCH`: the key does not count as used.
pub(super) const NO_TOUCH: c_int = 1 << 16;
/// Valkey 9 refuses `CLUSTER MIGRATESLOTS` with a module that does not declare this. Code's keys in slots that arrive are merged
/// once the node owns the slots. Valkey forwards the writes of functions like those of clients.
pub(super) const HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;
/// `REDISMODULE_NOTIFY_GENERIC`.
pub(super) const NOTIFY_GENERIC: c_int = 1 << 2;
/// `REDISMODULE_NOTIFY_HASH`.
pub(super) const NOTIFY_HASH: c_int = 1 << 6;
/// `REDISMODULE_NOTIFY_EVICTED`.
pub(super) const NOTIFY_EVICTED: c_int = 1 << 9;
/// `RedisModuleSwapDbInfoV1`, with which the server tells of [`SWAP_DB`].
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct SwapInfo {
    pub(super) version: u64,
    pub(super) first: i32,
    pub(super) second: i32,
}

/// `REDISMODULE_EVENTLOOP_READABLE`.
pub(super) const READABLE: c_int = 1;

/// `RedisModuleEvent`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RawEvent {
    pub(super) id: u64,
    pub(super) dataver: u64,
}

/// `RedisModuleEvent_EventLoop`.
pub(super) const EVENT_LOOP: RawEvent = RawEvent { id: 15, dataver: 1 };
/// `RedisModuleEvent_FlushDB`.
pub(super) const FLUSH_DB: RawEvent = RawEvent { id: 2, dataver: 1 };
/// `REDISMODULE_SUBEVENT_FLUSHDB_END`.
pub(super) const FLUSH_DB_END: u64 = 1;
/// `RedisModuleEvent_SwapDB`, which has no parts.
pub(super) const SWAP_DB: RawEvent = RawEvent { id: 11, dataver: 1 };
/// `RedisModuleEvent_Loading`.
pub(super) const LOADING: RawEvent = RawEvent { id: 3, dataver: 1 };
/// `REDISMODULE_SUBEVENT_LOADING_ENDED`.
pub(super) const LOADING_ENDED: u64 = 3;
/// `RedisModuleEvent_ReplAsyncLoad`: a replica has loaded its primary's data beside its own.
pub(super) const ASYNC_LOADING: RawEvent = RawEvent { id: 14, dataver: 1 };
/// `REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_COMPLETED`.
pub(super) const ASYNC_LOADING_COMPLETED: u64 = 2;
/// `REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP`.
pub(super) const BEFORE_SLEEP: u64 = 0;
/// `REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP`.
pub(super) const AFTER_SLEEP: u64 = 1;

/// Types of keys, as `RM_KeyType` numbers them.
pub(crate) mod key_type {
    use std::ffi::c_int;
    pub(crate) const LIST: c_int = 2;
    pub(crate) const HASH: c_int = 3;
    pub(crate) const SET: c_int = 4;
    pub(crate) const ZSET: c_int = 5;
    pub(crate) const STREAM: c_int = 7;
}

/// Types of replies, as `RM_CallReplyType` numbers them.
pub(crate) mod reply_type {
    use std::ffi::c_int;
    pub(crate) const STRING: c_int = 0;
    pub(crate) const ERROR: c_int = 1;
    pub(crate) const INTEGER: c_int = 2;
    pub(crate) const ARRAY: c_int = 3;
}

/// Flags of `RM_GetContextFlags`.
pub(crate) mod context_flags {
    use std::ffi::c_int;
    pub(crate) const SCRIPT: c_int = 1;
    pub(crate) const MULTI: c_int = 1 << 1;
    pub(crate) const REPLICA: c_int = 1 << 3;
    pub(crate) const READONLY: c_int = 1 << 4;
    pub(crate) const CLUSTER: c_int = 1 << 5;
    pub(crate) const AOF: c_int = 1 << 6;
    pub(crate) const EVICT: c_int = 1 << 9;
    pub(crate) const OOM: c_int = 1 << 10;
    pub(crate) const LOADING: c_int = 1 << 13;
    pub(crate) const ASYNC_LOADING: c_int = 1 << 23;
}

/// Flags of key specifications.
pub(crate) mod key_flags {
    pub(crate) const RO: u64 = 1;
    pub(crate) const RW: u64 = 1 << 1;
    pub(crate) const ACCESS: u64 = 1 << 4;
    pub(crate) const UPDATE: u64 = 1 << 5;
}

/// `REDISMODULE_STREAM_ITERATOR_REVERSE`.
pub(super) const STREAM_REVERSE: c_int = 1 << 1;

/// `RedisModuleStreamID`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct StreamId {
    pub(crate) ms: u64,
    pub(crate) seq: u64,
}

/// `RedisModuleCommandKeySpec`, of which only the variants `index` and `keynum` are used.
#[repr(C)]
pub(super) struct KeySpec {
    pub(super) notes: *const c_char,
    pub(super) flags: u64,
    pub(super) begin_search: c_int,
    pub(super) begin: BeginSearch,
    pub(super) find_keys: c_int,
    pub(super) find: FindKeys,
}

/// The union `bs` of a key specification.
#[repr(C)]
pub(super) union BeginSearch {
    pub(super) position: c_int,
    /// Not used: it gives the union its size.
    pub(super) keyword: Keyword,
}

/// The variant `keyword` of [`BeginSearch`].
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Keyword {
    pub(super) keyword: *const c_char,
    pub(super) start: c_int,
}

/// The union `fk` of a key specification: three numbers in each variant.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct FindKeys {
    pub(super) count_index: c_int,
    pub(super) first_key: c_int,
    pub(super) step: c_int,
}

/// `REDISMODULE_KSPEC_BS_INDEX`.
pub(super) const BEGIN_AT_INDEX: c_int = 2;
/// `REDISMODULE_KSPEC_FK_KEYNUM`.
pub(super) const FIND_BY_COUNT: c_int = 3;

/// `RedisModuleCommandInfoVersion`.
#[repr(C)]
pub(super) struct CommandInfoVersion {
    pub(super) version: c_int,
    pub(super) history_entry: usize,
    pub(super) key_spec: usize,
    pub(super) argument: usize,
}

/// `RedisModuleCommandInfo`.
#[repr(C)]
pub(super) struct CommandInfo {
    pub(super) version: *const CommandInfoVersion,
    pub(super) summary: *const c_char,
    pub(super) complexity: *const c_char,
    pub(super) since: *const c_char,
    pub(super) history: *mut c_void,
    pub(super) tips: *const c_char,
    pub(super) arity: c_int,
    pub(super) key_specs: *mut KeySpec,
    pub(super) arguments: *mut c_void,
}

/// Sizes of the structures that a command's information points to: two pointers, the specification above, and for an
/// argument `name`, `type`, `key_spec_index`, `token`, `summary`, `since`, `flags`, `deprecated_since`, `subargs`.
pub(super) const COMMAND_INFO_VERSION: CommandInfoVersion =
    CommandInfoVersion { version: 1, history_entry: 16, key_spec: 56, argument: 64 };

const _: () = assert!(size_of::<KeySpec>() == COMMAND_INFO_VERSION.key_spec);
