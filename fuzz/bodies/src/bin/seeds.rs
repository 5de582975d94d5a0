//! Writes the seeds into `fuzz/corpus`. Other files there stay.

use std::fs;
use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    for (target, seeds) in farjump_fuzz::seeds::seeds() {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder)?;
        for (name, bytes) in seeds {
            fs::write(folder.join(name), bytes)?;
        }
    }
    Ok(())
}
