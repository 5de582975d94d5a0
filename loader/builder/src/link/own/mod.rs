//! farjump's own linker: links the code and data that `NAME_main` reaches, in the layout of `image.ld`.
//!
//! It makes a linked file as GNU ld and lld do, so that the same code extracts and checks an image, and shows it to
//! debuggers, with each linker. It takes the relocations that compilers emit in position-independent code of x86-64,
//! aarch64 and riscv64; it refuses others by name. Unlike GNU ld and lld it merges no strings, and relaxes no code of
//! aarch64.

mod apply;
mod encode;
mod file;
mod layout;
mod machines;
mod program;
mod shrink;

use std::path::Path;

use crate::error::BuildError;
use crate::objects::locate_symbol::constructor_cause;
use crate::objects::{Inputs, Linkable, Objects};
use crate::rules::Rules;
use layout::Layout;
use machines::Table;
use program::Program;

/// The version text, as of other linkers.
pub(crate) const VERSION: &str = concat!("farjump's own linker ", env!("CARGO_PKG_VERSION"));

/// Links the code that `NAME_main` reaches, as [`Linker::link_image`](crate::link::Linker::link_image).
///
/// # Errors
/// Code and data that images do not have, damaged objects, and values that do not fit.
pub(crate) fn link(inputs: &Inputs<'_>, relocations: bool) -> Result<Vec<u8>, BuildError> {
    let &Inputs { objects, name, runtime, rules, .. } = inputs;
    let machine = rules.machine;
    let table = Table::of(machine).ok_or(BuildError::Unsupported { machine: machine.triple() })?;
    let root = format!("{name}_main");
    if let Some((site, symbol)) = objects.initialisers(&root).into_iter().next() {
        let cause = constructor_cause(objects, &site, &symbol);
        return Err(BuildError::Constructor { site: Some(site), symbol, cause });
    }
    let runtime = runtime.map(|path| library(path, rules)).transpose()?;
    let members: Vec<_> = objects.parsed().chain(runtime.iter().flat_map(Objects::parsed)).collect();
    let program = Program::take(members, &root)?;
    let parts = program.reached(&root, table)?;
    let mut layout = Layout::of(&program, &parts, table)?;
    let applied = apply::apply(&program, &mut layout, table, rules)?;
    file::write(&program, &layout, &applied, (table, &root), relocations)
}

/// The compiler's support routines.
fn library(path: &Path, rules: &Rules) -> Result<Objects, BuildError> {
    let label = path.display().to_string();
    Objects::read(&[Linkable { path: path.to_owned(), label, archive: true }], rules)
}

/// An error in this linker's own words.
fn refused(messages: String) -> BuildError {
    BuildError::Link { linker: VERSION.to_owned(), messages }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use farjump_core::image::Machine;
    use farjump_tools::Tool;
    use proptest::prelude::*;

    use super::*;

    const SOURCE: &str = "extern int imported(int); static int kept[4] = { 1, 2 }; int zeroes[9];\n\
        static const char *const words[] = { \"one\", \"two\" };\n\
        __attribute__((noinline)) static int helper(int n) { return n > 3 ? imported(n) : kept[n]++; }\n\
        void t_main(void *p, unsigned long n, int *a) { (void)p; zeroes[n % 9]++; *a = helper(*a) + words[n & 1][0]; }\n";

    /// Objects for each machine that a compiler here compiles for.
    fn compiled() -> Vec<(&'static Rules, Vec<u8>)> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("t.c"), SOURCE).unwrap();
        let compilers = [
            ("cc", Rules::native().unwrap().machine),
            ("aarch64-linux-gnu-gcc", Machine::AARCH64),
            ("riscv64-linux-gnu-gcc", Machine::RISCV),
        ];
        let compiled = compilers.into_iter().filter_map(|(compiler, machine)| {
            let arguments = ["-c", "-O2", "-g", "-fPIC", "-ffunction-sections", "t.c", "-o", "t.o"];
            let compiler = Tool::tried(compiler);
            let compiler = compiler.inspect_err(|why| println!("skipped for {machine}: {why}")).ok()?;
            let ended = compiler.command().args(arguments).current_dir(folder.path()).output().unwrap();
            assert!(ended.status.success(), "{compiler:?}: {}", String::from_utf8_lossy(&ended.stderr));
            Some((Rules::of(machine).unwrap(), fs::read(folder.path().join("t.o")).unwrap()))
        });
        compiled.collect()
    }

    fn linked(rules: &Rules, object: &[u8]) -> Result<Vec<u8>, BuildError> {
        let folder = tempfile::tempdir().unwrap();
        let file = Linkable { path: folder.path().join("t.o"), label: "t.o".into(), archive: false };
        fs::write(&file.path, object).unwrap();
        let objects = Objects::read(std::slice::from_ref(&file), rules)?;
        let (files, folder) = (&[file][..], folder.path());
        link(&Inputs { files, objects: &objects, name: "t", runtime: None, rules, folder }, true)
    }

    /// The linker does not trust the contents of objects: it links or refuses them, and nothing else happens.
    #[test]
    fn damaged_objects_are_linked_or_refused() {
        let compiled = compiled();
        for (rules, object) in &compiled {
            linked(rules, object).unwrap_or_else(|error| panic!("{}: {error}", rules.machine));
        }
        let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4);
        let cases = (0..compiled.len(), changes);
        let refused = std::cell::Cell::new(0);
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(1500));
        let linked_all = runner.run(&cases, |(which, changes)| {
            let (rules, mut object) = compiled[which].clone();
            for (at, byte) in changes {
                let at = at.index(object.len());
                object[at] = byte;
            }
            refused.set(refused.get() + usize::from(linked(rules, &object).is_err()));
            Ok(())
        });
        linked_all.unwrap_or_else(|error| panic!("{error}"));
        assert!((100..1400).contains(&refused.get()), "{} of 1500 were refused", refused.get());
    }
}
