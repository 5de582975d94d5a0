//! Awaiting calls in asyncio: one reader of the event loop for each link, which completes all futures.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use farjump::{Awaited, HeldLink, Link, Sleeper};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use pyo3::{PyTraverseError, PyVisit, intern};

use crate::calls::awaited::{Entry, Looked, MISSES, Progress, is_done};
use crate::calls::shared::{Known, Shared};
use crate::errors::{exception, guarded};
use crate::lock::Lock;

/// Longest time between two looks for outcomes without an event. These looks also find cancelled futures.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// A link in an event loop. The loop owns the bridge, reads its descriptor, and calls it. The bridge ends with the
/// loop, or the loop drops it when the link has ended. So neither the link nor the bridge keeps an event loop alive.
#[pyclass(frozen, module = "farjump", weakref)]
pub(crate) struct Bridge {
    /// The link, which may end first.
    shared: Weak<Shared>,
    event_loop: Py<PyWeakrefReference>,
    sleeper: Sleeper,
    state: Lock<State>,
}

#[derive(Default)]
struct State {
    awaiting: VecDeque<Entry>,
    /// Whether some entries may wait for credit.
    sends: bool,
    /// Whether the loop is to call soon.
    is_due: bool,
    /// Whether the loop reads the descriptor.
    is_read: bool,
    /// The latest time at which the loop calls. Timers of the loop that end later may remain.
    timer: Option<Instant>,
}

impl Known {
    /// Returns the bridge, if it and its event loop still exist.
    fn bridge<'py>(&self, py: Python<'py>) -> Option<Bound<'py, Bridge>> {
        let bridge = self.bridge.bind(py).upgrade()?.cast_into::<Bridge>().ok()?;
        bridge.get().event_loop(py).map(|_| bridge)
    }
}

fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    GET.import(py, "asyncio", "get_running_loop")?.call0()
}

impl Bridge {
    /// Returns a new future of the running event loop.
    pub(crate) fn new_future(py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(running_loop(py)?.call_method0(intern!(py, "create_future"))?.unbind())
    }

    /// Makes the running event loop complete the entry's future.
    pub(crate) fn add(py: Python<'_>, shared: &Arc<Shared>, entry: Entry) -> PyResult<()> {
        let event_loop = running_loop(py)?;
        let bridge = Bridge::of(shared, &event_loop)?;
        let sends = entry.sends();
        shared.awaited_once_more();
        let due = bridge.get().state.with(|state| {
            state.sends |= sends;
            state.awaiting.push_back(entry);
            std::mem::replace(&mut state.is_due, true)
        });
        if !due {
            event_loop.call_method1(intern!(py, "call_soon"), (&bridge,))?;
        }
        Ok(())
    }

    /// Returns whether an event loop runs in this thread.
    pub(crate) fn is_in_loop(py: Python<'_>) -> PyResult<bool> {
        // Without the module there is no event loop, and importing it takes long.
        let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
        Ok(modules.contains(intern!(py, "asyncio"))? && running_loop(py).is_ok())
    }

    /// Returns whether tasks of the running event loop wait for credit.
    pub(crate) fn sends(py: Python<'_>, shared: &Arc<Shared>) -> PyResult<bool> {
        let bridge = Bridge::known(shared, &running_loop(py)?);
        Ok(bridge.is_some_and(|bridge| bridge.get().state.with(|state| state.sends)))
    }

    /// Returns the event loop, if it still exists.
    fn event_loop<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.event_loop.bind(py).upgrade()
    }

    /// Returns the bridge between the link and this event loop, if there is one.
    fn known<'py>(shared: &Shared, event_loop: &Bound<'py, PyAny>) -> Option<Bound<'py, Bridge>> {
        // The address: a reference to the event loop cannot be used under the lock.
        let wanted = event_loop.as_ptr().addr();
        let known =
            shared.bridges.with(|bridges| bridges.iter().find(|known| known.event_loop == wanted).cloned());
        known?.bridge(event_loop.py())
    }

    /// Returns the bridge between the link and this event loop, which runs in this thread. Makes one if there is none.
    fn of<'py>(shared: &Arc<Shared>, event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Bridge>> {
        let py = event_loop.py();
        if let Some(bridge) = Bridge::known(shared, event_loop) {
            return Ok(bridge);
        }
        let sleeper = shared.with(py, HeldLink::add_sleeper).map_err(|error| exception(py, &error))?;
        let bridge = Bridge {
            shared: Arc::downgrade(shared),
            event_loop: PyWeakrefReference::new(event_loop)?.unbind(),
            sleeper,
            state: Lock::default(),
        };
        let bridge = Bound::new(py, bridge)?;
        let known = PyWeakrefReference::new(bridge.as_any())?.unbind();
        let known = Known { event_loop: event_loop.as_ptr().addr(), bridge: Arc::new(known) };
        Bridge::remove_ended(py, shared);
        shared.bridges.with(|bridges| bridges.push(known));
        // From here on the loop owns the bridge.
        Bridge::read(&bridge, event_loop)?;
        Ok(bridge)
    }

    /// Removes the bridges that ended.
    fn remove_ended(py: Python<'_>, shared: &Shared) {
        let all = shared.bridges.with(|bridges| bridges.clone());
        let ended: Vec<_> = all.into_iter().filter(|known| known.bridge(py).is_none()).collect();
        let is_ended = |known: &Known| ended.iter().any(|other| Arc::ptr_eq(&known.bridge, &other.bridge));
        shared.bridges.with(|bridges| bridges.retain(|known| !is_ended(known)));
    }

    /// Completes the futures of all calls that have their outcome, and schedules the next look.
    fn reap(slf: &Bound<'_, Bridge>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let (mut awaiting, sends, timed) = this.state.with(|state| {
            state.is_due = false;
            let timed = state.timer.take_if(|end| *end <= Instant::now()).is_some();
            (std::mem::take(&mut state.awaiting), std::mem::take(&mut state.sends), timed)
        });
        let had_some = !awaiting.is_empty();
        let shared = this.shared.upgrade();
        if sends {
            // A call whose task was cancelled is not sent.
            let count = awaiting.len();
            awaiting.retain(|entry| !entry.sends() || !is_done(py, entry.future()) || !entry.abandon());
            if let Some(shared) = &shared {
                shared.no_longer_awaited(count - awaiting.len());
            }
        }
        let (mut ready, mut kept, mut looked) = (Vec::new(), VecDeque::new(), Looked::default());
        let mut progressed = false;
        let longest = match &shared {
            None => {
                for mut entry in awaiting.drain(..) {
                    entry.look(None, &mut looked);
                    ready.push(entry);
                }
                None
            }
            Some(shared) => shared.with(py, |held| {
                let was_woken = held.end_sleep(&this.sleeper);
                let mut look = |link: Option<&Link>| {
                    let mut misses = 0;
                    while let Some(mut entry) = awaiting.pop_front() {
                        match entry.look(link, &mut looked) {
                            Progress::All => ready.push(entry),
                            progress => {
                                progressed |= progress == Progress::Some;
                                kept.push_back(entry);
                                misses += 1;
                            }
                        }
                        if misses >= MISSES && !ready.is_empty() {
                            break;
                        }
                    }
                };
                if held.look(Some(&this.sleeper), |link| look(Some(link))).is_err() {
                    look(None);
                }
                kept.append(&mut awaiting);
                shared.no_longer_awaited(ready.len());
                if !was_woken && !timed {
                    held.wake_others(Some(&this.sleeper));
                }
                // After outcomes, more are likely to come before the loop could sleep.
                if kept.is_empty() || !ready.is_empty() || progressed {
                    None
                } else {
                    held.begin_sleep(&this.sleeper)
                }
            }),
        };
        looked.settle(py);
        ready.iter_mut().for_each(|entry| entry.settle(py));
        if timed {
            let before = kept.len();
            kept.retain(|entry| !is_done(py, entry.future()) || !entry.abandon());
            if let Some(shared) = &shared {
                shared.no_longer_awaited(before - kept.len());
            }
        }
        let mut failed = Vec::new();
        if let Some(shared) = &shared
            && sends
        {
            let (expired, others) = kept.into_iter().partition(|entry| entry.is_expired(shared.send_timeout));
            (failed, kept) = (Vec::from(expired), others);
            shared.no_longer_awaited(failed.len());
        }
        let (is_empty, completes) = (kept.is_empty(), !ready.is_empty() || !failed.is_empty());
        let still_sends = sends && kept.iter().any(Entry::sends);
        this.state.with(|state| {
            state.sends |= still_sends;
            kept.append(&mut state.awaiting);
            std::mem::swap(&mut state.awaiting, &mut kept);
        });
        for entry in ready {
            entry.complete(py, shared.as_ref())?;
        }
        for entry in failed {
            if let Some(shared) = &shared {
                entry.fail(py, shared.timed_out(py, Awaited::Credit, shared.send_timeout))?;
            }
        }
        match longest {
            Some(longest) => Bridge::rest(slf, longest.min(LONGEST_SLEEP)),
            None if !is_empty => Bridge::look_soon(slf),
            // An event without calls. A loop that read on would stay awake, for instance when the target has ended.
            None if !had_some && !completes => this.read_no_more(py),
            None => Ok(()),
        }
    }

    /// Makes the loop call again after its other callbacks.
    fn look_soon(slf: &Bound<'_, Bridge>) -> PyResult<()> {
        let py = slf.py();
        let Some(event_loop) = slf.get().event_loop(py) else { return Ok(()) };
        if !slf.get().state.with(|state| std::mem::replace(&mut state.is_due, true)) {
            event_loop.call_method1(intern!(py, "call_soon"), (slf,))?;
        }
        Ok(())
    }

    /// Makes the loop call on an event.
    fn read(slf: &Bound<'_, Bridge>, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        let this = slf.get();
        if !this.state.with(|state| std::mem::replace(&mut state.is_read, true)) {
            let descriptor = this.sleeper.as_fd().as_raw_fd();
            event_loop.call_method1(intern!(slf.py(), "add_reader"), (descriptor, slf))?;
        }
        Ok(())
    }

    /// Makes the loop call on an event, and after `longest`.
    fn rest(slf: &Bound<'_, Bridge>, longest: Duration) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let Some(event_loop) = this.event_loop(py) else { return Ok(()) };
        Bridge::read(slf, &event_loop)?;
        let end = Instant::now() + longest;
        let is_timed = this.state.with(|state| {
            let is_timed = state.timer.is_some_and(|at| at <= end);
            if !is_timed {
                state.timer = Some(end);
            }
            is_timed
        });
        if !is_timed {
            event_loop.call_method1(intern!(py, "call_later"), (longest.as_secs_f64(), slf))?;
        }
        Ok(())
    }

    fn read_no_more(&self, py: Python<'_>) -> PyResult<()> {
        if self.state.with(|state| std::mem::replace(&mut state.is_read, false))
            && let Some(event_loop) = self.event_loop(py)
        {
            let descriptor = self.sleeper.as_fd().as_raw_fd();
            event_loop.call_method1(intern!(py, "remove_reader"), (descriptor,))?;
        }
        Ok(())
    }
}

#[pymethods]
impl Bridge {
    fn __call__(slf: &Bound<'_, Self>) -> PyResult<()> {
        guarded(slf.py(), || {
            // A forked child may go on with its parent's event loop.
            slf.get().shared.upgrade().map_or(Ok(()), |shared| shared.process.check(slf.py(), "link"))?;
            Bridge::reap(slf)
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.state.visit(|state| state.awaiting.iter().try_for_each(|entry| entry.visit(&visit)))
    }

    fn __clear__(&self) {
        self.drop_awaiting();
    }
}

impl Bridge {
    /// Drops the calls that it looks for.
    fn drop_awaiting(&self) {
        let awaiting = self.state.with(|state| std::mem::take(&mut state.awaiting));
        if let Some(shared) = self.shared.upgrade() {
            shared.no_longer_awaited(awaiting.len());
        }
        drop(awaiting);
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.drop_awaiting();
    }
}
