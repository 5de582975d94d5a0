//! The names that a loaded library defines, read from the tables that the dynamic linker uses.
//!
//! Every loaded library has these tables in memory, even without section headers, loaded from bytes, or after its file
//! was replaced.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::ops::Range;

use object::elf::{self, DynamicTag};
use object::pod::Pod;
use object::{LittleEndian, U32};

/// The memory of a library that is loaded at least for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct LoadedTables<'a> {
    bias: usize,
    /// Address of its dynamic section.
    dynamic: usize,
    /// The addresses of its loaded segments.
    segments: &'a [Range<usize>],
}

impl<'a> LoadedTables<'a> {
    /// For a library that was loaded with this load bias.
    ///
    /// # Safety
    /// The library must stay loaded for `'a`. The `segments` must be those of the library, mapped and readable. Nothing
    /// may write to its dynamic section, or to its tables of symbols, names and hashes, for `'a`.
    pub(crate) unsafe fn new(bias: usize, dynamic: usize, segments: &'a [Range<usize>]) -> LoadedTables<'a> {
        LoadedTables { bias, dynamic, segments }
    }

    /// The names of the symbols that the library defines for others, as far as its tables are sound. Names
    /// that are not UTF-8 are left out: no import has such a name.
    pub(crate) fn defined_names(&self) -> BTreeSet<&'a str> {
        self.symbols_and_names().map_or_else(BTreeSet::new, |(symbols, names)| {
            let defined = symbols.iter().filter(|symbol| symbol.st_shndx.get(LittleEndian) != elf::SHN_UNDEF);
            let names = defined.filter_map(|symbol| {
                let name = names.get(symbol.st_name.get(LittleEndian) as usize..)?;
                CStr::from_bytes_until_nul(name).ok()?.to_str().ok()
            });
            names.filter(|name| !name.is_empty()).collect()
        })
    }

    fn symbols_and_names(&self) -> Option<(&'a [elf::Sym64<LittleEndian>], &'a [u8])> {
        let names = self.slice(self.table(elf::DT_STRTAB)?, self.value(elf::DT_STRSZ)?)?;
        let symbols = self.slice(self.table(elf::DT_SYMTAB)?, self.symbol_count()?)?;
        Some((symbols, names))
    }

    /// Number of dynamic symbols, which only the hash tables state.
    fn symbol_count(&self) -> Option<usize> {
        if let Some(at) = self.table(elf::DT_HASH) {
            let header = self.slice::<elf::HashHeader<LittleEndian>>(at, 1)?;
            return Some(header[0].chain_count.get(LittleEndian) as usize);
        }
        let at = self.table(elf::DT_GNU_HASH)?;
        let header = self.slice::<elf::GnuHashHeader<LittleEndian>>(at, 1)?[0];
        let [base, bloom, buckets] = [header.symbol_base, header.bloom_count, header.bucket_count]
            .map(|value| value.get(LittleEndian) as usize);
        let buckets_at = at + size_of::<elf::GnuHashHeader<LittleEndian>>() + bloom * size_of::<u64>();
        let first_of_each: &[U32<LittleEndian>] = self.slice(buckets_at, buckets)?;
        let last_chain = first_of_each.iter().map(|first| first.get(LittleEndian) as usize).max()?;
        if last_chain < base {
            // No symbol is hashed, so none is defined.
            return Some(base);
        }
        let chains_at = buckets_at + size_of_val(first_of_each);
        let mut index = last_chain;
        loop {
            let hash: &[U32<LittleEndian>] = self.slice(chains_at + (index - base) * size_of::<u32>(), 1)?;
            index += 1;
            // The lowest bit marks the end of a chain.
            if hash[0].get(LittleEndian) & 1 == 1 {
                return Some(index);
            }
        }
    }

    /// Address of the table with this tag. Some C libraries relocate the address in the dynamic section, and others
    /// leave it unchanged.
    fn table(&self, tag: DynamicTag) -> Option<usize> {
        let value = self.value(tag)?;
        let is_relocated = self.segments.iter().any(|segment| segment.contains(&value));
        Some(if is_relocated { value } else { value.wrapping_add(self.bias) })
    }

    fn value(&self, tag: DynamicTag) -> Option<usize> {
        let mut at = self.dynamic;
        loop {
            let entry = self.slice::<elf::Dyn64<LittleEndian>>(at, 1)?[0];
            match entry.d_tag.get(LittleEndian) {
                elf::DT_NULL => return None,
                found if found == tag => return Some(entry.d_val.get(LittleEndian) as usize),
                _ => at += size_of_val(&entry),
            }
        }
    }

    /// `count` values at this address, if they lie in one loaded segment.
    fn slice<T: Pod>(&self, address: usize, count: usize) -> Option<&'a [T]> {
        let end = address.checked_add(count.checked_mul(size_of::<T>())?)?;
        let is_inside = self.segments.iter().any(|segment| segment.start <= address && end <= segment.end);
        let start = std::ptr::with_exposed_provenance::<T>(address);
        // SAFETY: the values lie in a mapped segment, which stays mapped and which nothing writes there
        // (`LoadedTables::new`); the address is aligned, and every byte pattern is a value of a `Pod`.
        (is_inside && start.is_aligned()).then(|| unsafe { std::slice::from_raw_parts(start, count) })
    }
}
