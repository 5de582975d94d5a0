//! A store that uses its target's context during a request; the processor's state after calls.

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
    /// Results of the store's own requests for a further object, made during such a request.
    inner: Vec<Result<usize, ObjectError>>,
    fails: bool,
}

#[repr(align(64))]
struct Aligned([u8; 5]);
static BYTES: Aligned = Aligned(*b"bytes");

impl Nested {
    fn use_context(&mut self) {
        assert!(at_call_end(count_end) && hold_reply() && caller().is_none());
        // No test needs a store that calls itself more deeply.
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
    ) -> Result<RequestState, String> {
        reply.extend(b"before ");
        self.use_context();
        reply.extend(request.len().to_string().bytes());
        Ok(RequestState::Done)
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

/// Runs `main` with a store. Returns the end of the call, its reply, and the number of runs of work for its end.
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
fn a_store_that_reenters_the_context_finds_no_store_there() {
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

/// Calls `main` as a poll does. Returns its end, and whether it returned with other modes of arithmetic.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
fn polled(context: &mut Context, main: Main) -> (Ended, bool) {
    context.note_modes();
    // SAFETY: `main` is one of the functions below, which take any payload.
    let ended = unsafe { context.call(main, ptr::null_mut(), 0, ptr::null_mut(), 4096) };
    let has_strayed = context.has_strayed();
    context.restore_modes();
    (ended, has_strayed)
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
#[test]
fn the_programs_arithmetic_modes_survive_a_call_that_returns_or_panics() {
    use std::arch::naked_asm;

    use super::super::services::farjump_panic;
    use super::enter::tests::{round_up, set, third};

    unsafe extern "C" fn returns(_: *mut c_void, _: usize, _: *mut c_void) {
        round_up();
    }
    // A jump: there is no function of this program in between.
    #[unsafe(naked)]
    unsafe extern "C" fn panics(_: *mut c_void, _: usize, _: *mut c_void) {
        #[cfg(target_arch = "x86_64")]
        naked_asm!(
            "sub rsp, 8", "call {round_up}", "add rsp, 8", "xor edi, edi", "xor esi, esi", "jmp {panic}",
            round_up = sym round_up, panic = sym farjump_panic,
        );
        #[cfg(target_arch = "aarch64")]
        naked_asm!(
            "stp x29, x30, [sp, #-16]!", "bl {round_up}", "ldp x29, x30, [sp], #16", "mov x0, xzr", "mov x1, xzr",
            "b {panic}", round_up = sym round_up, panic = sym farjump_panic,
        );
        #[cfg(target_arch = "riscv64")]
        naked_asm!(
            "addi sp, sp, -16", "sd ra, 0(sp)", "call {round_up}", "ld ra, 0(sp)", "addi sp, sp, 16", "li a0, 0", "li a1, 0",
            "tail {panic}", round_up = sym round_up, panic = sym farjump_panic,
        );
    }
    unsafe extern "C" fn requests_work(_: *mut c_void, _: usize, _: *mut c_void) {
        thread_local!(static SEEN: Cell<u64> = const { Cell::new(0) });
        assert!(at_call_end(|| SEEN.set(third())));
        append(LentBytes::from(&SEEN.get().to_ne_bytes()[..]));
        round_up();
    }
    let before = third();
    let mut context = Context::new();
    for (main, end, has_strayed) in [
        (returns as Main, Ended::Returned, true),
        (panics, Ended::Panicked, false),
        (requests_work, Ended::Returned, false),
        (requests_work, Ended::Returned, false),
    ] {
        assert_eq!((polled(&mut context, main), third()), ((end, has_strayed), before));
    }
    assert_eq!(context.reply(), before.to_ne_bytes(), "work for the end of a call is the program's");
    // A call of the program's own, during a poll after a call that has changed them.
    let own = |context: &mut Context, main| {
        let outer = context.begin_calls();
        // SAFETY: as in `polled`.
        let ended = unsafe { context.call(main, ptr::null_mut(), 0, ptr::null_mut(), 4096) };
        context.end_calls(outer);
        ended
    };
    for (main, end) in [(returns as Main, Ended::Returned), (panics, Ended::Panicked)] {
        assert_eq!((own(&mut context, main), third()), (end, before));
        context.note_modes();
        round_up();
        assert_eq!((own(&mut context, main), third()), (end, before + 1));
        context.restore_modes();
        assert_eq!(third(), before);
    }
    // The program's own modes stay, too.
    round_up();
    for (main, end) in [(returns as Main, Ended::Returned), (panics, Ended::Panicked)] {
        assert_eq!((polled(&mut context, main), third()), ((end, false), before + 1));
    }
    set(ControlWords::DEFAULT);
}

/// State that a function may leave behind: flags, and values on the stack of x87.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_panic_leaves_no_flag_and_no_value_of_x87() {
    use std::arch::{asm, naked_asm};

    #[unsafe(naked)]
    unsafe extern "C" fn panics(_: *mut c_void, _: usize, _: *mut c_void) {
        naked_asm!(
            "fldpi", "fldpi", "fldpi", "fldpi", "fldpi", "fldpi", "fldpi", "fldpi",
            // Direction, nested task, alignment check.
            "pushfq",
            "or dword ptr [rsp], 0x44400",
            "popfq",
            "xor edi, edi",
            "xor esi, esi",
            "jmp {panic}",
            panic = sym super::super::services::farjump_panic,
        )
    }
    let mut context = Context::new();
    assert_eq!(polled(&mut context, panics), (Ended::Panicked, false));
    let (flags, value): (u64, f64);
    let mut place = 0.0_f64;
    // SAFETY: it pushes and pops one value of either stack, and writes `place`.
    unsafe {
        asm!("pushfq", "pop {flags}", "fldpi", "fstp qword ptr [{place}]", flags = out(reg) flags, place = in(reg) &raw mut place);
    }
    value = place;
    assert_eq!((flags & 0x44400, value), (0, std::f64::consts::PI));
    assert_eq!(context.reply(), b"(no message)");
}
