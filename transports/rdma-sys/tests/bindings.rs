//! Checks that the stored bindings are those that bindgen makes of the header.
//!
//! If rdma-core's headers or libclang are missing, the test prints that and compares nothing. After a change of the
//! bound names, `FARJUMP_WRITE_BINDINGS=1 cargo test -p farjump-rdma-sys` writes the bindings anew, from the header of
//! Debian 12's rdma-core 44.

use std::path::Path;

/// The header.
const HEADER: &str = "/usr/include/infiniband/verbs.h";
/// The version line of rdma-core 44's package: the number of libibverbs.
const VERSION: &str = "Version: 1.14.44.0";

/// The functions that farjump calls. Their parameters' types are bound too.
const FUNCTIONS: [&str; 30] = [
    "_ibv_query_gid_ex",
    "ibv_ack_async_event",
    "ibv_ack_cq_events",
    "ibv_alloc_pd",
    "ibv_close_device",
    "ibv_create_comp_channel",
    "ibv_create_cq",
    "ibv_create_qp",
    "ibv_dealloc_pd",
    "ibv_dereg_mr",
    "ibv_destroy_comp_channel",
    "ibv_destroy_cq",
    "ibv_destroy_qp",
    "ibv_event_type_str",
    "ibv_free_device_list",
    "ibv_get_async_event",
    "ibv_get_cq_event",
    "ibv_get_device_list",
    "ibv_get_device_name",
    "ibv_modify_qp",
    "ibv_node_type_str",
    "ibv_open_device",
    "ibv_port_state_str",
    "ibv_query_device",
    "ibv_query_pkey",
    "ibv_query_port",
    "ibv_query_qp",
    "ibv_reg_mr",
    "ibv_reg_mr_iova2",
    "ibv_wc_status_str",
];

/// Types that no function above names, or whose constants farjump uses.
const TYPES: [&str; 13] = [
    "ibv_access_flags",
    "ibv_async_event",
    "ibv_gid_entry",
    "ibv_gid_type",
    "ibv_port_attr",
    "ibv_qp_attr_mask",
    "ibv_recv_wr",
    "ibv_send_flags",
    "ibv_send_wr",
    "ibv_wc",
    "ibv_wc_flags",
    "ibv_wr_opcode",
    "verbs_context",
];

/// Constants of enumerations without a name.
const CONSTANTS: &str = "IBV_LINK_LAYER_.*|IBV_ACCESS_OPTIONAL_(FIRST|LAST)";

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
        .blocklist_type("pthread_.*|__pthread_.*|__atomic_wide_counter.*|timespec")
        .raw_line("use libc::{pthread_cond_t, pthread_mutex_t, timespec};")
        .formatter(bindgen::Formatter::Prettyplease);
    for function in FUNCTIONS {
        builder = builder.allowlist_function(function);
    }
    for kind in TYPES {
        builder = builder.allowlist_type(kind);
    }
    // Extensions of verbs that farjump does not call: the bindings keep their places in the table of operations, but
    // not their types.
    for kind in ["ibv_flow_.*", "ibv_wq_.*", "ibv_ops_.*", "ibv_tm_.*", "ibv_counters.*"] {
        builder = builder.opaque_type(kind);
    }
    builder = builder.allowlist_var(CONSTANTS);
    Ok(for_each_machine(&builder.generate()?.to_string()))
}

/// `bindings`, whose assertions on structures with types of threads hold only on x86-64: these types have another
/// length elsewhere, and libc's declarations of them are the machine's.
fn for_each_machine(bindings: &str) -> String {
    const STRUCTURE: &str = "pub struct ";
    const ASSERTIONS: &str =
        "#[allow(clippy::unnecessary_operation, clippy::identity_op)]\nconst _: () = {\n";
    const OF: &str = "[\"Size of ";
    let mut differing: Vec<&str> = Vec::new();
    // A structure that contains another structure follows it.
    for body in bindings.split(STRUCTURE).skip(1) {
        let (name, body) = body.split_once(" {").expect("structures have fields");
        let fields = body.split_once("\n}").expect("structures end").0;
        let contains = |kind: &str| fields.lines().any(|line| line.ends_with(&format!(": {kind},")));
        if contains("pthread_mutex_t") || differing.iter().any(|kind| contains(kind)) {
            differing.push(name);
        }
    }
    let mut blocks = bindings.split(ASSERTIONS);
    let mut out = blocks.next().unwrap_or_default().to_owned();
    for block in blocks {
        let named = block.trim_start().strip_prefix(OF).and_then(|rest| rest.split_once('"'));
        if named.is_some_and(|(name, _)| differing.contains(&name)) {
            out.push_str("#[cfg(target_arch = \"x86_64\")]\n");
        }
        out.push_str(ASSERTIONS);
        out.push_str(block);
    }
    out
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
fn the_kept_bindings_match_bindgen_output_for_rdma_core_44() {
    // The header states no version: the package beside it does.
    let package = format!("/usr/lib/{}-linux-gnu/pkgconfig/libibverbs.pc", std::env::consts::ARCH);
    let (Ok(_), Ok(package)) = (std::fs::metadata(HEADER), std::fs::read_to_string(&package)) else {
        return println!(
            "skipped: no headers of verbs ({HEADER}, {package}): apt-get install libibverbs-dev"
        );
    };
    if !package.lines().any(|line| line == VERSION) {
        let found = package.lines().find(|line| line.starts_with("Version"));
        return println!(
            "skipped: the headers of verbs here are of {found:?}, and the bindings of {VERSION}"
        );
    }
    if let Err(error) = clang() {
        return println!("skipped: no libclang ({error}): apt-get install libclang-14-dev");
    }
    let made = made().expect("the header is C");
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
