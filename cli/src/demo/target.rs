//! The demo's other process: a target that maps a file and has no functions, started by `demo`.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::child::NOT_READY;
use farjump::config::TargetConfig;
use farjump::{Data, Stopper, Target, end_process};

use farjump_cli::program::config_arguments::ConfigArguments;
use farjump_cli::program::failure::Failure;
use farjump_cli::program::link_options::QueryOptions;

/// Longest time for a running function to continue after the end of the demo.
const GRACE: Duration = Duration::from_secs(2);

/// The process that `demo` injects into. Standard input is its socket to the demo.
#[derive(Args, Debug)]
pub(crate) struct DemoTarget {
    /// The address to listen at
    #[arg(long)]
    pub(crate) listen: String,
    /// The file to map
    #[arg(long)]
    pub(crate) data: PathBuf,
    /// The demo's folder, to be removed at the end
    #[arg(long)]
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    options: ConfigArguments<TargetConfig, QueryOptions>,
}

/// Serves until the socket on standard input ends. It ends with the demo, whatever the cause.
pub(crate) fn run(arguments: &DemoTarget) -> Result<(), Failure> {
    let failed = |error| Failure::new(format!("the demo's target cannot start: {error}"));
    let stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let reasons = stream.try_clone().map_err(failed)?;
    let served = serve(arguments, stream);
    if let Err(failure) = &served
        && send_head(&reasons, NOT_READY, &failure.to_string()).is_ok()
    {
        // The demo reports the failure.
        remove(&arguments.folder);
        end_process(1);
    }
    served
}

/// Serves with the demo at the other end of `stream`.
///
/// # Errors
/// The target cannot start, or has failed.
fn serve(arguments: &DemoTarget, stream: UnixStream) -> Result<(), Failure> {
    let failed = |error| Failure::new(format!("the demo's target cannot start: {error}"));
    let mut data = Data::open(&arguments.data)?;
    let (file, len) = (File::open(&arguments.data).map_err(failed)?, data.len() as u64);
    let options = arguments.options.resolve()?;
    let builder = Target::listen(&arguments.listen).args(&mut data).config(options.config);
    let mut target = builder.build()?;
    let (stopper, folder, address) = (target.stopper(), arguments.folder.clone(), target.address());
    std::thread::Builder::new()
        .name("farjump-demo-file".into())
        .spawn(move || {
            // The end of the stream is the end of the demo; its cause does not matter.
            let _ = send_file(stream, &address, &file, len);
            end(&stopper, &folder);
        })
        .map_err(failed)?;
    target.run()?;
    drop(target);
    remove(&arguments.folder);
    Ok(())
}

/// Sends the length of the file and the target's address, then the file once for each byte received. Ends when
/// the file has become shorter.
fn send_file(mut stream: UnixStream, address: &str, mut file: &File, len: u64) -> std::io::Result<()> {
    send_head(&stream, len, address)?;
    let mut request = [0];
    while stream.read(&mut request)? != 0 {
        file.rewind()?;
        // Copied by the system, by sendfile(2): no part of the file is in memory of this process.
        if std::io::copy(&mut file.take(len), &mut stream)? != len {
            break;
        }
    }
    Ok(())
}

/// Sends a length and a text.
fn send_head(mut stream: &UnixStream, len: u64, text: &str) -> std::io::Result<()> {
    // An address holds a name or a path, and a reason is a sentence: both are far shorter than that.
    let text_len = u16::try_from(text.len()).map_err(std::io::Error::other)?;
    stream.write_all(&len.to_le_bytes())?;
    stream.write_all(&text_len.to_le_bytes())?;
    stream.write_all(text.as_bytes())
}

/// Stops the target; ends the process if the target does not stop.
fn end(stopper: &Stopper, folder: &Path) {
    stopper.stop();
    std::thread::sleep(GRACE);
    remove(folder);
    end_process(1);
}

/// Removes the folder of a demo that was killed. A demo that ends by itself has removed it.
fn remove(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
}
