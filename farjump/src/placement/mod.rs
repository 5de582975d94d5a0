//! The choice of a place for a function: at its data, or here on data that are fetched.
//!
//! [`Wire`] is a model of the network, [`Cost`] the time of a function, and [`Chooser`] combines the two with the
//! remaining work at either place. Nothing in this module sends or waits: a program reports its measurements.
//!
//! ```
//! use farjump::placement::{Chooser, Hop, Place, Traffic, Wire};
//!
//! // 2 us one way, 16 fetches under way at a time, and one processor at the data.
//! let mut chooser = Chooser::new(Wire::with_latency(2.0), 16, 1);
//! // A sum over 1 MiB at the data, which takes 20 us at either place.
//! let sum = Hop {
//!     owner: 0,
//!     fetch: Traffic::of_fetch(1 << 20),
//!     requests: 1,
//!     call: Traffic::of_call(16, 8),
//!     here_us: 20.0,
//!     call_us: 0.2,
//!     there_us: 20.0,
//! };
//! let choice = chooser.choose(0.0, &sum);
//! assert_eq!(choice.place, Place::AtData);
//! println!("here after {:.1} us, at the data after {:.1} us", choice.here_us, choice.there_us);
//! chooser.sent(sum.owner, sum.there_us);
//! chooser.ended_there(24.3, sum.owner, sum.there_us);
//! ```

mod chooser;
mod cost;
mod wire;

pub use chooser::{Choice, Chooser, Hop, Place};
pub use cost::{Cost, Sample};
pub use wire::{ENVELOPE, Traffic, Wire};
