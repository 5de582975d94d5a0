//! A link on which a command only looks at the target.

use std::time::Duration;

use farjump::Link;

use crate::environment::TRANSPORT;

use farjump_benches::program::failure::Failure;
use farjump_benches::program::link_options::{Clear, KeyFile, UcxTcp};

/// The options of such a command that concern the link.
pub(crate) struct QueryLink<'a> {
    /// The command, as the target shows it.
    pub(crate) program: &'a str,
    /// The transport. `None`: that of the environment, or the best that both have.
    pub(crate) transport: Option<&'a str>,
    pub(crate) timeout: Duration,
    pub(crate) key: &'a KeyFile,
    pub(crate) clear: &'a Clear,
    pub(crate) ucx: &'a UcxTcp,
}

impl QueryLink<'_> {
    /// Connects to the target at `address`.
    ///
    /// # Errors
    /// A key that cannot be read, or no link.
    pub(crate) fn connect(&self, address: &str) -> Result<Link, Failure> {
        let mut builder = Link::builder(address)
            .program(self.program)
            .connect_timeout(self.timeout)
            .ucx_tcp(self.ucx.tcp)
            .clear(self.clear.clear);
        // Such a command does not always connect. Without a link the variable has no meaning, so the options do not
        // read it.
        let transport = self.transport.map(str::to_owned).or_else(|| std::env::var(TRANSPORT).ok());
        if let Some(transport) = &transport {
            builder = builder.transport(transport);
        }
        if let Some(key) = self.key.read([address])? {
            builder = builder.key(key);
        }
        Ok(builder.connect()?)
    }
}
