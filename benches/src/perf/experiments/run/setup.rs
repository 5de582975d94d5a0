//! Sets up a run: with a second process, or with a target that runs elsewhere.

use std::rc::Rc;

use farjump::{Mode, WaitPolicy};

use super::{Bench, CurrentRound};
use crate::perf::experiments::baselines::connect::{Host, Paired, alike, hosts, spec_for, wanted};
use crate::perf::experiments::baselines::memcpy::Copy;
use crate::perf::experiments::baselines::ring::Layout;
use crate::perf::experiments::case::Case;
use crate::perf::experiments::measurement::LINE_SIZE;
use crate::perf::experiments::setting::Setting;
use crate::perf::experiments::wake_up;
use crate::perf::experiments::work::store_len;
use crate::perf::options::remote_target::{Peer, Unreached};
use crate::perf::process::child_protocol::EndpointSpec;
use crate::perf::process::counterpart::Counterpart;
use crate::perf::process::place;
use crate::perf::report::metric::{Against, Metric};
use crate::program::failure::Failure;

impl<'a> Bench<'a> {
    /// Sets both processes up.
    ///
    /// # Errors
    /// A transport cannot be used. A missing baseline is reported in its rows.
    pub(crate) fn set(
        setting: &'a Setting<'a>,
        modes: Vec<Mode>,
        against: &'a [Against],
    ) -> Result<Bench<'a>, Failure> {
        let Setting { options, stage, cpus, transports, libraries } = *setting;
        let longest = options.sizes.longest().max(LINE_SIZE);
        let layout = Layout::new(options.ring(), longest, options.slot)?;
        let store = if options.metric == Metric::Work { store_len(longest) } else { 0 };
        let wanted = wanted(against);
        let hosts = hosts(transports, &libraries.codes, longest);
        // The raw ring is always there: it measures the machine's state.
        let mut specs = vec![EndpointSpec::Baseline(Against::Raw)];
        specs.extend(hosts.iter().map(|host| host.spec.clone()));
        let baselines = || {
            wanted.iter().flat_map(|against| alike(&libraries.codes).map(move |codes| (*against, &codes[0])))
        };
        specs.extend(
            baselines()
                .filter_map(|(against, code)| spec_for(against, code, longest))
                .filter(|spec| *spec != EndpointSpec::Baseline(Against::Raw)),
        );
        let Paired { pair, endpoints } = Paired::start(setting, &specs, layout, store)?;
        let mut counterpart = Counterpart::Pair(pair);
        let mut links = Vec::new();
        let mut cases = Vec::new();
        let number_of = |wanted: Option<&EndpointSpec>| {
            specs.iter().position(|spec| Some(spec) == wanted).unwrap_or_default()
        };
        for Host { transport, name, codes, spec } in &hosts {
            let endpoint = number_of(Some(spec));
            if let Err(why) = &endpoints[endpoint] {
                return Err(Failure::new(format!("the target could not be made for {transport}: {why}")));
            }
            let link = place::link(stage.folder(), name, transport)?;
            let link = if cpus.is_some() { link.wait_policy(WaitPolicy::spin_only()) } else { link };
            let link = counterpart.serve(endpoint, || link.connect())??;
            let number = links.len();
            links.push(Rc::new(link));
            let single = against.contains(&Against::Single) && options.batch != 1;
            let batches = [options.batch].into_iter().chain(single.then_some(1));
            for (code, batch) in codes.iter().flat_map(|code| batches.clone().map(move |batch| (code, batch)))
            {
                cases.extend(modes.iter().map(|mode| Case::Farjump {
                    batch,
                    endpoint,
                    transport: (*transport).to_owned(),
                    mode: *mode,
                    link: number,
                    code,
                }));
            }
        }
        for (against, code) in baselines().filter(|(against, _)| !against.is_farjump()) {
            cases.push(match against {
                tool if tool == Against::Perftest || tool.is_of_perftest() => match cpus {
                    Some(cpus) => Case::Tool(tool, cpus),
                    None => return Err(Failure::new("tools need processors of their own: name two")),
                },
                Against::Memcpy => Case::Copy(Copy::new(layout.region, layout.longest)?),
                Against::Dlopen => Case::Dlopen,
                against => {
                    let endpoint = number_of(spec_for(against, code, longest).as_ref());
                    match &endpoints[endpoint] {
                        Err(why) => Case::Missing { against, why: why.clone(), function: code.function },
                        Ok(_) => Case::Both { endpoint, against, function: code.function },
                    }
                }
            });
        }
        let current = CurrentRound::default();
        Ok(Bench { setting, modes, counterpart, links, endpoints, against, cases, current })
    }

    /// Starts the sleepers, and a process by which the machine's state is measured.
    ///
    /// # Errors
    /// A transport cannot be used. A missing baseline is reported in its rows.
    pub(crate) fn of_sleepers(
        setting: &'a Setting<'a>,
        modes: Vec<Mode>,
        against: &'a [Against],
    ) -> Result<Bench<'a>, Failure> {
        let (raw, layout) = ([EndpointSpec::Baseline(Against::Raw)], Layout::new(0, LINE_SIZE, None)?);
        let Paired { pair, endpoints } = Paired::start(setting, &raw, layout, 0)?;
        let cases = wake_up::wakers(setting, against)?
            .into_iter()
            .map(|waker| Case::Sleeper(Box::new(waker)))
            .collect();
        let (counterpart, links) = (Counterpart::Pair(pair), Vec::new());
        let current = CurrentRound::default();
        Ok(Bench { setting, modes, counterpart, links, endpoints, against, cases, current })
    }

    /// Connects to the target that runs elsewhere.
    ///
    /// # Errors
    /// Those of [`Peer::connect`].
    pub(crate) fn reach(
        setting: &'a Setting<'a>,
        modes: Vec<Mode>,
        against: &'a [Against],
    ) -> Result<Bench<'a>, Failure> {
        let Setting { options, transports, libraries, .. } = *setting;
        let (peer, unreached) = Peer::connect(options, transports, libraries)?;
        let links = peer.links().to_vec();
        let mut cases = Vec::new();
        for (number, link) in links.iter().enumerate() {
            let transport = place::name_of(link);
            for (at, code) in libraries.codes.iter().enumerate() {
                cases.extend(modes.iter().map(|mode| Case::Farjump {
                    batch: options.batch,
                    endpoint: peer.endpoint(number, at),
                    transport: transport.clone(),
                    mode: *mode,
                    link: number,
                    code,
                }));
            }
        }
        for Unreached { transport, why } in unreached {
            for code in &libraries.codes {
                cases.extend(modes.iter().map(|mode| Case::Unreached {
                    transport: transport.clone(),
                    mode: *mode,
                    code,
                    why: why.clone(),
                }));
            }
        }
        let (counterpart, endpoints) = (Counterpart::Peer(peer), Vec::new());
        let current = CurrentRound::default();
        Ok(Bench { setting, modes, counterpart, links, endpoints, against, cases, current })
    }
}
