//! Threads that wait on one link, beside event loops and tasks: each gets its outcome, whichever of them looks.

use std::fs;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use farjump::{Ended, Error, HeldLink, Library, Patience, Pending, SharedLink, SharedPending, WaitError};

use crate::support::{FOREVER, PATIENCE, Pair, eventually, in_child, library, readable, serve, words};

fn inject(link: &SharedLink, library: &Library, args: &[u8]) -> u32 {
    link.with(|link| link.inject(library, args).map(Pending::into_raw)).unwrap().unwrap()
}

/// A task on this thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let (waker, mut future) = (Waker::from(Arc::new(Unpark(thread::current()))), pin!(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park_timeout(PATIENCE);
    }
}

#[test]
fn each_thread_gets_its_outcome_beside_tasks_and_an_event_loop() {
    for is_driven in [false, true] {
        let (_place, Pair { link, target }) = Pair::start();
        let (served, echo) = (target.spawn().unwrap(), library("echo"));
        let link = SharedLink::new(link);
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let callers: Vec<_> = (0..4_u64)
                .map(|thread| {
                    let (link, echo) = (&link, &echo);
                    scope.spawn(move || {
                        for call in 0..500 {
                            let args = words(&[thread, call]);
                            let number = inject(link, echo, &args);
                            assert_eq!(*link.wait(number, &mut Patience::of(PATIENCE)).unwrap(), *args);
                        }
                    })
                })
                .collect();
            if is_driven {
                scope.spawn(|| {
                    let _driven = link.drive_by_thread().unwrap();
                    for call in 0..500_u64 {
                        let args = words(&[call]);
                        let reply = block_on(async { link.inject(&echo, &args).await?.await });
                        assert_eq!(*reply.unwrap(), *args);
                    }
                });
            } else {
                let (link, ended) = (&link, &ended);
                scope.spawn(move || {
                    let sleeper = link.hold(HeldLink::add_sleeper).unwrap().unwrap();
                    while !ended.load(Ordering::Relaxed) {
                        if let Some(longest) = link.hold(|held| held.begin_sleep(&sleeper)).unwrap() {
                            readable(sleeper.as_fd(), longest.min(Duration::from_millis(50)));
                        }
                        let woken = link.hold(|held| held.end_sleep(&sleeper)).unwrap();
                        if !woken {
                            link.hold(|held| held.wake_others(Some(&sleeper))).unwrap();
                        }
                    }
                });
            }
            callers.into_iter().for_each(|caller| caller.join().unwrap());
            ended.store(true, Ordering::Relaxed);
        });
        served.stop().unwrap();
    }
}

#[test]
fn a_look_that_takes_outcomes_wakes_each_sleeper_once() {
    let (_place, Pair { link, mut target }) = Pair::start();
    let (link, echo) = (SharedLink::new(link), library("echo"));
    let sleepers = [(); 2].map(|()| link.hold(HeldLink::add_sleeper).unwrap().unwrap());
    for _ in 0..2 {
        let number = inject(&link, &echo, b"for all");
        for sleeper in &sleepers {
            while link.hold(|held| held.begin_sleep(sleeper)).unwrap().is_none() {}
        }
        link.with(|link| assert!(link.poll_raw(number).unwrap().is_none())).unwrap();
        serve(&mut target);
        assert!(sleepers.iter().all(|sleeper| readable(sleeper.as_fd(), PATIENCE)));
        assert_eq!(*link.wait(number, &mut Patience::of(PATIENCE)).unwrap(), *b"for all");
        for was_woken in [true, false] {
            for sleeper in &sleepers {
                assert_eq!(link.hold(|held| held.end_sleep(sleeper)).unwrap(), was_woken);
            }
        }
    }
}

#[test]
fn closing_a_shared_link_ends_all_that_wait_for_it() {
    for is_driven in [false, true] {
        let (_place, Pair { link, target: _target }) = Pair::start();
        let (link, echo) = (SharedLink::new(link), library("echo"));
        let driven = is_driven.then(|| link.drive_by_thread().unwrap());
        let numbers = [0, 1, 2].map(|_| inject(&link, &echo, b""));
        let begun = Instant::now();
        let (sender, ends) = mpsc::channel();
        thread::scope(|scope| {
            for number in numbers {
                let (link, sender) = (link.clone(), sender.clone());
                scope.spawn(move || sender.send(link.wait(number, &mut Patience::of(FOREVER))));
            }
            if is_driven {
                let (pending, sender) = (link.pending_from_raw(inject(&link, &echo, b"")), sender.clone());
                scope.spawn(move || sender.send(block_on(pending).map_err(Ended::Failed)));
            }
            thread::sleep(Duration::from_millis(20));
            link.close().unwrap();
            for _ in 0..numbers.len() + usize::from(is_driven) {
                let ended = ends.recv_timeout(PATIENCE).unwrap();
                let is_closed = matches!(ended, Err(Ended::Failed(Error::Wait(WaitError::Closed { .. }))));
                assert!(is_closed, "{ended:?}");
            }
        });
        assert!(begun.elapsed() < PATIENCE);
        let later = link.with(|link| link.stats());
        assert!(matches!(later, Err(Error::Wait(WaitError::Closed { .. }))), "{later:?}");
        drop(driven);
    }
}

#[test]
fn a_thread_drives_while_it_has_users_and_leaves_sleepers_armed() {
    let (_place, Pair { link, mut target }) = Pair::start();
    let (link, echo) = (SharedLink::new(link), library("echo"));
    let poll = |pending: Pin<&mut SharedPending>| pending.poll(&mut Context::from_waker(Waker::noop()));
    let [first, last] = [(); 2].map(|()| link.drive_by_thread().unwrap());
    let mut pending = pin!(link.pending_from_raw(inject(&link, &echo, b"")));
    drop(first);
    assert!(poll(pending.as_mut()).is_pending());
    drop(last);
    let ended = poll(pending.as_mut());
    assert!(matches!(ended, Poll::Ready(Err(Error::Wait(WaitError::NotDriven { .. })))), "{ended:?}");
    let sleeper = link.hold(HeldLink::add_sleeper).unwrap().unwrap();
    inject(&link, &echo, b"");
    while link.hold(|held| held.begin_sleep(&sleeper)).unwrap().is_none() {}
    // The thread notices within a second that it has no user.
    thread::sleep(Duration::from_millis(1200));
    serve(&mut target);
    assert!(readable(sleeper.as_fd(), PATIENCE));
}

#[test]
fn the_thread_that_drives_ends_with_its_link() {
    // With those of tests beside this one, which end as well.
    let threads = || {
        let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.trim() == "farjump-calls").count()
    };
    for has_user in [true, false] {
        let (_place, Pair { link, target: _target }) = Pair::start();
        let link = SharedLink::new(link);
        let driven = Some(link.drive_by_thread().unwrap()).filter(|_| has_user);
        eventually(|| threads() != 0);
        drop(link);
        eventually(|| threads() == 0);
        drop(driven);
    }
}

#[test]
fn a_forked_child_does_not_wait_for_a_lock_of_its_parent() {
    let (_place, Pair { link, target: _target }) = Pair::start();
    let (link, echo) = (SharedLink::new(link), library("echo"));
    let number = inject(&link, &echo, b"");
    thread::scope(|scope| {
        let (has, is_held) = mpsc::channel();
        let (_lets_go, released) = mpsc::channel::<()>();
        let holder = &link;
        scope.spawn(move || {
            holder.hold(|_| {
                has.send(()).unwrap();
                released.recv()
            })
        });
        is_held.recv().unwrap();
        in_child(|| {
            let waited = link.wait(number, &mut Patience::of(FOREVER));
            matches!(waited, Err(Ended::Failed(Error::Wait(WaitError::Forked { .. }))))
                && matches!(link.close(), Err(Error::Wait(WaitError::Forked { .. })))
                && matches!(link.drive_by_thread(), Err(Error::Wait(WaitError::Forked { .. })))
        });
    });
    link.with(|link| assert!(link.poll_raw(number).unwrap().is_none())).unwrap();
}

#[test]
fn an_interruption_goes_before_an_outcome_that_came_with_it() {
    let (_place, Pair { link, mut target }) = Pair::start();
    let (link, echo) = (SharedLink::new(link), library("echo"));
    let number = inject(&link, &echo, b"late");
    let mut check = || {
        serve(&mut target);
        false
    };
    let mut patience = Patience::of(PATIENCE).checked_by(&mut check);
    let interrupted = link.wait(number, &mut patience);
    assert!(matches!(interrupted, Err(Ended::Interrupted)), "{interrupted:?}");
    let undone = Arc::new(AtomicU32::new(0));
    let undoes = Arc::clone(&undone);
    link.abandon_undoing(number, move |_, reply| {
        assert_eq!(*reply, *b"late");
        undoes.fetch_add(1, Ordering::Relaxed);
    });
    assert!(link.has_late());
    link.hold(HeldLink::settle).unwrap();
    link.hold(HeldLink::settle).unwrap();
    assert!(!link.has_late());
    assert_eq!(undone.load(Ordering::Relaxed), 1);
    let taken = link.wait(number, &mut Patience::of(PATIENCE));
    assert!(matches!(taken, Err(Ended::Failed(Error::Wait(WaitError::Taken { .. })))), "{taken:?}");
}

#[test]
fn a_wait_sleeps_inside_the_function_around_its_sleeps() {
    let (_place, Pair { link, mut target }) = Pair::start();
    let (link, echo) = (SharedLink::new(link), library("echo"));
    let number = inject(&link, &echo, b"at last");
    let mut sleeps = 0;
    // The target runs before a sleep alone, so the wait has to look after it.
    let mut around = |sleep: &mut (dyn FnMut() + Send)| {
        sleeps += 1;
        serve(&mut target);
        sleep();
    };
    let mut patience = Patience::of(PATIENCE).sleeping_in(&mut around);
    assert_eq!(*link.wait(number, &mut patience).unwrap(), *b"at last");
    assert_eq!(sleeps, 1);
}
