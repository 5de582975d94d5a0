//! The parts of a kernel's package that a machine needs: the kernel itself, unpacked, and the modules for
//! Soft-RoCE in loading order.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::debian::Kernel;
use crate::process::{Failed, Interrupt, Run};

/// Modules that are loaded, after their dependencies; built-in ones are missing. rdma_rxe requests crc32 by name when
/// a device is made, which no module's list shows.
const MODULES: [&str; 7] =
    ["virtio_pci", "virtio_net", "dummy", "veth", "crc32_generic", "crc32_pclmul", "rdma_rxe"];

/// Compressions of kernels and modules: the first bytes, and the program that decompresses.
const COMPRESSIONS: [(&[u8], &[&str]); 2] =
    [(b"\xfd7zXZ\0", &["xz", "-dc", "--single-stream"]), (b"\x28\xb5\x2f\xfd", &["zstd", "-dcq"])];

/// A module: its file's name without compression, and its contents.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
}

impl Kernel {
    /// Writes the kernel to `into` as an ELF file, which QEMU boots at once: self-extraction would cost it seconds.
    ///
    /// # Errors
    /// When its compression is unknown, or the file cannot be written.
    pub(super) fn unpack(&self, into: &Path, interrupt: &Interrupt) -> Result<(), Failed> {
        let path = self.file();
        let packed = read(&path)?;
        for (magic, program) in COMPRESSIONS {
            let begins = packed.windows(magic.len()).enumerate().filter(|(_, bytes)| bytes == &magic);
            for (begin, _) in begins {
                let unpacked = unpack(&packed[begin..], program, interrupt)?;
                if unpacked.starts_with(b"\x7fELF") {
                    return write(into, &unpacked);
                }
            }
        }
        Err(Failed::Because(format!("{} is packed neither by xz nor by zstd", path.display())))
    }

    /// The modules in loading order.
    ///
    /// # Errors
    /// When a requested module is missing, or cannot be read.
    pub(super) fn modules(&self, interrupt: &Interrupt) -> Result<Vec<Module>, Failed> {
        let folder = self.root.join("lib/modules").join(&self.release);
        let folder = if folder.is_dir() {
            folder
        } else {
            self.root.join("usr").join("lib/modules").join(&self.release)
        };
        let built_in = String::from_utf8_lossy(&read(&folder.join("modules.builtin"))?).into_owned();
        let mut files = HashMap::new();
        find(&folder.join("kernel"), &mut files)?;
        let mut order = Order { files, interrupt, known: Vec::new(), modules: Vec::new() };
        for name in MODULES {
            let is_built_in =
                built_in.lines().any(|line| module_of(Path::new(line)).as_deref() == Some(name));
            if !is_built_in {
                order.add(name)?;
            }
        }
        Ok(order.modules)
    }
}

/// Modules while they are put in order.
struct Order<'i> {
    files: HashMap<String, PathBuf>,
    interrupt: &'i Interrupt,
    known: Vec<String>,
    modules: Vec<Module>,
}

impl Order<'_> {
    /// Adds a module after its dependencies.
    fn add(&mut self, name: &str) -> Result<(), Failed> {
        if self.known.iter().any(|known| known == name) {
            return Ok(());
        }
        self.known.push(name.to_owned());
        let Some(path) = self.files.get(name) else {
            return Err(Failed::Because(format!("the kernel's package has no module {name}")));
        };
        let packed = read(path)?;
        let program = COMPRESSIONS.iter().find(|(magic, _)| packed.starts_with(magic));
        let bytes = match program {
            Some((_, program)) => unpack(&packed, program, self.interrupt)?,
            None => packed,
        };
        if !bytes.starts_with(b"\x7fELF") {
            return Err(Failed::Because(format!("{} is no module", path.display())));
        }
        for needed in depends(&bytes) {
            self.add(&needed)?;
        }
        self.modules.push(Module { name: format!("{name}.ko"), bytes });
        Ok(())
    }
}

/// A module's declared dependencies: `depends=a,b` in a text of its own.
fn depends(module: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(at) = module.windows(key.len()).position(|bytes| bytes == key) else { return Vec::new() };
    let list = module[at + key.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(list);
    names.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

/// The name of the module in this file, if there is one.
fn module_of(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let (name, rest) = file.split_once(".ko")?;
    matches!(rest, "" | ".xz" | ".zst").then(|| name.replace('-', "_"))
}

/// Records the files of all modules below `folder`.
fn find(folder: &Path, files: &mut HashMap<String, PathBuf>) -> Result<(), Failed> {
    let failed = |error| Failed::Because(format!("{}: {error}", folder.display()));
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            find(&path, files)?;
        } else if let Some(name) = module_of(&path) {
            files.insert(name, path);
        }
    }
    Ok(())
}

/// The output of `program` for these bytes. The program complains of bytes behind the packed part, which does not
/// matter.
fn unpack(packed: &[u8], program: &[&str], interrupt: &Interrupt) -> Result<Vec<u8>, Failed> {
    let folder =
        tempfile::tempdir().map_err(|error| Failed::Because(format!("a temporary folder: {error}")))?;
    let (from, into) = (folder.path().join("packed"), folder.path().join("unpacked"));
    write(&from, packed)?;
    let line = format!("{} <packed >unpacked 2>/dev/null", program.join(" "));
    // The program writes its result, and then complains: its status has no meaning.
    Run::new("sh", interrupt).args(["-c", &line]).directory(folder.path()).quiet().run()?;
    read(&into)
}

fn read(path: &Path) -> Result<Vec<u8>, Failed> {
    fs::read(path).map_err(|error| Failed::Because(format!("{}: {error}", path.display())))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failed> {
    fs::write(path, bytes).map_err(|error| Failed::Because(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_from_a_kernel_module() {
        let module = b"\x7fELF..\0license=GPL\0depends=ib_core,udp-tunnel\0retpoline=Y\0";
        assert_eq!(depends(module), ["ib_core", "udp_tunnel"]);
        assert!(depends(b"\x7fELF..\0depends=\0name=x\0").is_empty());
        assert!(depends(b"\x7fELF").is_empty());
    }

    #[test]
    fn modules_are_known_by_names_with_underscores_however_they_are_packed() {
        for file in ["crc32-pclmul.ko", "crc32_pclmul.ko.xz", "a/crc32-pclmul.ko.zst"] {
            assert_eq!(module_of(Path::new(file)).as_deref(), Some("crc32_pclmul"));
        }
        assert_eq!(module_of(Path::new("modules.dep")), None);
        assert_eq!(module_of(Path::new("x.ko.debug")), None);
    }
}
