//! The transports of a UCX endpoint, parsed from the text that UCX prints: 1.13 has no call for them.

use std::ffi::c_char;
use std::ptr;
use std::slice;

use farjump_ucx_sys::ucp_ep_h;

use super::context::Worker;

/// Returns the transports of a UCX endpoint's lanes, each once, in order: `posix`, or `tcp, self`.
pub(crate) fn lanes(worker: &Worker, end: ucp_ep_h) -> Option<String> {
    let (mut start, mut len): (*mut c_char, usize) = (ptr::null_mut(), 0);
    // SAFETY: both variables have space for the results, which are written until the stream is closed below.
    let stream = unsafe { libc::open_memstream(&mut start, &mut len) };
    if stream.is_null() {
        return None;
    }
    // SAFETY: `end` and `stream` are valid. Closing flushes the text; then there is a string of `len` bytes
    // at `start`, to be freed.
    let text = unsafe {
        worker.ucx.ucp_ep_print_info(end, stream.cast());
        libc::fclose(stream);
        if start.is_null() {
            return None;
        }
        let text = String::from_utf8_lossy(slice::from_raw_parts(start.cast::<u8>(), len)).into_owned();
        libc::free(start.cast());
        text
    };
    parse(&text)
}

/// Parses lines like `lane[0]: 1:posix/memory.0 md[1] -> …`.
fn parse(text: &str) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for line in text.lines() {
        let name = line
            .split_once("lane[")
            .and_then(|(_, rest)| rest.split_once("]:"))
            .and_then(|(_, rest)| rest.trim_start().split_once(':'))
            .and_then(|(_, rest)| rest.split_once('/'));
        if let Some((name, _)) = name
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    (!names.is_empty()).then(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_transport_is_named_once_in_the_order_of_the_lanes() {
        let text = "# UCP endpoint \n#\n#                 lane[0]:  1:posix/memory.0 md[1]  -> addr[1].md[1]/posix/sysdev[255] am am_bw#0\n\
                    #                 lane[1]:  9:cma/memory.0 md[5]     -> rma_bw#1\n\
                    #                 lane[2]:  1:posix/memory.1 md[1] wireup\n#   am_send: 0..<egr/short>..93\n";
        assert_eq!(parse(text).as_deref(), Some("posix, cma"));
        assert_eq!(parse("# nothing of the kind\n# lane[x\n"), None);
    }
}
