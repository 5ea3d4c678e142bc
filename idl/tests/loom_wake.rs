//! Loom explores how the firmware's threads wait for and wake each other: the doorbell and the pool's gate.
//! `RUSTFLAGS="--cfg loom" cargo test -p estream-idl --release --test loom_wake`.
//!
//! `bell` and `gate` are the firmware's own files, taken in by path because the whole firmware does not stand on loom's
//! atomics; the test stands here because the contract's atomics do. The `platform` below plays the futex, in two ways
//! that are blind in different places, so each model runs under both:
//!
//! * **sleeping**: a waiter sleeps until it is woken, so a lost wake-up is a deadlock, which loom reports. The lock that
//!   makes look and sleep one step, as in a kernel, also orders more than a futex promises.
//! * **spurious**: every wait returns at once, so nothing is ordered but by the code's own atomics, and a missing
//!   acquire or release is a data race, which loom reports.
#![cfg(loom)]

#[path = "../../dsp/src/bell.rs"]
mod bell;
#[path = "../../dsp/src/pool/gate.rs"]
mod gate;

/// A futex for loom's words, under the names that the firmware's platform has.
mod platform {
    use loom::sync::atomic::AtomicU32;
    use loom::sync::{Condvar, Mutex};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Which of the two futexes this run has. A plain atomic: it changes between models only.
    pub(crate) static SLEEPING: AtomicBool = AtomicBool::new(true);

    loom::lazy_static! {
        /// Everyone who sleeps, on whatever word: a wake-up of others is spurious, which a futex's may be too.
        static ref BED: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    pub(crate) fn wait(word: &AtomicU32, seen: u32, _timeout_ns: Option<u64>) {
        if SLEEPING.load(Ordering::Relaxed) {
            let guard = BED.0.lock().unwrap();
            if word.load(Ordering::Relaxed) == seen {
                drop(BED.1.wait(guard).unwrap());
            }
        } else {
            loom::thread::yield_now();
        }
    }

    pub(crate) fn wake(_word: &AtomicU32) {
        if SLEEPING.load(Ordering::Relaxed) {
            drop(BED.0.lock().unwrap());
            BED.1.notify_all();
        }
    }

    /// None: every wait is a wait.
    pub(crate) struct Patience;

    impl Patience {
        pub(crate) fn new() -> Self {
            Self
        }

        pub(crate) fn spin(&mut self) -> bool {
            false
        }
    }
}

use gate::Gate;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use loom::thread;
use std::sync::Mutex;

/// One model at a time: they share the choice of futex.
static TURN: Mutex<()> = Mutex::new(());

/// How waits behave in a model.
#[derive(Clone, Copy)]
enum Futex {
    Sleeping,
    Spurious,
}

const BOTH: &[Futex] = &[Futex::Sleeping, Futex::Spurious];

fn explore(futexes: &[Futex], preemptions: usize, body: impl Fn() + Sync + Send + Copy + 'static) {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for futex in futexes {
        let sleeping = matches!(futex, Futex::Sleeping);
        platform::SLEEPING.store(sleeping, std::sync::atomic::Ordering::Relaxed);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(body);
    }
}

#[test]
fn a_bell_loses_no_news() {
    /// News is a plain cell that `posted` publishes, as a ring's head publishes its entry.
    struct Post {
        bell: AtomicU32,
        posted: AtomicU32,
        news: [UnsafeCell<u32>; 2],
    }
    explore(BOTH, 4, || {
        let post = Arc::new(Post {
            bell: AtomicU32::new(0),
            posted: AtomicU32::new(0),
            news: [UnsafeCell::new(0), UnsafeCell::new(0)],
        });
        let sender = {
            let post = post.clone();
            thread::spawn(move || {
                for number in 0..2 {
                    // SAFETY: loom checks that nobody else reads or writes the cell meanwhile.
                    post.news[number as usize].with_mut(|news| unsafe { *news = 7 + number });
                    post.posted.store(number + 1, Ordering::Release);
                    bell::ring(&post.bell);
                }
            })
        };
        for number in 0..2 {
            loop {
                let seen = bell::read(&post.bell);
                if post.posted.load(Ordering::Acquire) > number {
                    break;
                }
                platform::wait(&post.bell, seen, None);
            }
            // SAFETY: loom checks that nobody writes the cell meanwhile.
            assert_eq!(post.news[number as usize].with(|news| unsafe { *news }), 7 + number);
        }
        sender.join().unwrap();
    });
}

/// What a pool shares, with the job as the plain cell that the gate guards and one plain cell for each task.
struct Work {
    gate: Gate,
    next: AtomicUsize,
    job: UnsafeCell<u32>,
    done: [UnsafeCell<u32>; 2],
}

impl Work {
    fn new() -> Self {
        Self {
            gate: Gate::new(),
            next: AtomicUsize::new(0),
            job: UnsafeCell::new(0),
            done: [UnsafeCell::new(0), UnsafeCell::new(0)],
        }
    }

    /// The loop of a worker inside a job.
    fn work(&self) {
        // SAFETY: loom checks that nobody writes the job meanwhile.
        let job = self.job.with(|job| unsafe { *job });
        loop {
            let task = self.next.fetch_add(1, Ordering::Relaxed);
            if task >= self.done.len() {
                return self.gate.shut();
            }
            // SAFETY: loom checks that nobody else reads or writes the task's cell meanwhile.
            self.done[task].with_mut(|done| unsafe { *done += job });
        }
    }

    fn help(&self) {
        while self.gate.enter() {
            self.work();
            self.gate.leave();
        }
    }

    /// A job as the pool runs it: every task adds `job` to its cell.
    fn run(&self, job: u32) {
        assert!(self.gate.claim(), "nobody else has a job");
        // SAFETY: loom checks that nobody reads or writes the job meanwhile.
        self.job.with_mut(|cell| unsafe { *cell = job });
        self.next.store(0, Ordering::Relaxed);
        self.gate.open();
        self.work();
        self.gate.close();
    }

    fn check(&self, sum: u32) {
        for done in &self.done {
            // SAFETY: loom checks that nobody writes the cell meanwhile.
            assert_eq!(done.with(|done| unsafe { *done }), sum, "each task of each job exactly once");
        }
    }
}

fn jobs(helpers: usize, jobs: u32) {
    assert!(helpers <= gate::MAX_HELPERS);
    let work = Arc::new(Work::new());
    let threads: Vec<_> = (0..helpers)
        .map(|_| {
            let work = work.clone();
            thread::spawn(move || work.help())
        })
        .collect();
    for job in 1..=jobs {
        work.run(job);
        work.check((1..=job).sum());
    }
    work.gate.stop();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn one_helper_two_jobs() {
    explore(BOTH, 2, || jobs(1, 2));
}

#[test]
fn two_helpers_one_job() {
    // Two that yield to each other for ever are a path without end: here waits sleep.
    explore(&[Futex::Sleeping], 2, || jobs(2, 1));
}

#[test]
fn a_second_opener_is_turned_away_or_comes_after() {
    /// A job of one task, done by its opener; whether the gate let it be.
    fn count(work: &Work) -> bool {
        let claimed = work.gate.claim();
        if claimed {
            // SAFETY: loom checks that nobody else reads or writes the job meanwhile.
            work.job.with_mut(|job| unsafe { *job += 1 });
            work.gate.open();
            // SAFETY: as above; nobody helps, so the task is the opener's.
            work.done[0].with_mut(|done| unsafe { *done += 1 });
            work.gate.close();
        }
        claimed
    }
    explore(BOTH, 3, || {
        let work = Arc::new(Work::new());
        let other = {
            let work = work.clone();
            thread::spawn(move || count(&work))
        };
        let claims = u32::from(count(&work)) + u32::from(other.join().unwrap());
        assert!(claims >= 1, "one of the two was first");
        // SAFETY: both are done.
        assert_eq!(work.job.with(|job| unsafe { *job }), claims);
        // SAFETY: both are done.
        assert_eq!(work.done[0].with(|done| unsafe { *done }), claims);
    });
}
