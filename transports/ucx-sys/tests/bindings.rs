//! Checks that the stored bindings are those that bindgen makes of the headers.
//!
//! If UCX's headers or libclang are missing, the test prints that and compares nothing. After a change of the bound
//! names, `FARJUMP_WRITE_BINDINGS=1 cargo test -p farjump-ucx-sys` writes the bindings anew. It takes the headers of
//! UCX 1.13, the oldest supported version, so that the bindings contain nothing that a user's library may lack.

use std::path::Path;

/// The header that states the version of all headers.
const HEADER: &str = "/usr/include/ucp/api/ucp_version.h";

/// The functions that farjump calls. Their parameters' types are bound too.
const FUNCTIONS: [&str; 44] = [
    "ucp_am_data_release",
    "ucp_am_recv_data_nbx",
    "ucp_am_send_nbx",
    "ucp_cleanup",
    "ucp_config_modify",
    "ucp_config_read",
    "ucp_config_release",
    "ucp_context_print_info",
    "ucp_context_query",
    "ucp_ep_close_nbx",
    "ucp_ep_create",
    "ucp_ep_flush_nbx",
    "ucp_ep_print_info",
    "ucp_ep_query",
    "ucp_ep_rkey_unpack",
    "ucp_get_nbx",
    "ucp_get_version",
    "ucp_get_version_string",
    "ucp_init_version",
    "ucp_mem_map",
    "ucp_mem_query",
    "ucp_mem_unmap",
    "ucp_put_nbx",
    "ucp_request_cancel",
    "ucp_request_check_status",
    "ucp_request_free",
    "ucp_request_query",
    "ucp_rkey_buffer_release",
    "ucp_rkey_destroy",
    "ucp_rkey_pack",
    "ucp_rkey_ptr",
    "ucp_worker_arm",
    "ucp_worker_create",
    "ucp_worker_destroy",
    "ucp_worker_fence",
    "ucp_worker_flush_nbx",
    "ucp_worker_get_address",
    "ucp_worker_get_efd",
    "ucp_worker_print_info",
    "ucp_worker_progress",
    "ucp_worker_query",
    "ucp_worker_release_address",
    "ucp_worker_set_am_recv_handler",
    "ucs_status_string",
];

/// Types that no function above names, but whose constants farjump uses.
const TYPES: [&str; 23] = [
    "ucp_am_cb_flags",
    "ucp_am_handler_param_field",
    "ucp_am_recv_attr_t",
    "ucp_cb_param_flags",
    "ucp_dt_type",
    "ucp_ep_close_flags_t",
    "ucp_ep_params_field",
    "ucp_ep_params_flags_field",
    "ucp_err_handling_mode_t",
    "ucp_feature",
    "ucp_mem_attr_field",
    "ucp_mem_map_params_field",
    "ucp_op_attr_t",
    "ucp_params_field",
    "ucp_req_attr_field",
    "ucp_send_am_flags",
    "ucp_worker_address_flags_t",
    "ucp_worker_attr_field",
    "ucp_worker_params_field",
    "ucs_memory_type",
    "ucs_status_t",
    "ucs_thread_mode_t",
    "ucp_rsc_attr_field",
];

/// Constants of an enumeration without a name.
const CONSTANTS: &str = "UCP_MEM_MAP_(NONBLOCK|ALLOCATE|FIXED)";

fn made() -> Result<String, bindgen::BindgenError> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut builder = bindgen::Builder::default()
        .header(manifest.join("src/wrapper.h").to_str().expect("the path is text"))
        .dynamic_library_name("Library")
        .dynamic_link_require_all(true)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .generate_comments(false)
        .layout_tests(true)
        .merge_extern_blocks(true)
        .blocklist_type("_IO_FILE|FILE|_IO_.*")
        .blocklist_type("sockaddr.*|sa_family_t|socklen_t|cpu_set_t|__cpu_mask|__u?int.*_t")
        .raw_line("use libc::{FILE, cpu_set_t, sockaddr, sockaddr_storage, socklen_t};")
        .formatter(bindgen::Formatter::Prettyplease);
    for function in FUNCTIONS {
        builder = builder.allowlist_function(function);
    }
    for kind in TYPES {
        builder = builder.allowlist_type(kind);
    }
    builder = builder.allowlist_var(CONSTANTS);
    Ok(builder.generate()?.to_string())
}

/// The number that `header` defines for `name`.
fn defined(header: &str, name: &str) -> u32 {
    let line = header.lines().find(|line| line.contains(name));
    let number = line.and_then(|line| line.split_whitespace().last()?.parse().ok());
    number.unwrap_or_else(|| panic!("{HEADER} does not define {name} as a number"))
}

/// Checks that libclang, which bindgen loads, is installed.
fn clang() -> Result<(), String> {
    match std::panic::catch_unwind(bindgen::clang_version) {
        Ok(version) if version.parsed.is_some() => Ok(()),
        Ok(version) => Err(version.full),
        Err(panic) => Err(panic.downcast_ref::<String>().cloned().unwrap_or_default()),
    }
}

#[test]
fn the_kept_bindings_match_bindgen_output_for_ucx_1_13() {
    let Ok(header) = std::fs::read_to_string(HEADER) else {
        return println!("skipped: no UCX headers ({HEADER}): apt-get install libucx-dev");
    };
    let [major, minor] = ["UCP_API_MAJOR", "UCP_API_MINOR"].map(|name| defined(&header, name));
    if (major, minor) != farjump_ucx_sys::API {
        return println!(
            "skipped: the UCX headers here are of {major}.{minor}, and the bindings are of 1.13"
        );
    }
    if let Err(error) = clang() {
        return println!("skipped: no libclang ({error}): apt-get install libclang-14-dev");
    }
    let made = made().expect("the headers are C");
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bindings.rs");
    if std::env::var_os("FARJUMP_WRITE_BINDINGS").is_some() {
        std::fs::write(&kept, made).expect("the sources can be written");
        return;
    }
    assert!(
        std::fs::read_to_string(kept).expect("they are kept") == made,
        "see the head of tests/bindings.rs"
    );
}
