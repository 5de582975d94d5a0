//! Chooses the baselines, and connects their endpoints.

use std::path::Path;

use super::ring::Layout;
use crate::perf::experiments::baselines::{self, Connected, Unconnected};
use crate::perf::experiments::setting::Setting;
use crate::perf::experiments::work::{Method, Task};
use crate::perf::options::ifuncs::Code;
use crate::perf::process::child::Pair;
use crate::perf::process::child_protocol::{EndpointSpec, Offer};
use crate::perf::report::metric::Against;
use crate::program::failure::Failure;

/// Returns the baselines needed for `asked`: `perftest` is compared with active messages.
pub(crate) fn wanted(asked: &[Against]) -> Vec<Against> {
    let mut wanted = asked.to_vec();
    if let Some(tool) = asked.iter().position(|against| *against == Against::Perftest)
        && !asked.contains(&Against::UcxAm)
    {
        wanted.insert(tool, Against::UcxAm);
    }
    wanted
}

/// A target of farjump's, and the functions injected there.
pub(crate) struct Host<'a> {
    pub(crate) transport: &'a str,
    /// The last part of its address.
    pub(crate) name: String,
    pub(crate) codes: &'a [Code],
    pub(crate) spec: EndpointSpec,
}

/// Returns the targets needed: one for each transport and each function that works on data.
pub(crate) fn hosts<'a>(transports: &'a [String], codes: &'a [Code], longest: usize) -> Vec<Host<'a>> {
    let host = |transport: &'a str, codes: &'a [Code]| {
        let work =
            codes.first().and_then(|code| task_of(Method::Injected(transport.to_owned()), code, longest));
        let (name, spec) = match work {
            Some(task) => (task.host(transport), EndpointSpec::Work(task)),
            None => {
                let name = transport.to_owned();
                (name.clone(), EndpointSpec::Farjump { transport: name.clone(), socket: name, sources: 1 })
            }
        };
        Host { transport, name, codes, spec }
    };
    transports.iter().flat_map(|transport| alike(codes).map(move |codes| host(transport, codes))).collect()
}

/// Groups codes by their baselines: all that count, and each that works.
pub(crate) fn alike(codes: &[Code]) -> impl Iterator<Item = &[Code]> {
    codes.chunk_by(|one, other| one.function == other.function)
}

/// Returns the other process's endpoint of a baseline for `code`, whose data has up to `longest` bytes.
pub(crate) fn spec_for(against: Against, code: &Code, longest: usize) -> Option<EndpointSpec> {
    match code.function {
        None => against.has_endpoints().then_some(EndpointSpec::Baseline(against)),
        Some(_) => task_of(Method::of(against)?, code, longest).map(EndpointSpec::Work),
    }
}

/// Returns the task of doing `code`'s work in one way, if the function works on data.
fn task_of(method: Method, code: &Code, longest: usize) -> Option<Task> {
    let library = code.library.path().to_owned();
    code.function.map(|function| Task { method, function, library, longest })
}

/// This process's endpoint, if it has one, or the reason why the two processes cannot be connected.
pub(crate) type Endpoint = Result<Option<Connected>, String>;

/// The second process, and this process's endpoints by their number in both.
pub(crate) struct Paired {
    // Dropped before the other process ends: UCX would try to reach it again.
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) pair: Pair,
}

impl Paired {
    /// Starts the second process, with data of `store` bytes in shared memory, and connects these endpoints.
    pub(crate) fn start(
        setting: &Setting<'_>,
        specs: &[EndpointSpec],
        layout: Layout,
        store: usize,
    ) -> Result<Paired, Failure> {
        let Setting { options, stage, cpus, .. } = *setting;
        let mut pair = Pair::start(stage, layout.region, store, options.across.as_ref())?;
        let theirs = pair.set(setting.set(specs, cpus.map(|cpus| cpus.target), layout))?;
        let endpoints = connect(&mut pair, specs, theirs, &layout, stage.folder())?;
        Ok(Paired { endpoints, pair })
    }

    /// Ends the second process.
    pub(crate) fn end(self) -> Result<(), Failure> {
        drop(self.endpoints);
        self.pair.end()
    }
}

/// Opens this process's endpoints and connects each to its peer. `theirs` are the offers of the other
/// process.
fn connect(
    pair: &mut Pair,
    specs: &[EndpointSpec],
    theirs: Vec<Result<Offer, String>>,
    layout: &Layout,
    folder: &Path,
) -> Result<Vec<Endpoint>, Failure> {
    let mut opened = Vec::new();
    let mut offers = Vec::new();
    for (spec, theirs) in specs.iter().zip(theirs) {
        let own = theirs.and_then(|theirs| {
            // Links connect by the target's address.
            if spec.is_farjump() {
                return Ok((None, Offer::default()));
            }
            let own = baselines::open(spec, layout, folder, None).map_err(|failure| failure.to_string())?;
            let offer = own.offer.clone();
            Ok((Some((own, theirs)), offer))
        });
        offers.push(own.as_ref().ok().map(|(_, offer)| offer.clone()));
        opened.push(own.map(|(own, _)| own));
    }
    let (joined, own) = pair.join(offers, |memory| {
        let connect = |own: Result<Option<(Unconnected, Offer)>, String>| {
            let connected = own?.map(|(own, theirs)| own.connect(&theirs, memory));
            connected.transpose().map_err(|failure| failure.to_string())
        };
        opened.into_iter().map(connect).collect::<Vec<_>>()
    })?;
    Ok(own.into_iter().zip(joined).map(|(own, theirs)| own.and_then(|own| theirs.map(|()| own))).collect())
}
