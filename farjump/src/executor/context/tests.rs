//! A store that uses its target's context while it is asked for something.

use std::cell::Cell;
use std::panic::resume_unwind;

use super::*;
use crate::objects::{LingeringPeer, ObjectPage, Region};

thread_local! {
    static ENDED: Cell<u32> = const { Cell::new(0) };
}

fn count_end() {
    ENDED.set(ENDED.get() + 1);
}

/// A store with one object, whose contents are `BYTES`.
#[derive(Debug)]
struct Nested {
    /// What the store got that it asked for a further object, while it was asked for one.
    inner: Vec<Result<usize, ObjectError>>,
    fails: bool,
}

#[repr(align(64))]
struct Aligned([u8; 5]);
static BYTES: Aligned = Aligned(*b"bytes");

impl Nested {
    fn use_context(&mut self) {
        assert!(at_call_end(count_end) && hold_reply() && caller().is_none());
        // Deeper than this no test has to follow a store that is its own caller.
        if self.inner.len() < 4 {
            self.inner.push(Ok(0));
            let place = self.inner.len() - 1;
            self.inner[place] = object(Request::from(&b"a handle"[..])).map(|lent| lent.len);
        }
        if self.fails {
            // Without the hook, which prints a backtrace: below `enter` there is nothing to unwind in an optimized
            // build, and injected code ends a backtrace before that.
            resume_unwind(Box::new("the store fails"));
        }
    }
}

// SAFETY: the one object is a static of this program, which nothing writes.
unsafe impl Objects for Nested {
    fn listening(&mut self, _: &str) {}

    fn request(
        &mut self,
        _: u64,
        request: Request<'_>,
        reply: &mut Vec<u8>,
        _: usize,
    ) -> Result<Answer, String> {
        reply.extend(b"before ");
        self.use_context();
        reply.extend(request.len().to_string().bytes());
        Ok(Answer::Done)
    }

    fn resolve(&mut self, _: Request<'_>) -> Result<Lent, ObjectError> {
        self.use_context();
        Ok(Lent { data: NonNull::from(&BYTES.0).cast(), len: BYTES.0.len() })
    }

    fn create(&mut self, _: usize) -> Result<Lent, ObjectError> {
        self.use_context();
        Err(ObjectError::Full)
    }

    fn call_ended(&mut self, _: bool, reply: &mut Vec<u8>) {
        reply.extend(format!("; inner: {:?}", std::mem::take(&mut self.inner)).bytes());
    }

    fn source_ended(&mut self, _: u64, _: Option<LingeringPeer>) {}

    fn region(&self, _: bool) -> Option<Region<'_>> {
        None
    }

    fn list(&mut self, _: u64, _: usize) -> ObjectPage {
        ObjectPage::default()
    }
}

unsafe extern "C" fn resolves(_: *mut c_void, _: usize, _: *mut c_void) {
    let text = match object(Request::from(&b"a handle"[..])) {
        Ok(lent) => format!("{} bytes", lent.len),
        Err(why) => format!("{why:?}"),
    };
    append(LentBytes::from(text.as_bytes()));
}

unsafe extern "C" fn creates(_: *mut c_void, _: usize, _: *mut c_void) {
    let text = format!("{:?}", new_object(8).err());
    append(LentBytes::from(text.as_bytes()));
}

unsafe extern "C" fn requests(payload: *mut c_void, len: usize, _: *mut c_void) {
    // SAFETY: the payload of `run`, which lives as long as the call.
    request(unsafe { Request::new(payload.cast(), len) });
}

/// Runs `main` with a store. Returns the end of the call, its reply, and how often work for its end has run.
fn run(main: Main, fails: bool) -> (Ended, String, u32) {
    ENDED.set(0);
    let mut context = Context::new();
    context.objects = Some(Box::new(Nested { inner: Vec::new(), fails }));
    let mut payload = *b"request";
    // SAFETY: `main` is one of the functions of this file, which take any payload.
    let ended =
        unsafe { context.call(main, payload.as_mut_ptr().cast(), payload.len(), ptr::null_mut(), 4096) };
    assert!(context.objects.is_some(), "the store is the context's again");
    (ended, String::from_utf8_lossy(context.reply()).into_owned(), ENDED.get())
}

#[test]
fn a_store_that_uses_the_context_of_the_call_is_reached_by_one_reference_alone() {
    let (ended, reply, ends) = run(resolves, false);
    assert_eq!((ended, ends), (Ended::Held, 1));
    assert_eq!(reply, "5 bytes; inner: [Err(NoStore)]");
    let (ended, reply, ends) = run(creates, false);
    assert_eq!((ended, ends), (Ended::Held, 1));
    assert_eq!(reply, "Some(Full); inner: [Err(NoStore)]");
}

#[test]
fn a_request_that_uses_the_context_keeps_its_reply() {
    let (ended, reply, ends) = run(requests, false);
    assert_eq!((ended, ends), (Ended::Held, 1));
    assert!(reply.starts_with("before 7"), "{reply}");
}

#[test]
fn a_store_that_fails_stays_the_contexts() {
    let (ended, reply, _) = run(resolves, true);
    assert_eq!(ended, Ended::Held);
    assert!(reply.starts_with("NoStore"), "{reply}");
    let (ended, reply, _) = run(requests, true);
    assert_eq!((ended, reply.as_str()), (Ended::Panicked, "the target's store failed: its log says why"));
}
