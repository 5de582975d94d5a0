//! Calls that tasks await: on an executor of this file, and on tokio.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use farjump::admin::Admin;
use farjump::{CallError, Target};
use farjump_handles::{Client, Error, Handle, PendingCall, Resolver, Store};

use super::{Owner, library, number, owner, panicked};

/// Wakes the thread of an executor, and counts how often.
struct Unpark {
    thread: Thread,
    wakes: AtomicUsize,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// Runs a future to its end, and polls it only after a wake. Returns its output, and the number of wakes.
fn block_on<F: Future>(future: F) -> (F::Output, usize) {
    let unpark = Arc::new(Unpark { thread: std::thread::current(), wakes: AtomicUsize::new(0) });
    let waker = Waker::from(Arc::clone(&unpark));
    let end = Instant::now() + Duration::from_secs(60);
    let mut future = pin!(future);
    let mut polled_for = 0;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return (output, unpark.wakes.load(Ordering::Relaxed));
        }
        while unpark.wakes.load(Ordering::Relaxed) == polled_for {
            assert!(Instant::now() < end, "nothing has woken the task");
            std::thread::park_timeout(Duration::from_secs(1));
        }
        polled_for = unpark.wakes.load(Ordering::Relaxed);
    }
}

/// Awaits all of these calls at once.
async fn all(mut calls: Vec<PendingCall>) -> Vec<Result<Vec<u8>, Error>> {
    let mut outcomes: Vec<_> = calls.iter().map(|_| None).collect();
    poll_fn(move |cx| {
        for (call, outcome) in calls.iter_mut().zip(&mut outcomes) {
            if outcome.is_none()
                && let Poll::Ready(ended) = Pin::new(call).poll(cx)
            {
                *outcome = Some(ended);
            }
        }
        match outcomes.iter().all(Option::is_some) {
            true => Poll::Ready(outcomes.iter_mut().filter_map(Option::take).collect()),
            false => Poll::Pending,
        }
    })
    .await
}

#[test]
fn an_awaited_call_wakes_its_task_at_most_once() {
    let owned = owner();
    let Owner { store, client, .. } = &owned;
    let (sum, reversed) = (library("sum_at"), library("reversed"));
    let handle = store.put(&[1; 1000]).unwrap();
    for times in 1..=50 {
        let call = client.start_call(&sum, &handle, &[times]).unwrap();
        let (reply, wakes) = block_on(call);
        assert_eq!(number(&reply.unwrap()), 1000 * u64::from(times));
        assert!(wakes <= 1, "woken {wakes} times for one reply");
        let (reply, wakes) = block_on(client.call_async(&sum, &handle, &[times]));
        assert_eq!(number(&reply.unwrap()), 1000 * u64::from(times));
        assert!(wakes <= 1, "woken {wakes} times for one reply");
    }
    let calls = (1..=100).map(|times| client.start_call(&sum, &handle, &[times]).unwrap()).collect();
    let (replies, wakes) = block_on(all(calls));
    let replies: Vec<_> = replies.into_iter().map(|reply| number(&reply.unwrap())).collect();
    assert_eq!(replies, (1..=100).map(|times| 1000 * times).collect::<Vec<_>>());
    assert!(wakes <= 100, "woken {wakes} times for 100 replies");
    // Failures come as outcomes, and an outcome comes once.
    let (failed, _) = block_on(client.start_call(&reversed, &handle, b"f").unwrap());
    assert_eq!(panicked(failed.unwrap_err()), "made one and failed");
    let mut call = client.start_call(&sum, &handle, b"").unwrap();
    assert_eq!(number(&block_on(&mut call).0.unwrap()), 1000);
    assert!(block_on(&mut call).0.unwrap_err().to_string().contains("taken before"));
}

#[test]
fn map_async_awaits_any_number_of_calls_each_at_its_owner() {
    let (one, other) = (owner(), owner());
    let sum = library("sum_at");
    let handles: Vec<_> = (0..100_u8)
        .map(|byte| [&one, &other][usize::from(byte) % 2].client.put(&[byte; 10]).unwrap())
        .collect();
    let resolver = Resolver::new();
    let (outcomes, _) = block_on(resolver.map_async(&sum, &handles, b""));
    let sums: Vec<_> = outcomes.into_iter().map(|outcome| number(&outcome.unwrap())).collect();
    assert_eq!(sums, (0..100).map(|byte| byte * 10).collect::<Vec<_>>());
    let (outcomes, _) = block_on(one.client.map_async(&sum, (0..5000).map(|_| &handles[2]), b""));
    assert_eq!(outcomes.len(), 5000);
    assert!(outcomes.into_iter().all(|outcome| number(&outcome.unwrap()) == 20));
    // One handle of another owner fails, and no other.
    let (outcomes, _) = block_on(one.client.map_async(&sum, &handles[..3], b""));
    assert!(matches!(&outcomes[..], [Ok(_), Err(Error::Gone { .. }), Ok(_)]), "{outcomes:?}");
    assert_eq!(number(&block_on(resolver.call_async(&sum, &handles[5], b"")).0.unwrap()), 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_tokio_await_calls_beside_threads_that_wait() {
    let owned = owner();
    let client = owned.client.clone();
    let sum = Arc::new(library("sum_at"));
    let handle = Arc::new(owned.store.put(&[1; 100]).unwrap());
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let (client, sum, handle) = (client.clone(), Arc::clone(&sum), Arc::clone(&handle));
            tokio::task::spawn_blocking(move || {
                (0..200).all(|_| number(&client.call(&sum, &handle, &[2]).unwrap()) == 200)
            })
        })
        .collect();
    let tasks: Vec<_> = (1..=20_u8)
        .map(|times| {
            let (client, sum, handle) = (client.clone(), Arc::clone(&sum), Arc::clone(&handle));
            tokio::spawn(async move {
                for _ in 0..20 {
                    let started = client.start_call(&sum, &handle, &[times]).unwrap();
                    // A dropped call disturbs no other.
                    let mut dropped = client.start_call(&sum, &handle, &[times]).unwrap();
                    let _ = poll_fn(|cx| Poll::Ready(Pin::new(&mut dropped).poll(cx))).await;
                    drop(dropped);
                    assert_eq!(number(&started.await.unwrap()), 100 * u64::from(times));
                    let reply = client.call_async(&sum, &handle, &[times]).await.unwrap();
                    assert_eq!(number(&reply), 100 * u64::from(times));
                }
            })
        })
        .collect();
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(60), task).await.unwrap().unwrap();
    }
    for thread in waiting {
        assert!(tokio::time::timeout(Duration::from_secs(60), thread).await.unwrap().unwrap());
    }
}

/// A waker that counts.
#[derive(Default)]
struct Counted(AtomicUsize);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn only_a_reply_or_the_owners_end_wakes_a_task() {
    let folder = farjump_fixtures::folder();
    let address = format!("unix:{}", folder.path().join("owner.sock").display());
    let store = Store::options().capacity(1 << 20).build().unwrap();
    let mut target = Target::listen(&address).objects(store.service()).build().unwrap();
    let handle = store.put(&[1; 10]).unwrap();
    let sum = library("sum_at");
    // Connects both links: the target is polled meanwhile.
    let client = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            let client = Client::connect(&address).unwrap();
            client.call(&sum, &handle, b"").unwrap();
            client
        });
        while !connecting.is_finished() {
            target.poll().unwrap();
        }
        connecting.join().unwrap()
    });
    let counted = Arc::new(Counted::default());
    let waker = Waker::from(Arc::clone(&counted));
    let begin = |handle: &Handle| {
        let mut call = client.start_call(&sum, handle, b"").unwrap();
        assert!(Pin::new(&mut call).poll(&mut Context::from_waker(&waker)).is_pending());
        call
    };
    let until_woken = |wakes: usize, act: &mut dyn FnMut()| {
        let end = Instant::now() + Duration::from_secs(60);
        while counted.0.load(Ordering::Relaxed) < wakes {
            assert!(Instant::now() < end, "nothing wakes the task");
            act();
        }
    };
    let mut first = begin(&handle);
    // Nothing came, so nothing wakes.
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(counted.0.load(Ordering::Relaxed), 0);
    until_woken(1, &mut || _ = target.poll().unwrap());
    let polled = Pin::new(&mut first).poll(&mut Context::from_waker(&waker));
    assert!(matches!(polled, Poll::Ready(Ok(reply)) if number(&reply) == 10));
    let mut second = begin(&handle);
    drop(target);
    until_woken(2, &mut || std::thread::sleep(Duration::from_millis(1)));
    let polled = Pin::new(&mut second).poll(&mut Context::from_waker(&waker));
    assert!(
        matches!(polled, Poll::Ready(Err(Error::Link(ref error))) if !matches!(error, farjump::Error::Call(CallError::Panicked { .. }))),
        "{polled:?}"
    );
}

#[test]
fn a_client_that_has_awaited_closes_its_links_when_it_is_dropped() {
    let Owner { store, client, address, _target, _folder } = owner();
    let handle = store.put(&[1; 10]).unwrap();
    let sum = library("sum_at");
    let (reply, _) = block_on(client.call_async(&sum, &handle, b""));
    assert_eq!(number(&reply.unwrap()), 10);
    // The driver sleeps now, or is about to: its thread has a link, and lets go of it.
    let admin = Admin::new(&address).unwrap();
    assert_eq!(admin.stats().unwrap().links, 2);
    drop(client);
    let end = Instant::now() + Duration::from_secs(60);
    while admin.stats().unwrap().links != 0 {
        assert!(Instant::now() < end, "the links stay");
        std::thread::sleep(Duration::from_millis(2));
    }
}
