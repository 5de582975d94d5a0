//! A link on which a command only looks at the target.

use std::time::Duration;

use farjump::Link;
use farjump::config::LinkConfig;

use crate::program::config_arguments::Resolved;
use crate::program::failure::Failure;

/// Connects to the target at `address`, which sees `program` as the name of this process.
///
/// # Errors
/// A key that cannot be read, or no link.
pub fn connect(
    mut options: Resolved<LinkConfig>,
    program: &str,
    timeout: Duration,
    address: &str,
) -> Result<Link, Failure> {
    (options.config.program, options.config.connect_timeout) = (Some(program.to_owned()), timeout);
    let connected = Link::builder(address).config(options.config.clone()).connect();
    connected.map_err(|error| options.failure(error))
}
