//! A process of the papers' interface: UCX's objects, a slot that its peer writes, and libfarjump's functions.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::ptr;

// Its functions are found by their names.
use farjump_c as _;
use farjump_ucx_sys::{
    UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, UCP_FEATURE_RMA, UCP_MEM_ATTR_FIELD_ADDRESS, UCP_MEM_MAP_ALLOCATE,
    UCP_MEM_MAP_PARAM_FIELD_FLAGS, UCP_MEM_MAP_PARAM_FIELD_LENGTH, UCP_PARAM_FIELD_FEATURES, UCS_OK, Ucx,
    ucp_context_h, ucp_ep_h, ucp_mem_attr_t, ucp_rkey_h, ucp_worker_h, ucs_status_t,
};

/// Length of a slot in bytes.
pub const SLOT: usize = 1 << 16;

/// `ucp_ifunc_h`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Ifunc(*mut c_void);

/// `ucp_ifunc_msg_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Message {
    ifunc: Ifunc,
    frame: *mut c_void,
    frame_size: usize,
}

/// `ucp_ifunc_reg_param_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Parameters {
    name: *const c_char,
    pure: c_int,
    llvm_bc: c_int,
}

/// `ucp_llvm_bc_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Bitcode {
    triple: *const c_char,
    bc: *const c_void,
    size: u32,
}

unsafe extern "C" {
    fn farjump_ucp3_register_ifunc_im(
        context: ucp_context_h,
        parameters: Parameters,
        bitcodes: *const Bitcode,
        count: c_int,
        dependencies: *const *const c_char,
        dependency_count: c_int,
        ifunc: *mut Ifunc,
    ) -> ucs_status_t;
    fn farjump_ucp3_poll_ifunc(
        context: ucp_context_h,
        buffer: *mut c_void,
        size: usize,
        target_args: *mut c_void,
        worker: ucp_worker_h,
    ) -> ucs_status_t;
    fn farjump_ucp_ifunc_msg_create(
        ifunc: Ifunc,
        args: *mut c_void,
        size: usize,
        message: *mut Message,
    ) -> ucs_status_t;
    fn farjump_ucp_ifunc_msg_free(message: Message);
    fn farjump_ucp_ifunc_send_nbix(
        ep: ucp_ep_h,
        message: Message,
        remote_address: u64,
        key: ucp_rkey_h,
    ) -> ucs_status_t;
    fn farjump_last_error() -> *const c_char;
}

/// The text of this thread's last error.
pub fn last_error() -> String {
    // SAFETY: the function returns a string, which is valid until the next error of this thread.
    unsafe { CStr::from_ptr(farjump_last_error()) }.to_string_lossy().into_owned()
}

/// The argument of functions: UCX's objects for sending, the sum of the received numbers, and the worst status.
#[derive(Debug)]
#[repr(C)]
pub struct World {
    context: ucp_context_h,
    ep: ucp_ep_h,
    key: ucp_rkey_h,
    remote: u64,
    /// Sum of the numbers received here.
    pub sum: u64,
    /// The worst status of forwarding.
    pub failed: i64,
}

/// One of two processes, connected over TCP on this machine. Its objects stay until the process ends.
#[derive(Debug)]
pub struct Peer {
    ucx: &'static Ucx,
    worker: ucp_worker_h,
    slot: *mut c_void,
    /// The argument of functions here.
    pub world: World,
}

fn ok(status: ucs_status_t, what: &str) {
    assert_eq!(status, UCS_OK, "{what}: {}", last_error());
}

impl Peer {
    /// Opens a peer, and connects it with the process at the other end of `stream`, which does the same.
    ///
    /// # Panics
    /// If UCX is missing, or something fails.
    pub fn open(stream: &mut (impl Read + Write)) -> Peer {
        let ucx = Ucx::open().unwrap();
        let (mut config, mut context, mut worker) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let (mut memory, mut ep, mut key) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: UCX's functions are called as its header describes them. Parameters are numbers and pointers, for
        // all of which zero is valid, and the masks name the meaningful ones. The variables for results have their
        // types. The objects that they return are valid as long as the process lives.
        unsafe {
            ok(ucx.ucp_config_read(ptr::null(), ptr::null(), &raw mut config), "ucp_config_read");
            for (name, value) in [(c"TLS", c"tcp,self"), (c"NET_DEVICES", c"lo")] {
                ok(ucx.ucp_config_modify(config, name.as_ptr(), value.as_ptr()), "ucp_config_modify");
            }
            let mut params: farjump_ucx_sys::ucp_params_t = MaybeUninit::zeroed().assume_init();
            params.field_mask = u64::from(UCP_PARAM_FIELD_FEATURES);
            params.features = u64::from(UCP_FEATURE_RMA);
            ok(ucx.ucp_init_version(1, 13, &raw const params, config, &raw mut context), "ucp_init_version");
            let worker_params: farjump_ucx_sys::ucp_worker_params_t = MaybeUninit::zeroed().assume_init();
            ok(
                ucx.ucp_worker_create(context, &raw const worker_params, &raw mut worker),
                "ucp_worker_create",
            );
            let mut map: farjump_ucx_sys::ucp_mem_map_params_t = MaybeUninit::zeroed().assume_init();
            map.field_mask = u64::from(UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS);
            map.length = SLOT;
            map.flags = UCP_MEM_MAP_ALLOCATE;
            ok(ucx.ucp_mem_map(context, &raw const map, &raw mut memory), "ucp_mem_map");
            let mut attributes: ucp_mem_attr_t = MaybeUninit::zeroed().assume_init();
            attributes.field_mask = u64::from(UCP_MEM_ATTR_FIELD_ADDRESS);
            ok(ucx.ucp_mem_query(memory, &raw mut attributes), "ucp_mem_query");
            let slot = attributes.address;
            slot.write_bytes(0, SLOT);
            let (mut address, mut length) = (ptr::null_mut(), 0);
            ok(
                ucx.ucp_worker_get_address(worker, &raw mut address, &raw mut length),
                "ucp_worker_get_address",
            );
            let theirs = swap(stream, std::slice::from_raw_parts(address.cast(), length)).unwrap();
            let (mut packed, mut length) = (ptr::null_mut(), 0);
            ok(ucx.ucp_rkey_pack(context, memory, &raw mut packed, &raw mut length), "ucp_rkey_pack");
            let their_key = swap(stream, std::slice::from_raw_parts(packed.cast(), length)).unwrap();
            let remote = swap(stream, &(slot.addr() as u64).to_le_bytes()).unwrap();
            let mut params: farjump_ucx_sys::ucp_ep_params_t = MaybeUninit::zeroed().assume_init();
            params.field_mask = u64::from(UCP_EP_PARAM_FIELD_REMOTE_ADDRESS);
            params.address = theirs.as_ptr().cast();
            ok(ucx.ucp_ep_create(worker, &raw const params, &raw mut ep), "ucp_ep_create");
            ok(ucx.ucp_ep_rkey_unpack(ep, their_key.as_ptr().cast(), &raw mut key), "ucp_ep_rkey_unpack");
            let remote = u64::from_le_bytes(remote.try_into().unwrap());
            Peer { ucx, worker, slot, world: World { context, ep, key, remote, sum: 0, failed: 0 } }
        }
    }

    /// Registers bitcode for these triples.
    ///
    /// # Panics
    /// If that fails.
    pub fn register(&self, name: &CStr, codes: &[(&CStr, Vec<u8>)]) -> Ifunc {
        let given: Vec<_> = codes
            .iter()
            .map(|(triple, bytes)| Bitcode {
                triple: triple.as_ptr(),
                bc: bytes.as_ptr().cast(),
                size: bytes.len() as u32,
            })
            .collect();
        let (mut ifunc, parameters) =
            (Ifunc(ptr::null_mut()), Parameters { name: name.as_ptr(), pure: 0, llvm_bc: 1 });
        // SAFETY: the array has `given.len()` entries, which stay during the call, and the variable for the result
        // has its type.
        let status = unsafe {
            farjump_ucp3_register_ifunc_im(
                self.world.context,
                parameters,
                given.as_ptr(),
                given.len() as c_int,
                ptr::null(),
                0,
                &raw mut ifunc,
            )
        };
        ok(status, "ucp_register_ifunc_im");
        ifunc
    }

    /// Sends a message of these numbers. Returns the length of its frame.
    ///
    /// # Panics
    /// If that fails.
    pub fn send(&self, ifunc: Ifunc, numbers: &mut [u64]) -> usize {
        // SAFETY: the numbers stay during the call. The message is freed once.
        unsafe {
            let mut message = MaybeUninit::uninit();
            let (start, size) = (numbers.as_mut_ptr().cast(), size_of_val(numbers));
            ok(
                farjump_ucp_ifunc_msg_create(ifunc, start, size, message.as_mut_ptr()),
                "ucp_ifunc_msg_create",
            );
            let message = message.assume_init();
            assert!(message.frame_size <= SLOT);
            let World { ep, remote, key, .. } = self.world;
            let status = farjump_ucp_ifunc_send_nbix(ep, message, remote, key);
            assert!(status >= UCS_OK, "ucp_ifunc_send_nbix: {status}: {}", last_error());
            farjump_ucp_ifunc_msg_free(message);
            message.frame_size
        }
    }

    /// Polls the slot, and makes progress.
    pub fn poll(&mut self) -> ucs_status_t {
        let (context, world) = (self.world.context, (&raw mut self.world).cast());
        // SAFETY: the slot has this length and is this thread's, and functions of the tests take a `World`.
        unsafe {
            let status = farjump_ucp3_poll_ifunc(context, self.slot, SLOT, world, self.worker);
            self.ucx.ucp_worker_progress(self.worker);
            status
        }
    }
}

/// Exchanges bytes of any length with the peer.
///
/// # Errors
/// The stream's.
pub fn swap(stream: &mut (impl Read + Write), mine: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(&(mine.len() as u64).to_le_bytes())?;
    stream.write_all(mine)?;
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let mut theirs = vec![0; u64::from_le_bytes(length) as usize];
    stream.read_exact(&mut theirs)?;
    Ok(theirs)
}
