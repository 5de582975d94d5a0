//! Checks and edits the bytes of a shared library that the dynamic linker follows.
//!
//! The dynamic linker maps what the program headers claim and reads there without a check: missing bytes of the file
//! cause a fault of the process. So the loader checks a copy against its own length before it loads the copy.

use std::ops::Range;

use rustix::param::page_size;

/// Alignment of an added segment in the file and in memory: the largest page on the machines that farjump
/// supports.
const PAGE: u64 = 64 << 10;
const HEADER: u64 = 64;
const PROGRAM_HEADER: u64 = 56;
/// Addresses from here on do not belong to processes.
const TOP: u64 = 1 << 47;

// Types of segments (elf.h).
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const PT_PHDR: u32 = 6;
const PT_TLS: u32 = 7;
const PT_GNU_STACK: u32 = 0x6474_e551;
const PT_GNU_RELRO: u32 = 0x6474_e552;
const PT_GNU_PROPERTY: u32 = 0x6474_e553;
/// A flag of segments: their contents may be executed.
const PF_X: u32 = 1;

// Tags of the dynamic section (elf.h).
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
const DT_VERNEED: u64 = 0x6fff_fffe;
const DT_VERNEEDNUM: u64 = 0x6fff_ffff;
/// Tags whose values are addresses that the dynamic linker reads: hash tables, strings, symbols, relocations,
/// constructors and versions.
const ADDRESSES: [u64; 12] = [4, DT_STRTAB, 6, 7, 17, 23, 25, 26, 36, 0x6fff_fef5, 0x6fff_fff0, DT_VERNEED];
/// Pairs of tags: of an address, and of the length in bytes of the table there.
const TABLES: [(u64, u64); 6] = [(DT_STRTAB, DT_STRSZ), (7, 8), (23, 2), (25, 27), (26, 28), (36, 35)];

#[derive(Clone, Copy, Debug)]
struct Segment {
    kind: u32,
    is_executable: bool,
    offset: u64,
    address: u64,
    file_len: u64,
    len: u64,
    align: u64,
}

impl Segment {
    fn backed(&self) -> Range<u64> {
        self.address..self.address + self.file_len
    }

    fn memory(&self) -> Range<u64> {
        self.address..self.address + self.len
    }
}

/// A checked shared library.
#[derive(Debug)]
pub(crate) struct Object {
    bytes: Vec<u8>,
    segments: Vec<Segment>,
    /// Offset in the file of each entry of the dynamic section, with tag and value.
    dynamic: Vec<(u64, u64, u64)>,
}

fn u16_at(bytes: &[u8], at: u64) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(usize::try_from(at).ok()?..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: u64) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(usize::try_from(at).ok()?..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: u64) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(usize::try_from(at).ok()?..)?.first_chunk()?))
}

fn cut_short(part: &str, end: u64, len: usize) -> String {
    format!("it is cut short: its {part} reach to byte {end}, and it has {len} bytes; build or copy it again")
}

/// Checks that a 64-bit little-endian ELF file has all bytes that its headers claim.
///
/// # Errors
/// The problem, with `it` for the file.
pub(crate) fn check_complete(bytes: &[u8]) -> Result<(), String> {
    segments(bytes).map(drop)
}

/// Checks that loading the library does not make the stacks of the process executable.
///
/// # Errors
/// The library requests an executable stack: a sentence, with `it` for the library.
pub(crate) fn check_stack(bytes: &[u8]) -> Result<(), String> {
    match segments(bytes)?.iter().any(|segment| segment.kind == PT_GNU_STACK && segment.is_executable) {
        false => Ok(()),
        true => Err("it asks for an executable stack, which would make the stacks of this process executable: link it with \
                     -Wl,-z,noexecstack, of objects that need none"
            .to_owned()),
    }
}

/// The program headers of a file that has all bytes they claim.
fn segments(bytes: &[u8]) -> Result<Vec<Segment>, String> {
    let len = bytes.len();
    if (len as u64) < HEADER {
        return Err(cut_short("header", HEADER, len));
    }
    let long = |at| u64_at(bytes, at).unwrap_or_default();
    let short = |at| u64::from(u16_at(bytes, at).unwrap_or_default());
    let (start, entry, count) = (long(32), short(54), short(56));
    if count == 0 || entry != PROGRAM_HEADER {
        return Err(format!("it is damaged: it has {count} program headers of {entry} bytes"));
    }
    let end = start.saturating_add(count * PROGRAM_HEADER);
    if end > len as u64 {
        return Err(cut_short("program headers", end, len));
    }
    let mut segments = Vec::with_capacity(count as usize);
    for index in 0..count {
        let at = start + index * PROGRAM_HEADER;
        let segment = Segment {
            kind: u32_at(bytes, at).unwrap_or_default(),
            is_executable: u32_at(bytes, at + 4).unwrap_or_default() & PF_X != 0,
            offset: long(at + 8),
            address: long(at + 16),
            file_len: long(at + 32),
            len: long(at + 40),
            align: long(at + 48),
        };
        let end = segment.offset.saturating_add(segment.file_len);
        if segment.file_len > 0 && end > len as u64 {
            return Err(cut_short("segments", end, len));
        }
        segments.push(segment);
    }
    let (start, entry, count) = (long(40), short(58), short(60));
    let end = start.saturating_add(count * entry);
    if start != 0 && end > len as u64 {
        return Err(cut_short("section headers", end, len));
    }
    Ok(segments)
}

impl Object {
    /// Checks a shared library of this machine: it has all bytes that its headers claim, and the dynamic
    /// linker's tables lie in its segments.
    ///
    /// # Errors
    /// The problem, with `it` for the library.
    pub(crate) fn check(bytes: Vec<u8>) -> Result<Object, String> {
        let segments = segments(&bytes)?;
        check_stack(&bytes)?;
        let damaged = |problem: &str| format!("it is damaged: {problem}; build or copy it again");
        let mut end = 0;
        for segment in segments.iter().filter(|segment| segment.kind == PT_LOAD) {
            let top = segment.address.checked_add(segment.len).filter(|&top| top < TOP);
            let (Some(top), true) = (top, segment.address >= end && segment.len >= segment.file_len) else {
                return Err(damaged("its segments overlap, or lie at no address"));
            };
            if !segment.align.max(1).is_power_of_two()
                || !(segment.address ^ segment.offset).is_multiple_of(page_size() as u64)
            {
                return Err(damaged("its segments cannot be mapped"));
            }
            end = top;
        }
        if end == 0 {
            return Err(damaged("no segment is to be loaded"));
        }
        let mut object = Object { bytes, segments, dynamic: Vec::new() };
        for segment in &object.segments {
            let backed = matches!(segment.kind, PT_DYNAMIC | PT_NOTE | PT_PHDR | PT_TLS | PT_GNU_PROPERTY);
            if backed && segment.file_len > 0 && object.at(segment.address, segment.file_len).is_none() {
                return Err(damaged("a program header is for bytes of no loaded segment"));
            }
            if segment.kind == PT_GNU_RELRO && !object.is_in_pages(segment) {
                return Err(damaged("a program header is for bytes of no loaded segment"));
            }
        }
        let mut dynamic = object.segments.iter().filter(|segment| segment.kind == PT_DYNAMIC);
        let (Some(only), None) = (dynamic.next(), dynamic.next()) else {
            return Err(damaged("it has not one dynamic section"));
        };
        let start =
            object.at(only.address, only.file_len).ok_or_else(|| damaged("it has no dynamic section"))?;
        object.dynamic = (start..start + only.file_len)
            .step_by(16)
            .map_while(|at| Some((at, u64_at(&object.bytes, at)?, u64_at(&object.bytes, at + 8)?)))
            .take_while(|&(_, tag, _)| tag != 0)
            .collect();
        if (object.dynamic.len() as u64 + 1) * 16 > only.file_len {
            return Err(damaged("its dynamic section has no end"));
        }
        for &(_, tag, value) in &object.dynamic {
            if ADDRESSES.contains(&tag) && !object.is_loaded(value, 1) {
                return Err(damaged("its dynamic section leads to bytes of no loaded segment"));
            }
        }
        for (table, len) in TABLES {
            if let (Some(start), Some(len)) = (object.value(table), object.value(len))
                && len > 0
                && !object.is_loaded(start, len)
            {
                return Err(damaged("its dynamic section leads to bytes of no loaded segment"));
            }
        }
        if object.strings().is_none() {
            return Err(damaged("it has no dynamic strings"));
        }
        Ok(object)
    }

    /// The bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The names of the libraries that it needs, in order.
    pub(crate) fn needed(&self) -> Vec<String> {
        self.strings_of(DT_NEEDED).collect()
    }

    /// Its RUNPATH.
    pub(crate) fn runpath(&self) -> Option<String> {
        self.strings_of(DT_RUNPATH).next()
    }

    /// Its RPATH, which counts only without a RUNPATH.
    pub(crate) fn rpath(&self) -> Option<String> {
        self.strings_of(DT_RPATH).next()
    }

    /// Replaces names of needed libraries, also in the list of required versions, and the lists of folders to search,
    /// by `replace`. Leaves the bytes unchanged if it replaces nothing.
    pub(crate) fn replace_strings(&mut self, replace: impl Fn(Role, &str) -> Option<Vec<u8>>) {
        let mut strings = self.strings().unwrap_or_default().to_vec();
        let before = strings.len();
        let mut edits: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut renamed: Vec<(String, u32)> = Vec::new();
        for &(at, tag, value) in &self.dynamic {
            let role = match tag {
                DT_NEEDED => Role::Needed,
                DT_RPATH | DT_RUNPATH => Role::Folders,
                _ => continue,
            };
            let Some(old) = self.string(value) else { continue };
            let Some(new) = replace(role, &old) else { continue };
            let offset = strings.len() as u64;
            strings.extend_from_slice(&new);
            strings.push(0);
            edits.push((at + 8, offset.to_le_bytes().to_vec()));
            if role == Role::Needed {
                renamed.push((old, offset as u32));
            }
        }
        if strings.len() == before {
            return;
        }
        for at in self.version_files() {
            let name = u32_at(&self.bytes, at).and_then(|value| self.string(value.into()));
            if let Some((_, offset)) = renamed.iter().find(|(old, _)| Some(old) == name.as_ref()) {
                edits.push((at, offset.to_le_bytes().to_vec()));
            }
        }
        let added = self.add_segment(&strings);
        for &(at, tag, _) in &self.dynamic {
            match tag {
                DT_STRTAB => edits.push((at + 8, added.to_le_bytes().to_vec())),
                DT_STRSZ => edits.push((at + 8, (strings.len() as u64).to_le_bytes().to_vec())),
                _ => {}
            }
        }
        for (at, bytes) in edits {
            self.write(at, &bytes);
        }
    }

    /// Adds a segment with `contents`, and with the program headers, which gain an entry for it. Returns the address of
    /// the contents.
    fn add_segment(&mut self, contents: &[u8]) -> u64 {
        let loaded = self.segments.iter().filter(|segment| segment.kind == PT_LOAD);
        let top = loaded.map(|segment| segment.memory().end).max().unwrap_or_default();
        let address = top.next_multiple_of(PAGE);
        let offset = (self.bytes.len() as u64).next_multiple_of(PAGE);
        let old = u64_at(&self.bytes, 32).unwrap_or_default();
        let count = self.segments.len() as u64;
        let headers = (count + 1) * PROGRAM_HEADER;
        let len = headers + contents.len() as u64;
        let added =
            Segment { kind: PT_LOAD, is_executable: false, offset, address, file_len: len, len, align: PAGE };
        // Segments to load are in the order of their addresses: this one is the last.
        let last = self.segments.iter().rposition(|segment| segment.kind == PT_LOAD).map_or(0, |at| at + 1);
        let (from, split) = (old as usize, (old + last as u64 * PROGRAM_HEADER) as usize);
        let mut table = self.bytes[from..split].to_vec();
        table.extend_from_slice(&PT_LOAD.to_le_bytes());
        // Readable.
        table.extend_from_slice(&4_u32.to_le_bytes());
        for word in [offset, address, address, len, len, PAGE] {
            table.extend_from_slice(&word.to_le_bytes());
        }
        table.extend_from_slice(&self.bytes[split..(old + count * PROGRAM_HEADER) as usize]);
        self.segments.insert(last, added);
        for (index, segment) in self.segments.iter().enumerate() {
            if segment.kind == PT_PHDR {
                for (word, value) in [(8, offset), (16, address), (24, address), (32, headers), (40, headers)]
                {
                    let at = index * PROGRAM_HEADER as usize + word;
                    table[at..at + 8].copy_from_slice(&value.to_le_bytes());
                }
            }
        }
        self.bytes.resize(offset as usize, 0);
        self.bytes.extend_from_slice(&table);
        self.bytes.extend_from_slice(contents);
        self.write(32, &offset.to_le_bytes());
        self.write(56, &(count as u16 + 1).to_le_bytes());
        address + headers
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        let at = at as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Offset in the file of `len` bytes at this address, which the file has.
    fn at(&self, address: u64, len: u64) -> Option<u64> {
        let end = address.checked_add(len)?;
        let holds = |segment: &&Segment| {
            segment.kind == PT_LOAD && segment.backed().start <= address && end <= segment.backed().end
        };
        self.segments.iter().find(holds).map(|segment| segment.offset + (address - segment.address))
    }

    /// Returns whether `len` bytes at this address are in one loaded segment.
    fn is_loaded(&self, address: u64, len: u64) -> bool {
        let Some(end) = address.checked_add(len) else { return false };
        let holds = |segment: &Segment| segment.memory().start <= address && end <= segment.memory().end;
        self.segments.iter().any(|segment| segment.kind == PT_LOAD && holds(segment))
    }

    /// Returns whether this range, which the dynamic linker makes read-only, is in one loaded segment or in the rest of
    /// its last page.
    fn is_in_pages(&self, range: &Segment) -> bool {
        let Some(end) = range.address.checked_add(range.len) else { return false };
        let holds = |segment: &Segment| {
            segment.memory().contains(&range.address)
                && end <= segment.memory().end.next_multiple_of(page_size() as u64)
        };
        self.segments.iter().any(|segment| segment.kind == PT_LOAD && holds(segment))
    }

    fn value(&self, tag: u64) -> Option<u64> {
        self.dynamic.iter().find(|(_, other, _)| *other == tag).map(|(_, _, value)| *value)
    }

    fn strings(&self) -> Option<&[u8]> {
        let (start, len) = (self.value(DT_STRTAB)?, self.value(DT_STRSZ)?);
        let at = self.at(start, len)? as usize;
        self.bytes.get(at..at + len as usize)
    }

    fn string(&self, offset: u64) -> Option<String> {
        let rest = self.strings()?.get(usize::try_from(offset).ok()?..)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        Some(std::str::from_utf8(&rest[..end]).ok()?.to_owned())
    }

    fn strings_of(&self, tag: u64) -> impl Iterator<Item = String> {
        let entries = self.dynamic.iter().filter(move |(_, other, _)| *other == tag);
        entries.filter_map(|&(_, _, value)| self.string(value))
    }

    /// Offsets in the file of the library names in the object's list of required versions.
    fn version_files(&self) -> Vec<u64> {
        let (Some(mut address), Some(count)) = (self.value(DT_VERNEED), self.value(DT_VERNEEDNUM)) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for _ in 0..count {
            let Some(at) = self.at(address, 16) else { break };
            found.push(at + 4);
            match u32_at(&self.bytes, at + 12) {
                Some(next) if next > 0 => address = address.saturating_add(next.into()),
                _ => break,
            }
        }
        found
    }
}

/// A string of the dynamic section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// The name of a needed library.
    Needed,
    /// The folders to search for needed libraries.
    Folders,
}
