//! Refusals before a link, by the objects alone, of features that linkers treat in different ways.

use object::elf;
use object::read::elf::{SectionHeader, Sym};

use crate::error::BuildError;
use crate::objects::{Elf, LITTLE, Objects, linked, section_name, symbol_name};

/// The section that states the kind of stack that an object needs.
const STACK: &str = ".note.GNU-stack";
/// Beginnings of the names by which linkers mark the start and the end of a section.
const BOUNDS: [&str; 2] = ["__start_", "__stop_"];

impl Objects {
    /// Checks the objects that `routines`, of which `main` is one, take into the image and the library.
    ///
    /// # Errors
    /// An object that requests an executable stack, which farjump's links leave out; code that `main` reaches and that
    /// uses the bounds of a section, which only GNU ld knows.
    pub(crate) fn check(&self, main: &str, routines: &[String]) -> Result<(), BuildError> {
        let parsed: Vec<_> = self.parsed().collect();
        let roots = routines.iter().map(String::as_str).chain([main]);
        for index in roots.flat_map(|root| linked(&parsed, root)) {
            let (member, elf) = &parsed[index];
            if needs_executable_stack(elf) {
                return Err(BuildError::ExecutableStack { object: member.label().to_owned() });
            }
        }
        let is_bound = |name: &str| BOUNDS.iter().any(|start| name.starts_with(start));
        let defined = |name: &str| {
            let mut symbols = parsed.iter().flat_map(|(_, elf)| {
                elf.elf_symbol_table()
                    .iter()
                    .filter(|symbol| !symbol.is_undefined(LITTLE))
                    .map(move |symbol| (elf, symbol))
            });
            symbols.any(|(elf, symbol)| symbol_name(elf, symbol) == name)
        };
        // The walk over reachable code costs more than this check.
        let asks = |(_, elf): &(_, Elf<'_>)| {
            let mut symbols = elf.elf_symbol_table().iter();
            symbols.any(|symbol| symbol.is_undefined(LITTLE) && is_bound(&symbol_name(elf, symbol)))
        };
        if !parsed.iter().any(asks) {
            return Ok(());
        }
        let asked = self.uses(main).into_iter().filter(|it| is_bound(&it.symbol) && !defined(&it.symbol));
        // The start before the stop, in whatever order a compiler uses them.
        match asked.min_by(|one, other| one.symbol.cmp(&other.symbol)) {
            Some(found) => Err(BuildError::SectionBounds { site: found.site, symbol: found.symbol }),
            None => Ok(()),
        }
    }
}

/// Returns whether an object requests an executable stack. An object without the section does not: assemblers add none
/// by themselves.
fn needs_executable_stack(elf: &Elf<'_>) -> bool {
    elf.elf_section_table().enumerate().any(|(index, header)| {
        header.sh_flags(LITTLE).contains(elf::SHF_EXECINSTR) && section_name(elf, index) == STACK
    })
}
