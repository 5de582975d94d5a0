//! From bitcode to an image, by LLVM and farjump's own linker.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::time::Instant;

use farjump_builder::{Linked, ObjectsOf, link_objects};
use farjump_core::bitcode::{BitcodeView, is_llvm_module};
use farjump_core::cpu::Cpu;
use farjump_core::image::{Level, Machine};
use farjump_os::cpu::detected;

use super::llvm::{Llvm, Ref};
use crate::protocol::{Fault, Tier, Times};

/// A module whose compilation brings LLVM's tables and code into memory before the first fork.
const WARM: &str = "\
define float @warm_main(ptr %p, i64 %n, ptr %a) {
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %next, %loop ]
  %s = phi float [ 0.0, %0 ], [ %sum, %loop ]
  %at = getelementptr float, ptr %p, i64 %i
  %x = load float, ptr %at
  %sum = fadd reassoc float %s, %x
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  store float %sum, ptr %a
  call void @warm_import(ptr %a)
  ret float %sum
}
declare void @warm_import(ptr)
";

/// Values of LLVM's enumerations (`llvm-c/Core.h`, `llvm-c/TargetMachine.h`).
mod value {
    use std::ffi::c_int;

    pub(super) const EXTERNAL_LINKAGE: c_int = 0;
    pub(super) const AVAILABLE_EXTERNALLY: c_int = 1;
    pub(super) const APPENDING: c_int = 7;
    pub(super) const INTERNAL: c_int = 8;
    pub(super) const COMMON: c_int = 14;
    pub(super) const PRIVATE: c_int = 9;
    pub(super) const DEFAULT_VISIBILITY: c_int = 0;
    pub(super) const ERROR: c_int = 0;
    pub(super) const NO_OPTIMISATION: c_int = 0;
    pub(super) const DEFAULT_OPTIMISATION: c_int = 2;
    pub(super) const PIC: c_int = 2;
    pub(super) const DEFAULT_MODEL: c_int = 0;
    pub(super) const SMALL_MODEL: c_int = 3;
    pub(super) const MEDIUM_MODEL: c_int = 5;
    pub(super) const OBJECT: c_int = 1;
    pub(super) const RETURN_STATUS: c_int = 2;
    /// The place of a function's own attributes.
    pub(super) const FUNCTION: u32 = u32::MAX;
}

/// Attributes of functions by which compilers fix the CPU. These attributes would override the target's CPU.
const OF_THE_AUTHORS_CPU: [&CStr; 4] = [c"target-cpu", c"target-features", c"tune-cpu", c"probe-stack"];

/// The reason why there is no image.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) fault: Fault,
    /// The fault, as a clause.
    pub(super) text: String,
}

impl From<String> for Refusal {
    fn from(text: String) -> Refusal {
        Refusal { fault: Fault::Code, text }
    }
}

/// An image, and facts about its compilation.
pub(super) struct Made {
    pub(super) linked: Linked,
    pub(super) optimised: bool,
    pub(super) times: Times,
}

thread_local! {
    /// LLVM's text for its first error.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Compiles a module, so that LLVM is warm.
///
/// # Errors
/// When this LLVM does not work here.
pub(super) fn warm(llvm: &Llvm) -> Result<(), Refusal> {
    for tier in [Tier::First, Tier::Optimised] {
        let context = Context::new(llvm);
        let module = context.parse_text(WARM.as_bytes())?;
        let cpu = detected();
        let target = TargetMachine::new(llvm, &cpu, tier)?;
        // SAFETY: the module is whole, and the text is a string.
        unsafe { (llvm.functions.LLVMSetTarget)(module.0, target.triple.as_ptr()) };
        let object = context.compile(&module, &target, "warm", tier)?;
        link(object, "warm", &cpu, Vec::new())?;
    }
    Ok(())
}

/// Compiles `bitcode` for `cpu`.
///
/// # Errors
/// The fault of the bitcode.
pub(super) fn compile(
    llvm: &Llvm,
    bitcode: &BitcodeView<'_>,
    cpu: &Cpu,
    tier: Tier,
) -> Result<Made, Refusal> {
    let begun = Instant::now();
    let context = Context::new(llvm);
    let module = context.read(bitcode)?;
    let parse = begun.elapsed();
    let (mut made, object) = context.make(&module, bitcode, cpu, tier)?;
    let linking = Instant::now();
    let wanted: Vec<String> = bitcode.wanted().map(str::to_owned).collect();
    let linked = link(object, bitcode.name(), cpu, wanted.clone())?;
    made.parse = parse;
    made.link = linking.elapsed();
    if tier == Tier::First && linked.has_statics {
        // Such code could not be exchanged for optimised code later. The module has been changed, so it is
        // read again.
        let context = Context::new(llvm);
        let module = context.read(bitcode)?;
        let (times, object) = context.make(&module, bitcode, cpu, Tier::Optimised)?;
        let linked = link(object, bitcode.name(), cpu, wanted)?;
        return Ok(Made { linked, optimised: true, times: Times { parse, compile: times.compile, ..made } });
    }
    Ok(Made { linked, optimised: tier == Tier::Optimised, times: made })
}

fn link(object: Vec<u8>, name: &str, cpu: &Cpu, wanted: Vec<String>) -> Result<Linked, String> {
    let objects = vec![("the compiled bitcode".to_owned(), object)];
    link_objects(ObjectsOf { name, objects, cpu, wanted }).map_err(|error| error.to_string())
}

/// Called for LLVM's remarks, warnings and errors.
extern "C" fn diagnosed(info: Ref, llvm: Ref) {
    // SAFETY: the context was given this pointer with the function (`Context::new`).
    let llvm = unsafe { &*llvm.cast::<Llvm>() };
    // SAFETY: LLVM passes a description that is valid during the call, and returns a string.
    let (severity, text) = unsafe {
        let text = (llvm.functions.LLVMGetDiagInfoDescription)(info);
        ((llvm.functions.LLVMGetDiagInfoSeverity)(info), CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    if severity == value::ERROR {
        SAID.with_borrow_mut(|said| {
            if said.is_empty() {
                *said = text;
            }
        });
    }
}

/// Returns LLVM's text, or a text that LLVM gave none.
fn said() -> String {
    let said = SAID.take();
    if said.is_empty() { "LLVM does not say why".to_owned() } else { said }
}

/// An LLVM context. It and all objects made in it stay until the process ends, which is soon.
struct Context<'l> {
    llvm: &'l Llvm,
    context: Ref,
}

struct Module(Ref);

/// A CPU to compile for.
struct TargetMachine {
    machine: Ref,
    triple: CString,
    layout: CString,
}

impl TargetMachine {
    fn new(llvm: &Llvm, cpu: &Cpu, tier: Tier) -> Result<TargetMachine, Refusal> {
        let unknown = |text| Refusal { fault: Fault::Machine, text };
        let (arch, model) = match cpu.machine() {
            Machine::X86_64 => ("x86_64", value::DEFAULT_MODEL),
            Machine::AARCH64 => ("aarch64", value::SMALL_MODEL),
            Machine::RISCV => ("riscv64", value::MEDIUM_MODEL),
            other => return Err(unknown(format!("it is for {other}, which is not known"))),
        };
        let triple = text(format!("{arch}-unknown-linux-gnu"));
        let (name, features) = cpu_of(llvm, cpu);
        let level = match tier {
            Tier::First => value::NO_OPTIMISATION,
            Tier::Optimised => value::DEFAULT_OPTIMISATION,
        };
        let functions = &llvm.functions;
        let (mut target, mut problem) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: all strings end with a zero byte, results are written where there is space for them, and the objects are
        // LLVM's own, which stay.
        unsafe {
            if (functions.LLVMGetTargetFromTriple)(triple.as_ptr(), &raw mut target, &raw mut problem) != 0 {
                return Err(unknown(CStr::from_ptr(problem).to_string_lossy().into_owned()));
            }
            let machine = (functions.LLVMCreateTargetMachine)(
                target,
                triple.as_ptr(),
                name.as_ptr(),
                features.as_ptr(),
                level,
                value::PIC,
                model,
            );
            if machine.is_null() {
                return Err(unknown(format!("LLVM has no {arch} with the CPU {}", name.to_string_lossy())));
            }
            let layout = (functions.LLVMCreateTargetDataLayout)(machine);
            let layout = CStr::from_ptr((functions.LLVMCopyStringRepOfTargetData)(layout)).to_owned();
            Ok(TargetMachine { machine, triple, layout })
        }
    }
}

/// Name and features of a CPU, in LLVM's words: exactly this machine's, or those that the CPU's level
/// guarantees.
fn cpu_of(llvm: &Llvm, cpu: &Cpu) -> (CString, CString) {
    let own = detected();
    if own.features() == cpu.features() && own.platform() == cpu.platform() {
        return llvm.host.clone();
    }
    let name = match (cpu.machine(), cpu.level()) {
        (Machine::X86_64, Level::BASELINE) => "x86-64".to_owned(),
        (Machine::X86_64, level) => format!("x86-64-{level}"),
        (Machine::RISCV, _) => "generic-rv64".to_owned(),
        _ => "generic".to_owned(),
    };
    let features = if cpu.machine() == Machine::RISCV { "+m,+a,+f,+d,+c" } else { "" };
    (text(name), text(features.to_owned()))
}

/// A string of farjump's own for LLVM.
fn text(text: String) -> CString {
    CString::new(text).unwrap_or_default()
}

impl<'l> Context<'l> {
    fn new(llvm: &'l Llvm) -> Context<'l> {
        let handle = ptr::from_ref(llvm).cast_mut().cast();
        // SAFETY: the handler gets the pointer that goes with it; `llvm` outlives the context's use.
        let context = unsafe {
            let context = (llvm.functions.LLVMContextCreate)();
            (llvm.functions.LLVMContextSetDiagnosticHandler)(context, Some(diagnosed), handle);
            context
        };
        Context { llvm, context }
    }

    /// Reads a module in LLVM's assembly language.
    fn parse_text(&self, source: &[u8]) -> Result<Module, String> {
        let functions = &self.llvm.functions;
        let (mut module, mut problem) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the buffer is a copy of the text, which the parser takes over; both results have space.
        unsafe {
            let (start, len) = (source.as_ptr().cast::<c_char>(), source.len());
            let buffer = (functions.LLVMCreateMemoryBufferWithMemoryRangeCopy)(start, len, c"text".as_ptr());
            if (functions.LLVMParseIRInContext)(self.context, buffer, &raw mut module, &raw mut problem) != 0
            {
                let problem = CStr::from_ptr(problem).to_string_lossy();
                return Err(format!("LLVM cannot read its text: {}", problem.trim_end()));
            }
        }
        Ok(Module(module))
    }

    /// Reads a module of bitcode.
    fn parse_bitcode(&self, bytes: &[u8]) -> Result<Module, String> {
        let functions = &self.llvm.functions;
        let mut module = ptr::null_mut();
        // SAFETY: the buffer is a copy of the bytes; the result has space. At worst the bytes make LLVM end
        // this process.
        let failed = unsafe {
            let start = bytes.as_ptr().cast::<c_char>();
            let buffer = (functions.LLVMCreateMemoryBufferWithMemoryRangeCopy)(
                start,
                bytes.len(),
                c"bitcode".as_ptr(),
            );
            (functions.LLVMParseBitcodeInContext2)(self.context, buffer, &raw mut module) != 0
        };
        if failed { Err(format!("LLVM cannot read it: {}", said())) } else { Ok(Module(module)) }
    }

    /// Reads all modules, and links them into one.
    fn read(&self, bitcode: &BitcodeView<'_>) -> Result<Module, String> {
        let functions = &self.llvm.functions;
        let mut whole: Option<Module> = None;
        for bytes in bitcode.modules() {
            // Text is allowed for functions that write code.
            let is_text = !is_llvm_module(bytes)
                && !bytes.is_empty()
                && !bytes.contains(&0)
                && std::str::from_utf8(bytes).is_ok();
            let module = if is_text { self.parse_text(bytes) } else { self.parse_bitcode(bytes) }?;
            let Some(first) = &whole else {
                whole = Some(module);
                continue;
            };
            // SAFETY: both are modules of this context; the second one is taken over.
            if unsafe { (functions.LLVMLinkModules2)(first.0, module.0) } != 0 {
                return Err(format!("its modules do not go together: {}", said()));
            }
        }
        let module = whole.ok_or_else(|| "it has no modules".to_owned())?;
        let mut problem = ptr::null_mut();
        // SAFETY: the module was read; the result has space.
        let is_broken =
            unsafe { (functions.LLVMVerifyModule)(module.0, value::RETURN_STATUS, &raw mut problem) } != 0;
        if is_broken {
            // SAFETY: after a failure `problem` is a string.
            let problem = unsafe { CStr::from_ptr(problem) };
            return Err(format!("it is no valid code: {}", problem.to_string_lossy().trim_end()));
        }
        Ok(module)
    }

    /// Checks that a module is for the machine, and compiles it. Returns the time and the object.
    fn make(
        &self,
        module: &Module,
        bitcode: &BitcodeView<'_>,
        cpu: &Cpu,
        tier: Tier,
    ) -> Result<(Times, Vec<u8>), Refusal> {
        let begun = Instant::now();
        let target = TargetMachine::new(self.llvm, cpu, tier)?;
        let functions = &self.llvm.functions;
        // SAFETY: both are strings of the module.
        let (triple, layout) = unsafe {
            let triple = CStr::from_ptr((functions.LLVMGetTarget)(module.0));
            (
                triple.to_string_lossy().into_owned(),
                CStr::from_ptr((functions.LLVMGetDataLayoutStr)(module.0)),
            )
        };
        if triple.is_empty() && layout.is_empty() {
            // Text need not name its machine: the bitcode's header does.
            // SAFETY: the module is whole, and both texts are strings.
            unsafe {
                (functions.LLVMSetTarget)(module.0, target.triple.as_ptr());
                (functions.LLVMSetDataLayout)(module.0, target.layout.as_ptr());
            }
            let object = self.compile(module, &target, bitcode.name(), tier)?;
            return Ok((Times { compile: begun.elapsed(), ..Times::default() }, object));
        }
        let arch = |triple: &str| triple.split('-').next().unwrap_or("").to_owned();
        let own = target.triple.to_string_lossy();
        if arch(&triple) != arch(&own) {
            return Err(
                format!("it says that it is for {}, and its code is for `{triple}`", cpu.machine()).into()
            );
        }
        if layout != &*target.layout {
            return Err(format!(
                "its data are laid out otherwise ({}) than on this machine ({})",
                layout.to_string_lossy(),
                target.layout.to_string_lossy()
            )
            .into());
        }
        // SAFETY: the module is whole, and the text is a string.
        unsafe { (functions.LLVMSetTarget)(module.0, target.triple.as_ptr()) };
        let object = self.compile(module, &target, bitcode.name(), tier)?;
        Ok((Times { compile: begun.elapsed(), ..Times::default() }, object))
    }

    /// Runs the passes, and makes an object.
    fn compile(
        &self,
        module: &Module,
        target: &TargetMachine,
        name: &str,
        tier: Tier,
    ) -> Result<Vec<u8>, Refusal> {
        self.make_own(module, &format!("{name}_main"))?;
        let functions = &self.llvm.functions;
        let passes = match tier {
            Tier::First => c"default<O0>,globaldce",
            Tier::Optimised => c"default<O2>",
        };
        // SAFETY: module and machine are whole, and the text is a string.
        let error = unsafe {
            let options = (functions.LLVMCreatePassBuilderOptions)();
            (functions.LLVMRunPasses)(module.0, passes.as_ptr(), target.machine, options)
        };
        if !error.is_null() {
            // SAFETY: `error` is an error, which becomes a string.
            let text = unsafe { CStr::from_ptr((functions.LLVMGetErrorMessage)(error)) };
            return Err(format!("LLVM cannot optimise it: {}", text.to_string_lossy()).into());
        }
        let (mut problem, mut buffer) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: module and machine are whole, and both results have space.
        let failed = unsafe {
            (functions.LLVMTargetMachineEmitToMemoryBuffer)(
                target.machine,
                module.0,
                value::OBJECT,
                &raw mut problem,
                &raw mut buffer,
            ) != 0
        };
        if failed {
            // SAFETY: after a failure `problem` is a string.
            let problem = unsafe { CStr::from_ptr(problem) };
            return Err(format!("LLVM makes no machine code of it: {}", problem.to_string_lossy()).into());
        }
        let error = SAID.take();
        if !error.is_empty() {
            return Err(format!("LLVM makes no machine code of it: {error}").into());
        }
        // SAFETY: the buffer has `len` bytes at `start`.
        let object = unsafe {
            let (start, len) =
                ((functions.LLVMGetBufferStart)(buffer), (functions.LLVMGetBufferSize)(buffer));
            std::slice::from_raw_parts(start.cast::<u8>(), len)
        };
        Ok(object.to_vec())
    }

    /// Removes the author's CPU from all functions, and hides everything but `main` from other modules: LLVM
    /// then drops unneeded functions, and can inline functions that are called once.
    fn make_own(&self, module: &Module, main: &str) -> Result<(), Refusal> {
        let functions = &self.llvm.functions;
        let mut has_main = false;
        let mut hide = |value: Ref| {
            // SAFETY: `value` is a function, a variable or an alias of the module, and its name has `len`
            // bytes.
            unsafe {
                let mut len = 0;
                let start = (functions.LLVMGetValueName2)(value, &raw mut len);
                let name = std::slice::from_raw_parts(start.cast::<u8>(), len);
                if (functions.LLVMIsDeclaration)(value) != 0 {
                    return;
                }
                if name == main.as_bytes() {
                    has_main = true;
                    (functions.LLVMSetLinkage)(value, value::EXTERNAL_LINKAGE);
                    (functions.LLVMSetVisibility)(value, value::DEFAULT_VISIBILITY);
                    return;
                }
                let stays = [
                    value::AVAILABLE_EXTERNALLY,
                    value::APPENDING,
                    value::INTERNAL,
                    value::PRIVATE,
                    value::COMMON,
                ];
                if name.starts_with(b"llvm.") || stays.contains(&(functions.LLVMGetLinkage)(value)) {
                    return;
                }
                if !(functions.LLVMIsAGlobalObject)(value).is_null() {
                    (functions.LLVMSetComdat)(value, ptr::null_mut());
                }
                (functions.LLVMSetVisibility)(value, value::DEFAULT_VISIBILITY);
                (functions.LLVMSetLinkage)(value, value::INTERNAL);
            }
        };
        // SAFETY: these calls walk the lists of the module, and nothing is removed from them meanwhile.
        unsafe {
            let mut function = (functions.LLVMGetFirstFunction)(module.0);
            while !function.is_null() {
                for name in OF_THE_AUTHORS_CPU {
                    (functions.LLVMRemoveStringAttributeAtIndex)(
                        function,
                        value::FUNCTION,
                        name.as_ptr(),
                        name.count_bytes() as u32,
                    );
                }
                hide(function);
                function = (functions.LLVMGetNextFunction)(function);
            }
            let mut global = (functions.LLVMGetFirstGlobal)(module.0);
            while !global.is_null() {
                hide(global);
                global = (functions.LLVMGetNextGlobal)(global);
            }
            // Zig exports functions by other names for them.
            let mut alias = (functions.LLVMGetFirstGlobalAlias)(module.0);
            while !alias.is_null() {
                hide(alias);
                alias = (functions.LLVMGetNextGlobalAlias)(alias);
            }
        }
        let missing = || Refusal { fault: Fault::Main, text: format!("it has no function `{main}`") };
        if has_main { Ok(()) } else { Err(missing()) }
    }
}

/// Makes LLVM report fatal errors to `handler`, which does not return.
pub(super) fn on_fatal_error(llvm: &Llvm, handler: extern "C" fn(*const c_char)) {
    // SAFETY: the handler stays as long as this program.
    unsafe { (llvm.functions.LLVMInstallFatalErrorHandler)(Some(handler)) };
}
