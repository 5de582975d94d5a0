//! The thread that has all shards: it polls those of one contestant at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use crate::perf::machine;
use crate::program::failure::Failure;

/// Polls between looks at the order to stop.
const POLLS: usize = 32;

/// The shards of a contestant.
pub(super) trait Shards {
    /// Polls each once.
    ///
    /// # Errors
    /// One has failed.
    fn poll(&mut self) -> Result<(), Failure>;

    /// Returns the messages that they have handled so far.
    ///
    /// # Errors
    /// One of them was refused.
    fn handled(&self) -> Result<u64, Failure>;

    /// Returns whether their code is in its last form.
    fn is_settled(&self) -> bool {
        true
    }
}

/// Makes shards on the thread that will poll them.
pub(super) type Make = Box<dyn FnOnce() -> Result<Box<dyn Shards>, Failure> + Send>;

enum Order {
    Add(Make),
    Poll(usize),
}

/// Result of an order.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Polled {
    /// Messages that these shards have handled since they were made.
    pub(super) handled: u64,
    pub(super) is_settled: bool,
}

/// Words that both threads see.
#[derive(Default)]
struct Signals {
    /// Whether the last order to poll has begun.
    polling: AtomicBool,
    stop: AtomicBool,
}

/// The thread. It ends with this value.
pub(super) struct Server {
    orders: Option<Sender<Order>>,
    replies: Receiver<Result<Polled, Failure>>,
    signals: Arc<Signals>,
    thread: Option<JoinHandle<()>>,
    count: usize,
}

impl Server {
    /// Starts it on this processor.
    pub(super) fn start(cpu: Option<usize>) -> Result<Server, Failure> {
        let (orders, of_client) = channel();
        let (to_client, replies) = channel();
        let signals = Arc::new(Signals::default());
        let of_thread = signals.clone();
        let serve = move || {
            if let Err(failure) = cpu.map_or(Ok(()), machine::pin) {
                // The client may have ended already.
                let _ = to_client.send(Err(failure));
                return;
            }
            serve(&of_client, &to_client, &of_thread);
        };
        let thread = thread::Builder::new()
            .name("shards".to_owned())
            .spawn(serve)
            .map_err(|error| Failure::new(format!("the thread of the shards cannot be started: {error}")))?;
        Ok(Server { orders: Some(orders), replies, signals, thread: Some(thread), count: 0 })
    }

    /// Makes shards there. Returns their number.
    pub(super) fn add(&mut self, make: Make) -> Result<usize, Failure> {
        self.order(Order::Add(make))?;
        self.reply()?;
        self.count += 1;
        Ok(self.count - 1)
    }

    /// Runs `act` while these shards are polled.
    pub(super) fn while_polled<T>(
        &self,
        shards: usize,
        act: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<(T, Polled), Failure> {
        self.signals.stop.store(false, Ordering::Relaxed);
        self.signals.polling.store(false, Ordering::Relaxed);
        self.order(Order::Poll(shards))?;
        while !self.signals.polling.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        let acted = act();
        self.signals.stop.store(true, Ordering::Relaxed);
        // A failure there may be the cause of one here.
        let polled = self.reply()?;
        Ok((acted?, polled))
    }

    fn order(&self, order: Order) -> Result<(), Failure> {
        let sent = self.orders.as_ref().map(|orders| orders.send(order));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { self.reply().and_then(|_| Err(gone())) }
    }

    fn reply(&self) -> Result<Polled, Failure> {
        self.replies.recv().unwrap_or_else(|_| Err(gone()))
    }
}

fn gone() -> Failure {
    Failure::new("the thread of the shards has ended")
}

impl Drop for Server {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has printed its message.
            let _ = thread.join();
        }
    }
}

fn serve(orders: &Receiver<Order>, replies: &Sender<Result<Polled, Failure>>, signals: &Signals) {
    let mut all: Vec<Box<dyn Shards>> = Vec::new();
    for order in orders {
        let reply = match order {
            Order::Add(make) => make().map(|shards| {
                all.push(shards);
                Polled::default()
            }),
            Order::Poll(number) => {
                signals.polling.store(true, Ordering::Release);
                poll(&mut *all[number], signals)
            }
        };
        if replies.send(reply).is_err() {
            return;
        }
    }
}

fn poll(shards: &mut dyn Shards, signals: &Signals) -> Result<Polled, Failure> {
    while !signals.stop.load(Ordering::Relaxed) {
        for _ in 0..POLLS {
            shards.poll()?;
        }
    }
    Ok(Polled { handled: shards.handled()?, is_settled: shards.is_settled() })
}
