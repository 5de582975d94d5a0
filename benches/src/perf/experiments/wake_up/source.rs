//! The source's part: the waker, and its handle to the sleeping process.

use farjump::{Library, Link};

use super::sleeper::wake;
use crate::perf::experiments::baselines::injection::connect;
use crate::perf::experiments::baselines::ring::Layout;
#[cfg(feature = "ucx")]
use crate::perf::experiments::baselines::ucx;
use crate::perf::experiments::setting::Setting;
use crate::perf::process::child::Pair;
use crate::perf::process::child_protocol::EndpointSpec;
use crate::perf::process::liveness::PATIENCE;
use crate::perf::process::place;
use crate::perf::report::metric::Against;
use crate::program::failure::Failure;

/// A sleeping process, and the means to wake it.
pub(crate) struct Waker<'a> {
    pub(crate) name: &'static str,
    /// farjump's transport.
    pub(crate) transport: Option<&'a str>,
    pub(crate) sources: usize,
    /// Dropped before the process, which the links reach.
    means: Means,
    pub(super) pair: Pair,
    /// The injected function.
    library: Library,
    args: Vec<u8>,
}

/// The means to wake it.
enum Means {
    /// Injection over the first of these links.
    Links(Vec<Link>),
    Futex,
    #[cfg(feature = "ucx")]
    Ucx(ucx::Sending),
    Missing(String),
}

impl<'a> Waker<'a> {
    /// Starts a target of farjump's over a transport, with so many sources in this process. `library` holds the
    /// injected function.
    ///
    /// # Errors
    /// The target cannot be made or reached.
    pub(super) fn farjump(
        setting: &Setting<'_>,
        transport: &'a str,
        sources: usize,
        library: &Library,
    ) -> Result<Waker<'a>, Failure> {
        let socket = format!("{transport}-{sources}");
        let mut pair = start(setting)?;
        let (of, at) = (transport.to_owned(), socket.clone());
        let sleeper = EndpointSpec::Farjump { transport: of, socket: at, sources };
        pair.sleep(sleeper)?.map_err(Failure::new)?;
        let mut links = Vec::new();
        while links.len() < sources {
            let link = connect(setting.stage.folder(), &socket, transport)?;
            // This call brings the code to the target.
            link.inject(library, &[])?.wait(PATIENCE)?;
            links.push(link);
        }
        let (means, args) = (Means::Links(links), vec![7; setting.options.sizes.longest()]);
        let (library, transport) = (library.clone(), Some(transport));
        Ok(Waker { name: "farjump", transport, sources, means, pair, library, args })
    }

    /// Starts a baseline's sleeper. Its absence is no error.
    pub(super) fn baseline(
        setting: &Setting<'_>,
        against: Against,
        library: &Library,
    ) -> Result<Waker<'a>, Failure> {
        let mut pair = start(setting)?;
        let means = match pair.sleep(EndpointSpec::Baseline(against))? {
            Err(why) => Means::Missing(why),
            #[cfg(feature = "ucx")]
            Ok(offer) if against == Against::UcxWait => match ucx::Sending::connect(&offer) {
                Ok(sending) => Means::Ucx(sending),
                Err(why) => Means::Missing(why.to_string()),
            },
            Ok(_) => Means::Futex,
        };
        let args = vec![7; setting.options.sizes.longest()];
        let (name, library) = (against.name(), library.clone());
        Ok(Waker { name, transport: None, sources: 1, means, pair, library, args })
    }

    /// Returns the reason why it is missing.
    pub(crate) fn missing(&self) -> Option<&str> {
        match &self.means {
            Means::Missing(why) => Some(why),
            _ => None,
        }
    }

    pub(crate) fn arrival(&self) -> Option<String> {
        match &self.means {
            Means::Links(links) => links.first().map(|link| link.arrival_rule().describe()),
            _ => None,
        }
    }

    /// Returns the carrier of the messages.
    pub(crate) fn lane(&self) -> Option<String> {
        match &self.means {
            Means::Links(links) => links.first().and_then(place::lane),
            #[cfg(feature = "ucx")]
            Means::Ucx(sending) => sending.lanes(),
            _ => None,
        }
    }

    /// Wakes it with `size` bytes, and waits until it has finished.
    ///
    /// # Errors
    /// It cannot be woken, or does not wake.
    pub(super) fn wake(&mut self, size: usize) -> Result<(), Failure> {
        let Waker { means, pair, library, args, .. } = self;
        let args = &args[..size];
        pair.rest(|memory, watch| {
            let ran = || memory.stamp().load(std::sync::atomic::Ordering::Acquire) != 0;
            match means {
                Means::Links(links) => {
                    let link = links.first().ok_or_else(|| Failure::new("no source is connected"))?;
                    link.send(library, args)?;
                    watch.until(|| Ok(ran()))
                }
                Means::Futex => {
                    wake(memory);
                    watch.until(|| Ok(ran()))
                }
                #[cfg(feature = "ucx")]
                Means::Ucx(sending) => {
                    sending.send(args, watch)?;
                    watch.until(|| {
                        sending.progress();
                        Ok(ran())
                    })
                }
                Means::Missing(why) => Err(Failure::new(why.clone())),
            }
        })
    }

    /// Ends the links and the process.
    pub(crate) fn end(self) -> Result<(), Failure> {
        drop(self.means);
        self.pair.end()
    }
}

/// Starts a process that will sleep.
fn start(setting: &Setting<'_>) -> Result<Pair, Failure> {
    let Setting { options, stage, cpus, .. } = *setting;
    let mut pair = Pair::start(stage, 0, 0, options.across.as_ref())?;
    pair.set(setting.set(&[], cpus.map(|cpus| cpus.target), Layout::without_rings(options.sizes.longest())))?;
    Ok(pair)
}
