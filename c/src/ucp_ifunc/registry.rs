//! A target's functions: code that came in frames, placed once for the whole process, and functions called by
//! name.
//!
//! Functions stay. A receipt states that frames without code suffice from now on, and it could not be
//! withdrawn later. So capacity is bounded, and code beyond it is refused, without a receipt.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use farjump::buffer::{CallOutcome, DirectCaller};
use farjump_core::frame::INLINE_ALIGN_LOG2;
use farjump_core::image::{ImageView, Machine};
use farjump_loader::library::MainRoutine;
use farjump_loader::{Arena, Library, LinkedImage, Refused as NotLinked, Resolver, Store};
use farjump_ucx_sys::UCS_ERR_CANCELED;

use super::Refused;
use super::codes::Codes;
use super::frame::{Key, Listed, Part};
use super::{Offer, WHERE, libraries};

/// Capacity in bytes for code. There is as much again for statics, and as much again for other machines' code and
/// [`ENTRY`]. Enough for thousands of functions.
const CAPACITY: usize = 16 << 20;
/// Bytes that a function takes besides its code and its name, at most.
const ENTRY: usize = 1024;
/// Number of functions found without a lock, by their keys.
const RECENT: usize = 64;

/// A function that can be called. Lives as long as the process.
#[derive(Debug)]
pub(super) struct Function {
    key: Key,
    main: MainRoutine,
    /// Payload alignment in bytes that it requires.
    align: usize,
    /// True if it may reply or panic, which takes more than a plain call.
    wants_services: bool,
    code: Code,
}

/// The owner of a function's code.
#[derive(Debug)]
enum Code {
    /// Placed here, with the images for all machines.
    Placed(Arc<LinkedImage>, Arc<Codes>),
    Local(Library),
}

impl Function {
    /// Returns the code that can be sent on; `None` for a function that is only here.
    pub(super) fn codes(&self) -> Option<&Arc<Codes>> {
        match &self.code {
            Code::Placed(_, codes) => Some(codes),
            Code::Local(_) => None,
        }
    }

    pub(super) fn name(&self) -> &str {
        match &self.code {
            Code::Placed(linked, _) => linked.name(),
            Code::Local(library) => library.name(),
        }
    }

    /// Returns log2 of the payload alignment that it requires; 0 if the default suffices.
    pub(super) fn payload_align_log2(&self) -> u8 {
        match &self.code {
            Code::Placed(linked, _) => linked.payload_align_log2(),
            Code::Local(_) => 0,
        }
    }

    /// Returns the payload alignment in bytes that it requires.
    #[inline(always)]
    pub(super) fn align(&self) -> usize {
        self.align
    }

    /// Calls the function.
    ///
    /// # Errors
    /// [`UCS_ERR_CANCELED`] with its message, where it called `farjump_panic`.
    ///
    /// # Safety
    /// `payload` must be valid for reads and writes of `len` bytes during the call and aligned to
    /// [`Function::align`]. The program and the function's author agree on `target_args`. Peers that may
    /// write into the program's buffers are responsible for the function's actions.
    #[inline(always)]
    pub(super) unsafe fn call(
        &self,
        payload: *mut c_void,
        len: usize,
        target_args: *mut c_void,
    ) -> Result<(), Refused> {
        if self.wants_services {
            // SAFETY: this function's caller gives the same guarantees.
            return unsafe { self.call_with_services(payload, len, target_args) };
        }
        // SAFETY: it stays placed as long as the process lives; this function's caller guarantees the
        // arguments.
        unsafe { (self.main)(payload, len, target_args) };
        Ok(())
    }

    /// # Errors
    /// As [`Function::call`].
    ///
    /// # Safety
    /// As [`Function::call`].
    #[inline(never)]
    unsafe fn call_with_services(
        &self,
        payload: *mut c_void,
        len: usize,
        target_args: *mut c_void,
    ) -> Result<(), Refused> {
        let Code::Placed(linked, _) = &self.code else { return Ok(()) };
        let mut caller = DirectCaller::new();
        // SAFETY: this function's caller gives the same guarantees.
        match unsafe { caller.call(linked, payload, len, target_args) } {
            CallOutcome::Returned(_) => Ok(()),
            CallOutcome::Panicked(message) => {
                let message = String::from_utf8_lossy(message);
                Err(Refused::new(UCS_ERR_CANCELED, format!("`{}` panicked: {message}", linked.name())))
            }
        }
    }
}

/// All functions, and the memory for their code. Made when the first function comes.
#[derive(Debug)]
struct All {
    store: Store,
    resolver: Resolver,
    /// Bytes that are left for functions, and for images of other machines.
    capacity: usize,
    by_key: HashMap<Key, &'static Function>,
    by_name: HashMap<String, &'static Function>,
}

static ALL: Mutex<Option<All>> = Mutex::new(None);
static FOUND: [AtomicPtr<Function>; RECENT] = [const { AtomicPtr::new(ptr::null_mut()) }; RECENT];

/// Returns the function with this key, if it is here.
#[inline(always)]
pub(super) fn find(key: Key) -> Option<&'static Function> {
    // Pairs with the release store in `look_up`.
    let found = FOUND[key.index(RECENT)].load(Ordering::Acquire);
    // SAFETY: only functions are stored there, which live as long as the process.
    match unsafe { found.as_ref() } {
        Some(function) if function.key == key => Some(function),
        _ => look_up(key),
    }
}

#[inline(never)]
fn look_up(key: Key) -> Option<&'static Function> {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let function = *all.as_ref()?.by_key.get(&key)?;
    FOUND[key.index(RECENT)].store(ptr::from_ref(function).cast_mut(), Ordering::Release);
    Some(function)
}

/// Returns the first code that came by this name, if any.
pub(super) fn named(name: &str) -> Option<&'static Function> {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.as_ref()?.by_name.get(name).copied()
}

/// Adds the function that a frame brings or names. Looks up imports that this process lacks in the library of the
/// code's name in the directory, and in that library's dependencies. Without such a library, looks them up in the
/// libraries that the code wants. `offer` adds this interface's own functions.
///
/// # Errors
/// [`UCS_ERR_CANCELED`], as the prototypes return when they cannot register: no capacity is left for code, it cannot be
/// linked here, differs from its claims, or is not in the directory.
pub(super) fn bring(key: Key, part: &Part<'_>, offer: Offer) -> Result<&'static Function, Refused> {
    // Opened before the lock is taken: a library's constructors may do anything.
    let source = if key.is_name() { Source::Here(Local::load(part.name)?) } else { Source::Process };
    match keep(key, part, source, offer)? {
        Ok(function) => Ok(function),
        Err(why) => {
            let resolver = match (own_library(part.name, &why, offer), &why) {
                (Ok(resolver), _) => resolver,
                (Err(_), NotLinked::WantedLibraries { libraries, .. }) => {
                    wanted_libraries(part.name, libraries, offer)?
                }
                (Err(refused), _) => return Err(refused),
            };
            keep(key, part, Source::Own(resolver), offer)?.map_err(|why| refused(part.name, &why))
        }
    }
}

/// Returns a resolver that also searches these libraries, which it opens by their names.
fn wanted_libraries(name: &str, sonames: &[String], offer: Offer) -> Result<Resolver, Refused> {
    let failed = |error: farjump_loader::Error| {
        Refused::new(
            UCS_ERR_CANCELED,
            format!("`{name}` was refused: it wants a library, but this process {error}"),
        )
    };
    let mut resolver = resolver(offer);
    for soname in sonames {
        // SAFETY: a peer that may write into the program's buffers may have it run any code (the header's TRUST), also that of a
        // library.
        unsafe { resolver.allow_wanted(soname) }.map_err(failed)?;
    }
    resolver.open_wanted().map_err(failed)?;
    Ok(resolver)
}

/// Returns the image for this machine.
///
/// # Errors
/// [`UCS_ERR_CANCELED`], with the machines that the frame brought code for.
fn own_image<'a>(part: &'a Part<'_>) -> Result<&'a Listed<'a>, Refused> {
    Machine::native().and_then(|machine| part.for_machine(machine)).ok_or_else(|| {
        let brought: Vec<_> =
            part.images.iter().filter(|image| !image.bytes.is_empty()).map(|image| image.machine.to_string()).collect();
        let own = Machine::native().map_or("another machine", Machine::triple);
        let text = format!(
            "the frame of `{}` brought code for {}, and this process runs on {own}: register the function with code for that, too, or \
             send it from where it was registered",
            part.name,
            brought.join(" and ")
        );
        Refused::new(UCS_ERR_CANCELED, text)
    })
}

/// The place where a function, or its imports, are found.
enum Source {
    /// The process alone has its imports.
    Process,
    /// A resolver for imports that the process lacks.
    Own(Resolver),
    /// The function is in a library.
    Here(Local),
}

/// Returns a resolver that also searches the library of this name in the directory, and those that it depends on.
fn own_library(name: &str, why: &NotLinked, offer: Offer) -> Result<Resolver, Refused> {
    // The store has checked the name: it is an identifier, and no path.
    let path = libraries::path(name);
    let mut resolver = resolver(offer);
    // SAFETY: the program names the directory and the library in it, as for code that is registered by its
    // name.
    let opened = unsafe { resolver.allow_library_and_its_own(&path) };
    opened.map_err(|error| {
        let text = format!(
            "{why}; and the function's own library, which may define it, was not found here: {error} ({})",
            WHERE
        );
        Refused::new(UCS_ERR_CANCELED, text)
    })?;
    Ok(resolver)
}

/// Adds the function, or returns the imports that are missing.
fn keep(
    key: Key,
    part: &Part<'_>,
    source: Source,
    offer: Offer,
) -> Result<Result<&'static Function, NotLinked>, Refused> {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let all = match &mut *all {
        Some(all) => all,
        none => none.insert(All::new(offer)?),
    };
    if let Some(function) = all.by_key.get(&key) {
        return Ok(Ok(function));
    }
    // One image may come on any number of lists, each of which is a function.
    let entry = ENTRY + part.name.len();
    if entry > all.capacity {
        let text = format!("`{}` was refused: no capacity is left for functions", part.name);
        return Err(Refused::new(UCS_ERR_CANCELED, text));
    }
    let placed = match source {
        Source::Here(Local { library, main }) => Ok(Function {
            key,
            main,
            align: 1 << INLINE_ALIGN_LOG2,
            wants_services: false,
            code: Code::Local(library),
        }),
        Source::Process => {
            place(&mut all.store, &all.resolver, &mut all.capacity, key, (part, own_image(part)?))
        }
        Source::Own(resolver) => {
            place(&mut all.store, &resolver, &mut all.capacity, key, (part, own_image(part)?))
        }
    };
    let function = match placed {
        Ok(function) => function,
        Err(why @ (NotLinked::UnresolvedImport { .. } | NotLinked::WantedLibraries { .. })) => {
            return Ok(Err(why));
        }
        Err(why) => return Err(refused(part.name, &why)),
    };
    all.capacity = all.capacity.saturating_sub(entry);
    let function: &'static Function = Box::leak(Box::new(function));
    all.by_key.insert(key, function);
    if function.codes().is_some() {
        all.by_name.entry(part.name.to_owned()).or_insert(function);
    }
    Ok(Ok(function))
}

#[cold]
fn refused(name: &str, why: &NotLinked) -> Refused {
    Refused::new(UCS_ERR_CANCELED, format!("`{name}` was refused: {why}"))
}

/// A library that is loaded here.
struct Local {
    library: Library,
    main: MainRoutine,
}

impl Local {
    fn load(name: &str) -> Result<Local, Refused> {
        let library = libraries::from_directory(name)?;
        let missing = || Refused::new(UCS_ERR_CANCELED, format!("the library of `{name}` is not loaded"));
        let main = library.main().ok_or_else(missing)?;
        Ok(Local { library, main })
    }
}

impl All {
    fn new(offer: Offer) -> Result<All, Refused> {
        let arena =
            Arena::new(CAPACITY).map_err(|error| Refused::new(UCS_ERR_CANCELED, error.to_string()))?;
        let store = Store::new(arena);
        Ok(All {
            store,
            resolver: resolver(offer),
            capacity: CAPACITY,
            by_key: HashMap::new(),
            by_name: HashMap::new(),
        })
    }
}

/// Returns a resolver of this process's exports to code: services, this interface's own functions, and all symbols of
/// the process.
fn resolver(offer: Offer) -> Resolver {
    let mut exports = DirectCaller::exports();
    offer(&mut exports);
    let mut resolver = Resolver::new(exports);
    resolver.allow_process_symbols();
    resolver
}

fn place(
    store: &mut Store,
    resolver: &Resolver,
    capacity: &mut usize,
    key: Key,
    (part, image): (&Part<'_>, &Listed<'_>),
) -> Result<Function, NotLinked> {
    let linked = store.insert(image.bytes, image.id, part.name, resolver)?;
    let imports_services = ImageView::new_checked(linked.image())
        .is_ok_and(|view| view.imports().any(|import| SERVICES.contains(&import.name)));
    let codes = Arc::new(Codes::of_part(part, &linked, capacity));
    Ok(Function {
        key,
        main: linked.main(),
        align: 1 << linked.payload_align_log2().max(INLINE_ALIGN_LOG2),
        wants_services: imports_services,
        code: Code::Placed(linked, codes),
    })
}

/// Services of `farjump_ifunc.h` besides the functions of libc.
const SERVICES: [&str; 9] = [
    "farjump_reply",
    "farjump_forward",
    "farjump_again",
    "farjump_make",
    "farjump_inject",
    "farjump_object",
    "farjump_new_object",
    "farjump_panic",
    "farjump_private_copy",
];
