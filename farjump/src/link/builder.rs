//! A source's choices before it connects.

use farjump_control::{Key, PeerAddress, TcpOptions};
use farjump_core::transport::Transport;
use farjump_transports::BackendOptions;

#[cfg(feature = "build")]
use super::exact::PeerCompiler;
use super::inner::{Inner, Settings};
use super::{CodeMissingHandler, Link, PeerGoneHandler, RefusalHandler};
use crate::config::{Config, LinkConfig, Origin};
#[cfg(feature = "verbs")]
use crate::config::{ConfigError, ConfigFault};
use crate::transports::transports_for;
use crate::{Error, Refusal};

/// The caller's functions for events of a link.
#[derive(Default)]
struct Handlers {
    refused: Option<RefusalHandler>,
    peer_gone: Option<PeerGoneHandler>,
    code_missing: Option<CodeMissingHandler>,
}

/// A connection to be made: a configuration, and what is no plain value. The methods that are named after options set
/// those of the configuration ([`LinkConfig`]). Every option has a default that suits a program on the same machine as its
/// target.
#[must_use]
pub struct LinkBuilder {
    pub(crate) config: LinkConfig,
    address: String,
    key: Option<Key>,
    transports: Vec<Box<dyn Transport>>,
    handlers: Handlers,
    #[cfg(feature = "build")]
    compiler: Option<Box<PeerCompiler>>,
}

impl std::fmt::Debug for LinkBuilder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("LinkBuilder").field("address", &self.address).finish_non_exhaustive()
    }
}

impl LinkBuilder {
    pub(super) fn new(address: &str) -> Self {
        LinkBuilder {
            config: LinkConfig::default(),
            address: address.to_owned(),
            key: None,
            transports: Vec::new(),
            handlers: Handlers::default(),
            #[cfg(feature = "build")]
            compiler: None,
        }
    }

    /// Takes these options, in place of all that were set before.
    pub fn config(mut self, config: LinkConfig) -> Self {
        self.config = config;
        self
    }

    /// Adds a transport of the caller's. Added transports come before the built-in ones in the source's
    /// preferences.
    pub fn with_transport(mut self, transport: Box<dyn Transport>) -> Self {
        self.transports.push(transport);
        self
    }

    /// Sets the key that this process shares with a target at `tcp:HOST:PORT`. It encrypts the control connection; of
    /// the transports, only `tcp` encrypts frames (`docs/security.md`). Without a key, a link connects only to a target
    /// of the same user on this machine's loopback. No effect on Unix sockets.
    /// [`LinkConfig::key_file`] goes before it.
    pub fn key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    /// Runs `handler` for each frame sent with [`Link::send`] that the target refuses. It must not use the
    /// link.
    pub fn on_refused(mut self, handler: impl FnMut(&Refusal) + Send + 'static) -> Self {
        self.handlers.refused = Some(Box::new(handler));
        self
    }

    /// Runs `handler` once when the target is gone, with the reason. It must not use the link.
    pub fn on_peer_gone(mut self, handler: impl FnMut(&str) + Send + 'static) -> Self {
        self.handlers.peer_gone = Some(Box::new(handler));
        self
    }

    /// Runs `handler` with an ifunc's name when the target requests its code again. It must not use the link.
    pub fn on_code_missing(mut self, handler: impl FnMut(&str) + Send + 'static) -> Self {
        self.handlers.code_missing = Some(Box::new(handler));
        self
    }

    /// Compiles functions for exactly the target's CPU, in the background: those whose library carries its source
    /// (`farjump build --carry-source`) and whose code has no writable variables. Default: no.
    ///
    /// The first call of a library in mode cached starts the compiler. Calls use the image that the library carries
    /// until the target has the compiled one; no call waits for it. If the compilation fails, or the target refuses the
    /// image, calls keep the carried image ([`Link::compiled_image`] has the reason). The compiled image belongs to no
    /// family: a target with a list of allowed code has to allow its id.
    ///
    /// A process compiles once for each source and CPU. The end of the last link that wants an image, and the end of
    /// the process, end its compiler.
    ///
    /// **The library's author chooses files and flags of the compiler, which can make it run programs in this process's
    /// name.** Otherwise a library that is only opened runs no code here.
    #[cfg(feature = "build")]
    pub fn compile_for_peer(mut self, compiler: PeerCompiler) -> Self {
        self.compiler = Some(Box::new(compiler));
        self.config.compile_for_peer = true;
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// When an option is out of range, the address is malformed, the key file cannot be read, no process listens there, the
    /// target rejects the link, or the two have no transport in common.
    pub fn connect(self) -> Result<Link, Error> {
        let config = self.config;
        config.check(|_| Origin::Program)?;
        let address: PeerAddress = self.address.parse()?;
        #[cfg(feature = "verbs")]
        if let Some(device) = &config.device {
            farjump_transports::verbs::choose_device(device).map_err(|why| {
                let (origin, name) = (Origin::Program, "device".to_owned());
                Error::from(ConfigError { origin, name, fault: ConfigFault::Malformed(why) })
            })?;
        }
        let key = match (&config.key_file, &address) {
            (Some(file), PeerAddress::Tcp { .. }) => Some(Key::read(file)?),
            _ => self.key,
        };
        let mut tcp = TcpOptions::default().with_key(key);
        (tcp.peer_timeout, tcp.clear) = (config.peer_timeout, config.clear);
        let backends = BackendOptions::new().with_ucx_tcp(config.ucx_tcp);
        let chosen = transports_for(&address, config.transport.as_deref(), self.transports, backends)?;
        #[cfg(feature = "build")]
        let compiler = config.compile_for_peer.then(|| {
            let named =
                || config.cc.as_deref().map_or_else(PeerCompiler::new, |cc| PeerCompiler::new().cc(cc));
            self.compiler.unwrap_or_else(|| Box::new(named()))
        });
        let wait = config.wait_policy.map(crate::wait::followed_here);
        let settings = Settings {
            address: self.address,
            mode: config.mode,
            send_timeout: config.send_timeout,
            wait: wait.unwrap_or_else(crate::wait::wait_for_outcome),
            task_wait: wait.unwrap_or_else(crate::wait::default_wait),
            control_interval: crate::wait::nanoseconds_of(config.control_interval),
            on_refused: self.handlers.refused,
            on_peer_gone: self.handlers.peer_gone,
            on_code_missing: self.handlers.code_missing,
            transports: chosen.transports,
            backends,
            any_transport: config.transport.is_none(),
            passed_over: chosen.passed_over,
            connect_timeout: config.connect_timeout,
            reply_ring: config.reply_mailbox_size,
            prefault: config.prefault,
            program: config.program.clone(),
            tcp,
            #[cfg(feature = "build")]
            compiler,
        };
        Ok(Link::new(Inner::connect(settings, config)?))
    }
}
