//! Awaited calls in tokio and in other runtimes: each gets its outcome, and a dropped one leaves nothing behind.

use std::cell::Cell;
use std::os::unix::net::UnixListener;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use farjump::{CallError, Error, InjectError, Link, Reply, SharedLink, SystemError, WaitError, WaitPolicy};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, LocalSet};

use crate::support::{
    FOREVER, PATIENCE, Pair, Place, library, outcome_of, panicked, peer_gone, readable, serve, words,
};

/// Calls of one link at the same time.
const CALLS: u64 = 1000;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn runtime_of_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Runs `act` in a task of this thread, beside a target that is a task too.
fn beside_target<T>(pair: Pair<'_>, act: impl AsyncFnOnce(Link) -> T) -> T {
    let Pair { link, mut target } = pair;
    runtime().block_on(async {
        let stopper = target.stopper();
        let (served, done) = tokio::join!(target.run_async(), async {
            let done = act(link).await;
            stopper.stop();
            done
        });
        served.unwrap();
        done
    })
}

fn is_pending<T>(future: Pin<&mut impl Future<Output = T>>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[test]
fn one_task_awaits_a_thousand_calls_in_flight_in_any_order() {
    let (_place, pair) = Pair::start();
    let echo = library("echo");
    beside_target(pair, async |link| {
        for backwards in [false, true] {
            let mut calls: Vec<_> =
                (0..CALLS).map(|number| (number, link.inject(&echo, &words(&[number])).unwrap())).collect();
            if backwards {
                calls.reverse();
            }
            for (number, call) in calls {
                assert_eq!(*call.await.unwrap(), *words(&[number]));
            }
        }
        panicked(link.inject(&library("sum"), b"odd").unwrap().await, "sum");
    });
}

#[test]
fn tasks_of_a_thread_await_calls_of_one_link() {
    let place = Place::new();
    // So little space that most of them await credit, too, and sleep at once.
    let target = place.target().mailbox_size(1 << 12).wait_policy(WaitPolicy::sleep_only());
    let pair = Pair::of(target, place.link().wait_policy(WaitPolicy::sleep_only()));
    let echo = library("echo");
    beside_target(pair, async |link| {
        let (link, local, mut tasks) = (Rc::new(link), LocalSet::new(), JoinSet::new());
        for number in 0..CALLS {
            let (link, echo) = (Rc::clone(&link), echo.clone());
            let call = async move {
                link.send_async(&echo, b"no reply").await.unwrap();
                let call = link.inject_async(&echo, &words(&[number])).await.unwrap();
                assert_eq!(*call.await.unwrap(), *words(&[number]));
            };
            tasks.spawn_local_on(call, &local);
        }
        local
            .run_until(async {
                while let Some(ended) = tasks.join_next().await {
                    ended.unwrap();
                }
            })
            .await;
        assert_eq!(link.stats().frames, 2 * CALLS);
    });
}

#[test]
fn a_future_that_is_not_polled_on_holds_up_no_other_task() {
    let (_place, pair) = Pair::start();
    let echo = library("echo");
    beside_target(pair, async |link| {
        // The first of all waiting calls drives the link, and its task then waits for others.
        let mut driver = pin!(link.inject(&echo, b"first").unwrap());
        assert!(is_pending(driver.as_mut()));
        for number in 0..3_u64 {
            let call = link.inject(&echo, &words(&[number])).unwrap();
            assert_eq!(*call.await.unwrap(), *words(&[number]));
        }
        assert_eq!(*driver.await.unwrap(), *b"first");
    });
}

#[test]
fn a_future_that_is_dropped_leaves_no_slot_and_hands_over() {
    let place = Place::new();
    // The target returns credit for each quarter of the mailbox, here before the source is short of it.
    let (target, link) = (place.target().mailbox_size(1 << 16), place.link().reply_mailbox_size(1 << 16));
    let Pair { link, mut target } = Pair::of(target, link);
    let echo = library("echo");
    let runtime = runtime();
    let _inside = runtime.enter();
    // More calls than a link has slots, if none were freed.
    for round in 0..1100_u64 {
        let mut calls: Vec<_> = (0..32).map(|_| link.inject(&echo, b"dropped").unwrap()).collect();
        for call in &mut calls {
            assert!(is_pending(Pin::new(call)));
        }
        // The first call drives the link. The last has to drive it once the others are gone.
        let kept = link.inject(&echo, &words(&[round])).unwrap();
        let woken = Arc::new(Woken::default());
        let mut kept = pin!(kept);
        assert!(kept.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&woken)))).is_pending());
        drop(calls);
        assert!(woken.take(), "the driver is gone, and no other task knows");
        serve(&mut target);
        let Poll::Ready(reply) = kept.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("the reply is there")
        };
        assert_eq!(*reply.unwrap(), *words(&[round]));
    }
}

/// A waker that remembers whether it was woken.
#[derive(Default)]
struct Woken(Mutex<bool>);

impl Woken {
    fn take(&self) -> bool {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() = true;
    }
}

#[test]
fn a_runtime_timeout_cancels_a_call_and_a_wait_for_credit() {
    let (_place, Pair { link, mut target }) = Pair::start();
    let echo = library("echo");
    let payload = vec![7; 1 << 20];
    runtime().block_on(async {
        let late = tokio::time::timeout(Duration::ZERO, link.inject(&echo, b"late").unwrap()).await;
        assert!(late.is_err());
        // The target does not poll, so its mailbox fills.
        let mut sent = Vec::new();
        while let Ok(call) =
            tokio::time::timeout(Duration::from_millis(20), link.inject_async(&echo, &payload)).await
        {
            sent.push(call.unwrap());
        }
        assert!(!sent.is_empty());
    });
    serve(&mut target);
    let frames = link.stats().frames;
    let mut call = link.inject(&echo, b"next").unwrap();
    assert_eq!(*outcome_of(&mut target, &mut call).unwrap(), *b"next");
    assert_eq!(link.stats().frames, frames + 1, "a wait for credit that was dropped sent nothing");
}

#[test]
fn a_task_that_awaits_credit_goes_on_when_there_is_some() {
    let (place, echo) = (Place::new(), library("echo"));
    for shared in [false, true] {
        let target = place.target().mailbox_size(1 << 16).wait_policy(WaitPolicy::sleep_only());
        let link = place.link().wait_policy(WaitPolicy::sleep_only());
        let Pair { link, mut target } = Pair::of(target, link);
        runtime().block_on(async {
            let stopper = target.stopper();
            let source = async {
                let payload = vec![1; 5000];
                if shared {
                    let link = SharedLink::spawn(link).unwrap();
                    for _ in 0..CALLS {
                        link.send(&echo, &payload).await.unwrap();
                    }
                    assert_eq!(*link.inject(&echo, b"last").await.unwrap().await.unwrap(), *b"last");
                } else {
                    for _ in 0..CALLS {
                        link.send_async(&echo, &payload).await.unwrap();
                    }
                    assert_eq!(*link.inject_async(&echo, b"last").await.unwrap().await.unwrap(), *b"last");
                }
                stopper.stop();
            };
            let (served, ()) = tokio::join!(target.run_async(), source);
            served.unwrap();
        });
        assert_eq!(target.stats().calls, CALLS + 1);
    }
}

#[test]
fn tasks_on_several_threads_share_a_link() {
    let (_place, Pair { link, target }) = Pair::start();
    let echo = library("echo");
    let served = target.spawn().unwrap();
    let stats = runtime_of_threads().block_on(async {
        let link = SharedLink::spawn(link).unwrap();
        let mut tasks = JoinSet::new();
        for task in 0..8_u64 {
            let (link, echo) = (link.clone(), echo.clone());
            tasks.spawn(async move {
                for number in 0..CALLS {
                    let message = words(&[task, number]);
                    let call = link.inject(&echo, &message).await.unwrap();
                    if number % 16 == 0 {
                        drop(call);
                    } else {
                        assert_eq!(*call.await.unwrap(), *message);
                    }
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        let refused = link.inject(&library("sum"), b"odd").await.unwrap().await;
        panicked(refused, "sum");
        link.with(Link::stats).unwrap()
    });
    assert_eq!(stats.frames, 8 * CALLS + 1);
    // The link closed with its last clone.
    let mut target = served.stop().unwrap();
    while target.sources() != 0 {
        target.wait(PATIENCE).unwrap();
        target.poll().unwrap();
    }
}

#[test]
fn typed_calls_are_awaited_on_a_link_and_on_a_shared_one() {
    let sum = library("sum.rs").typed::<[f32], f64>().unwrap();
    let wrong = library("echo").typed::<[u8], u64>().unwrap();
    let (_place, pair) = Pair::start();
    beside_target(pair, async |link| {
        assert_eq!(link.call(&sum, &[0.5, 0.25]).unwrap().await.unwrap(), 0.75);
        let calls: Vec<_> = (0..CALLS).map(|n| (n, link.call(&sum, &[n as f32]).unwrap())).collect();
        for (n, call) in calls {
            assert_eq!(call.await.unwrap(), n as f64);
        }
        // More calls than the source has credit for: the target serves those before while this one is awaited.
        for _ in 0..10 {
            let call = link.call_async(&sum, &[1.0; 200_000]).await.unwrap();
            assert_eq!(call.await.unwrap(), 200_000.0);
        }
        let error = link.call(&wrong, b"seven b").unwrap().await.unwrap_err();
        assert!(matches!(&error, Error::Call(CallError::ReplyLength(found)) if found.len == 7), "{error}");
    });

    let (_place, Pair { link, target }) = Pair::start();
    let served = target.spawn().unwrap();
    runtime_of_threads().block_on(async {
        let link = SharedLink::spawn(link).unwrap();
        let call = link.call(&sum, &[0.5, 0.25]).await.unwrap();
        assert_eq!(tokio::spawn(call).await.unwrap().unwrap(), 0.75, "by another task");
        link.call_one_way(&sum, &[1.0]).await.unwrap();
        let error = link.call(&wrong, b"seven b").await.unwrap().await.unwrap_err();
        assert!(matches!(&error, Error::Call(CallError::ReplyLength(found)) if found.len == 7), "{error}");
        assert_eq!(link.with(Link::stats).unwrap().frames, 3);
    });
    served.stop().unwrap();
}

#[test]
fn the_targets_end_ends_whatever_is_awaited() {
    for shared in [false, true] {
        let (_place, Pair { link, target }) = Pair::start();
        let (echo, payload) = (library("echo"), vec![7; 1 << 20]);
        runtime().block_on(async {
            let end = async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                drop(target);
            };
            let (outcome, sent) = if shared {
                let link = SharedLink::spawn(link).unwrap();
                let call = link.inject(&echo, b"lost").await.unwrap();
                let sends = until_it_fails(async || link.send(&echo, &payload).await);
                let (outcome, sent, ()) = tokio::join!(call, sends, end);
                (outcome, sent)
            } else {
                let call = link.inject(&echo, b"lost").unwrap();
                let sends = until_it_fails(async || link.send_async(&echo, &payload).await);
                let (outcome, sent, ()) = tokio::join!(call, sends, end);
                (outcome, sent)
            };
            peer_gone(outcome);
            peer_gone(Err::<(), _>(sent));
        });
    }
}

async fn until_it_fails(mut send: impl AsyncFnMut() -> Result<(), Error>) -> Error {
    loop {
        if let Err(error) = send().await {
            return error;
        }
    }
}

#[test]
fn a_handler_that_uses_its_shared_link_gets_an_error() {
    let place = Place::new();
    let own = Arc::new(Mutex::new(None::<SharedLink>));
    let (told, own_too) = (Arc::new(Mutex::new(None)), Arc::clone(&own));
    let note = Arc::clone(&told);
    let link = place.link().on_refused(move |_| {
        let link = own_too.lock().unwrap().take().unwrap();
        *note.lock().unwrap() = Some(link.with(Link::stats));
    });
    let Pair { link, mut target } = Pair::of(place.target(), link);
    runtime().block_on(async {
        let link = SharedLink::spawn(link).unwrap();
        *own.lock().unwrap() = Some(link.clone());
        link.send(&library("lookup"), b"").await.unwrap();
        while told.lock().unwrap().is_none() {
            target.poll().unwrap();
            tokio::task::yield_now().await;
        }
    });
    let told = told.lock().unwrap().take().unwrap();
    assert!(matches!(told, Err(Error::Inject(InjectError::Busy))), "{told:?}");
}

#[test]
fn an_outcome_is_awaited_once() {
    let (_place, Pair { link, mut target }) = Pair::start();
    let runtime = runtime();
    let _inside = runtime.enter();
    let mut call = link.inject(&library("echo"), b"once").unwrap();
    assert!(is_pending(Pin::new(&mut call)));
    serve(&mut target);
    let mut poll = || Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(poll(), Poll::Ready(Ok(_))));
    assert!(matches!(poll(), Poll::Ready(Err(Error::Wait(WaitError::Taken { .. })))));
}

#[test]
fn a_link_that_no_task_drives_is_not_awaited() {
    let (_place, Pair { link, target: _target }) = Pair::start();
    let echo = library("echo");
    let call = link.inject(&echo, b"").unwrap();
    let outcome = now(call);
    assert!(matches!(outcome, Err(Error::System(SystemError { .. }))), "outside a runtime: {outcome:?}");
    let shared = SharedLink::new(link);
    let call = now(shared.inject(&echo, b"")).unwrap();
    let outcome = now(call);
    assert!(matches!(outcome, Err(Error::Wait(WaitError::NotDriven { .. }))), "{outcome:?}");
}

/// The output of a future that is ready at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn a_link_is_driven_in_a_runtime_of_the_callers() {
    let (_place, Pair { link, target }) = Pair::start();
    let (served, echo) = (target.spawn().unwrap(), library("echo"));
    let (slept, descriptor) = (Cell::new(0), link.as_fd().unwrap().try_clone_to_owned().unwrap());
    let mut driven = pin!(link.drive(async |longest| {
        slept.set(slept.get() + 1);
        readable(std::os::fd::AsFd::as_fd(&descriptor), longest);
        Ok(())
    }));
    for number in 0..100_u64 {
        let mut call = pin!(async { link.inject_async(&echo, &words(&[number])).await?.await });
        let reply: Reply = loop {
            let context = &mut Context::from_waker(Waker::noop());
            match call.as_mut().poll(context) {
                Poll::Ready(reply) => break reply.unwrap(),
                Poll::Pending => assert!(driven.as_mut().poll(context).is_pending()),
            }
        };
        assert_eq!(*reply, *words(&[number]));
    }
    // On a busy machine each reply may have come before the future would sleep. From here on no reply comes.
    while slept.get() == 0 {
        assert!(driven.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    drop(served);
    // It takes one wake to see the end.
    loop {
        if let Poll::Ready(Err(error)) = driven.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            peer_gone(Err::<(), _>(error));
            break;
        }
    }
}

#[test]
fn a_target_task_survives_a_dropped_future_and_stops_on_request() {
    let place = Place::new();
    let mut target = place.target().build().unwrap();
    let echo = library("echo");
    runtime().block_on(async {
        let link = tokio::select! {
            served = target.run_async() => panic!("{served:?}"),
            link = place.link().connect_async() => link.unwrap(),
        };
        for round in 0..3_u64 {
            let call = link.inject(&echo, &words(&[round])).unwrap();
            let reply = tokio::select! {
                served = target.run_async() => panic!("{served:?}"),
                reply = call => reply.unwrap(),
            };
            assert_eq!(*reply, *words(&[round]));
        }
        target.stopper().stop();
        target.run_async().await.unwrap();
        peer_gone(async { link.inject(&echo, b"")?.await }.await);
    });
}

#[test]
fn connecting_holds_up_no_task_and_is_abandoned_when_it_is_dropped() {
    let place = Place::new();
    runtime().block_on(async {
        let refused = Link::connect_async(&place.address_of("nobody.sock")).await;
        assert!(matches!(refused, Err(Error::Connect(_))), "{refused:?}");
        // A listener that accepts connections and sends nothing.
        let silent = place.path("silent.sock");
        let listener = UnixListener::bind(&silent).unwrap();
        let connect = Link::builder(&format!("unix:{}", silent.display()))
            .connect_timeout(Duration::from_millis(200))
            .connect_async();
        assert!(tokio::time::timeout(Duration::from_millis(10), connect).await.is_err());
        let (stream, _) = listener.accept().unwrap();
        // The thread closes the connection when its own time is up.
        thread::spawn(move || std::io::copy(&mut &stream, &mut std::io::sink())).join().unwrap().unwrap();
        let silence = Link::builder(&format!("unix:{}", silent.display()))
            .connect_timeout(Duration::from_millis(10))
            .connect_async()
            .await;
        assert!(matches!(silence, Err(Error::Connect(_))), "{silence:?}");
    });
}

#[test]
fn a_blocking_wait_leaves_the_tasks_of_its_link_awake() {
    let (_place, Pair { link, target }) = Pair::start();
    let (_served, echo) = (target.spawn().unwrap(), library("echo"));
    runtime().block_on(async {
        let first = link.inject(&echo, b"first").unwrap();
        let wait = async {
            tokio::task::yield_now().await;
            let reply = link.inject(&echo, b"second").unwrap().wait(FOREVER).unwrap();
            assert_eq!(*reply, *b"second");
        };
        let (reply, ()) = tokio::join!(first, wait);
        assert_eq!(*reply.unwrap(), *b"first");
    });
}
