//! The worker pool: one job at a time, cut into tasks that the workers take as they come free.
//!
//! Threads and stacks are made by [`Pool::new`] and joined on drop; a job between allocates nothing. The thread that calls
//! [`Pool::run`] is worker 0 and works too; the others come in through the `gate` when they are awake, so a job never
//! waits for a sleeper. Which worker does which task is left to chance, hence no result may depend on it (law 1): a task
//! writes its own block and nothing else, which [`Pool::columns`], [`Pool::rows`] and [`Pool::tiles`] make so by type.
//!
//! A task that starts another job, or a second thread that does, finds the gate claimed and simply does all of its job
//! itself. A panic in a task is a bug of this crate: on the DSP it aborts; natively the job ends for all workers first and
//! the panic then surfaces from `run`, so that no thread is left with a borrow that has ended.

mod gate;
#[cfg(test)]
mod tests;

use crate::matrix::Machine;
use crate::platform::{Memory, Thread, guarded, spawn};
use crate::view::{Block, Grid};
use core::cell::UnsafeCell;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use estream_idl::address::TILE;
use estream_idl::status::{Refusal, Status};
use gate::Gate;

/// Most workers of a pool, the calling thread among them.
pub const MAX_THREADS: usize = 64;

const _: () = assert!(MAX_THREADS - 1 <= gate::MAX_HELPERS);

/// A job's body: worker number and task number in.
type Body<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// The body of [`Pool::tiles`]: row block, column block, the block itself, the worker's scratch.
pub type TileBody<'a> = dyn Fn(usize, usize, Block<'_>, &mut [f32]) + Sync + 'a;

/// The body of [`Pool::tables`]: first row, and the rows of each table.
pub type TableBody<'a, A, B, C> = dyn Fn(usize, &mut [A], &mut [B], &mut [C]) + Sync + 'a;

/// A job as workers see it. The body's lifetime is erased; [`Pool::run`] says why that is sound.
#[derive(Clone, Copy)]
struct Job {
    body: *const Body<'static>,
    tasks: usize,
}

/// What the threads of a pool share, in a block of its own: it must stay where it is while any of them runs.
#[repr(align(128))]
struct Shared {
    gate: Gate,
    /// The next task that nobody has taken; past the last one when all are.
    next: AtomicUsize,
    /// Helpers that have come up: each takes its number here.
    helpers: AtomicUsize,
    /// Under the gate's rule: written with the gate claimed and nobody inside, read from inside.
    job: UnsafeCell<Option<Job>>,
}

// SAFETY: everything is atomic but `job`, which the gate hands from one side to the other.
unsafe impl Sync for Shared {}

impl Shared {
    /// Takes tasks until none is left, then shuts the gate.
    fn work(&self, worker: usize, tasks: usize, body: &Body<'_>) {
        loop {
            // Ordering: the counter only hands out numbers; the gate orders the data.
            let task = self.next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                return self.gate.shut();
            }
            body(worker, task);
        }
    }
}

/// A helper's life.
fn help(shared: usize) {
    let shared = core::ptr::with_exposed_provenance::<Shared>(shared);
    // SAFETY: `Pool::new` exposed this address, and the block outlives this thread: the pool joins it before it frees the
    // block, and a pool that is leaked leaks the block as well.
    let shared = unsafe { &*shared };
    let worker = shared.helpers.fetch_add(1, Ordering::Relaxed) + 1;
    while shared.gate.enter() {
        // SAFETY: inside the gate nobody writes the job.
        let job = unsafe { *shared.job.get() };
        if let Some(Job { body, tasks }) = job {
            // SAFETY: the body is borrowed by `run`, which does not return or unwind before this thread has left.
            let body = unsafe { &*body };
            shared.work(worker, tasks, body);
        }
        shared.gate.leave();
    }
}

/// A pool of workers.
#[derive(Debug)]
pub struct Pool<'a> {
    /// Counted up by the calling thread after each of its tasks: a sign of life in the middle of a long job.
    beat: Option<&'a AtomicU32>,
    /// Joined on drop, before the block is freed.
    helpers: heapless::Vec<Thread, { MAX_THREADS - 1 }>,
    /// The matrix unit of the calling thread.
    matrix: Option<Machine>,
    /// Holds the [`Shared`] at its start; freed after the threads are joined.
    _block: Memory,
    shared: NonNull<Shared>,
}

// SAFETY: the pool owns its block and threads; `shared` points into that block.
unsafe impl Send for Pool<'_> {}
// SAFETY: through `&Pool` only the Sync `Shared` is reached.
unsafe impl Sync for Pool<'_> {}

impl<'a> Pool<'a> {
    /// A pool of `threads` workers: the calling thread and `threads − 1` new ones.
    ///
    /// # Errors
    /// [`Status::BadConfig`] for none or more than [`MAX_THREADS`]; [`Status::NoMemory`] or [`Status::NoThreads`] when the
    /// platform refuses, with nothing left behind.
    pub fn new(threads: usize) -> Result<Self, Status> {
        Self::beating(threads, None)
    }

    /// As [`Self::new`], with a word that is counted up while jobs go on.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn beating(threads: usize, beat: Option<&'a AtomicU32>) -> Result<Self, Status> {
        if threads == 0 || threads > MAX_THREADS {
            return Err(Status::BadConfig);
        }
        let mut block = Memory::request(size_of::<Shared>()).ok_or(Status::NoMemory)?;
        let shared = NonNull::from(block.as_mut_slice()).cast::<Shared>();
        // SAFETY: the block is large enough and aligned to a page.
        unsafe {
            shared.write(Shared {
                gate: Gate::new(),
                next: AtomicUsize::new(0),
                helpers: AtomicUsize::new(0),
                job: UnsafeCell::new(None),
            });
        }
        let mut pool = Self { beat, helpers: heapless::Vec::new(), matrix: None, _block: block, shared };
        for _ in 1..threads {
            // A refusal drops the pool, which sends home and joins the helpers made so far.
            let helper = spawn("estream-worker", help, shared.as_ptr().expose_provenance())?;
            if pool.helpers.push(helper).is_err() {
                return Err(Status::BadConfig);
            }
        }
        Ok(pool)
    }

    /// The pool with a matrix unit, which the thread that calls [`Self::run`] owns.
    #[must_use]
    pub fn with_matrix(mut self, matrix: Machine) -> Self {
        self.matrix = Some(matrix);
        self
    }

    /// The matrix unit, where products are its.
    #[must_use]
    pub const fn matrix(&self) -> Option<&Machine> {
        self.matrix.as_ref()
    }

    /// Whether the matrix unit, where there is one, was given nothing that it cannot compute since the last look.
    ///
    /// # Errors
    /// As [`Machine::check`].
    pub fn check(&self) -> Result<(), Refusal> {
        self.matrix.as_ref().map_or(Ok(()), Machine::check)
    }

    /// A sign of life in the middle of a long task of the calling thread.
    pub fn beat(&self) {
        if let Some(beat) = self.beat {
            beat.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Workers, the calling thread among them.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    fn shared(&self) -> &Shared {
        // SAFETY: written by `new`, in the block that the pool owns, and never moved or written as a whole again.
        unsafe { self.shared.as_ref() }
    }

    /// Calls `body(worker, task)` once for every task in `0..tasks` and returns when all are done. No two calls that run
    /// side by side have the same worker number.
    ///
    /// # Panics
    /// When a task panics, after the job has ended for all workers.
    pub fn run(&self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        let shared = self.shared();
        let beating = |worker: usize, task: usize| {
            body(worker, task);
            if let (0, Some(beat)) = (worker, self.beat) {
                beat.fetch_add(1, Ordering::Relaxed);
            }
        };
        let body: &(dyn Fn(usize, usize) + Sync) = &beating;
        if self.helpers.is_empty() || tasks <= 1 || !shared.gate.claim() {
            return (0..tasks).for_each(|task| body(0, task));
        }
        /// Closes the gate on return and on unwinding alike.
        struct Closing<'a>(&'a Gate);
        impl Drop for Closing<'_> {
            fn drop(&mut self) {
                self.0.close();
            }
        }
        let failed = AtomicBool::new(false);
        let contained = |worker, task| {
            if worker == 0 {
                body(worker, task);
            } else if !guarded(|| body(worker, task)) {
                failed.store(true, Ordering::Relaxed);
            }
        };
        let contained: *const Body<'_> = &contained;
        // SAFETY: only the lifetime changes. Helpers use the body between `enter` and `leave`; `closing` waits for the last
        // `leave` before this call, and so all that the body borrows, ends.
        let erased = unsafe { core::mem::transmute::<*const Body<'_>, *const Body<'static>>(contained) };
        // SAFETY: the gate is claimed and nobody is inside.
        unsafe { *shared.job.get() = Some(Job { body: erased, tasks }) };
        shared.next.store(0, Ordering::Relaxed);
        let closing = Closing(&shared.gate);
        shared.gate.open();
        shared.work(0, tasks, body);
        drop(closing);
        assert!(!failed.load(Ordering::Relaxed), "a task panicked on another thread of the pool");
    }

    /// Cuts `out` into blocks of `width` columns (the last may be narrower) and calls `body(strip, block, scratch)` once
    /// for each. `scratch` is shared out equally among the workers: see [`Pool::share`].
    ///
    /// # Panics
    /// When `width` is 0, or a task panics.
    pub fn columns(
        &self,
        out: Grid<'_>,
        width: usize,
        scratch: &mut [f32],
        body: &(dyn Fn(usize, Block<'_>, &mut [f32]) + Sync),
    ) {
        let height = out.rows().max(1);
        self.tiles(out, height, width, scratch, &|_, strip, block, scratch| body(strip, block, scratch));
    }

    /// Cuts `out` into blocks of `height` rows (the last may be lower) and calls `body(first row, block, scratch)` once
    /// for each.
    ///
    /// # Panics
    /// When `height` is 0, or a task panics.
    pub fn rows(
        &self,
        out: Grid<'_>,
        height: usize,
        scratch: &mut [f32],
        body: &(dyn Fn(usize, Block<'_>, &mut [f32]) + Sync),
    ) {
        let width = out.columns().max(1);
        self.tiles(out, height, width, scratch, &|row, _, block, scratch| body(row * height, block, scratch));
    }

    /// Cuts `out` into blocks of `height` rows by `width` columns and calls `body(row block, column block, block,
    /// scratch)` once for each. Row blocks of one column block are taken one after another, so that neighbours in time
    /// use the same weights. Column blocks are taken far from each other at a time, as if each worker had a share of its
    /// own: where neighbours have a cache line in common, two workers that wrote to it at once would pull it to and fro.
    ///
    /// # Panics
    /// When `height` or `width` is 0, or a task panics.
    pub fn tiles(
        &self,
        out: Grid<'_>,
        height: usize,
        width: usize,
        scratch: &mut [f32],
        body: &TileBody<'_>,
    ) {
        assert!(height > 0 && width > 0, "blocks have rows and columns");
        let (rows, columns) = (out.rows(), out.columns());
        let (row_blocks, column_blocks) = (rows.div_ceil(height), columns.div_ceil(width));
        let shares = Shares::new(scratch, self.threads());
        self.run(row_blocks * column_blocks, &|worker, task| {
            let (row, column) = (task % row_blocks, spread(task / row_blocks, column_blocks, self.threads()));
            // SAFETY: each task is called once and has its own (row, column), so its block overlaps no other.
            let block = unsafe { out.block(cut(row, height, rows), cut(column, width, columns)) };
            // SAFETY: no two calls that run side by side have the same worker number.
            body(row, column, block, unsafe { shares.of(worker) });
        });
    }

    /// Cuts three tables of `rows` rows each into blocks of `height` rows and calls `body(first row, block of each)` once for
    /// each block. For rows of what a grid does not hold: numbers chosen, summaries, candidates.
    ///
    /// # Panics
    /// When `height` is 0, a table's elements are no whole rows, or a task panics.
    pub fn tables<A: Send, B: Send, C: Send>(
        &self,
        rows: usize,
        height: usize,
        (a, b, c): (&mut [A], &mut [B], &mut [C]),
        body: &TableBody<'_, A, B, C>,
    ) {
        assert!(height > 0, "blocks have rows");
        let (a, b, c) = (Table::new(a, rows), Table::new(b, rows), Table::new(c, rows));
        self.run(rows.div_ceil(height), &|_, task| {
            let rows = cut(task, height, rows);
            // SAFETY: each task is called once and has its own rows, so its blocks overlap no others.
            let (a, b, c) = unsafe { (a.rows(&rows), b.rows(&rows), c.rows(&rows)) };
            body(rows.start, a, b, c);
        });
    }

    /// Elements that each worker gets of `scratch` elements: an equal share in whole 128-byte lines, so that workers share
    /// no line where the scratch begins on one.
    #[must_use]
    pub fn share(&self, scratch: usize) -> usize {
        share(scratch, self.threads())
    }
}

impl Drop for Pool<'_> {
    fn drop(&mut self) {
        self.shared().gate.stop();
        while let Some(helper) = self.helpers.pop() {
            helper.join();
        }
    }
}

/// The place of task `number` of `count`, where consecutive tasks go round `shares` equal shares, each in ascending order.
fn spread(number: usize, count: usize, shares: usize) -> usize {
    let (share, turn) = (number % shares, number / shares);
    share * (count / shares) + share.min(count % shares) + turn
}

/// Part `number` of `whole`, in parts of `part`.
fn cut(number: usize, part: usize, whole: usize) -> Range<usize> {
    number * part..whole.min((number + 1) * part)
}

fn share(scratch: usize, threads: usize) -> usize {
    scratch / threads / TILE * TILE
}

/// A table that tasks write row by row.
struct Table<'a, T> {
    base: NonNull<T>,
    rows: usize,
    width: usize,
    owner: core::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: an exclusive slice of elements that may be sent; `rows`'s contract keeps what threads reach through it disjoint.
unsafe impl<T: Send> Sync for Table<'_, T> {}

impl<'a, T> Table<'a, T> {
    fn new(table: &'a mut [T], rows: usize) -> Self {
        let width = table.len().checked_div(rows).unwrap_or(0);
        assert!(table.len() == rows * width, "whole rows");
        Self { base: NonNull::from(table).cast(), rows, width, owner: core::marker::PhantomData }
    }

    /// The elements of these rows.
    ///
    /// # Safety
    /// No two slices that are alive at once overlap.
    #[allow(clippy::mut_from_ref)]
    unsafe fn rows(&self, rows: &Range<usize>) -> &mut [T] {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows out of the table");
        // SAFETY: the rows lie inside the slice by the assertion, and are the caller's alone (contract).
        unsafe {
            let first = self.base.add(rows.start * self.width).as_ptr();
            core::slice::from_raw_parts_mut(first, rows.len() * self.width)
        }
    }
}

/// Scratch shared out among workers.
struct Shares<'a> {
    base: NonNull<f32>,
    each: usize,
    threads: usize,
    owner: core::marker::PhantomData<&'a mut [f32]>,
}

// SAFETY: an exclusive slice; `of`'s contract keeps what threads reach through it disjoint.
unsafe impl Sync for Shares<'_> {}

impl<'a> Shares<'a> {
    fn new(scratch: &'a mut [f32], threads: usize) -> Self {
        let each = share(scratch.len(), threads);
        Self { each, threads, base: NonNull::from(scratch).cast(), owner: core::marker::PhantomData }
    }

    /// The share of `worker`.
    ///
    /// # Safety
    /// No two shares of one worker are alive at once.
    #[allow(clippy::mut_from_ref)]
    unsafe fn of(&self, worker: usize) -> &mut [f32] {
        assert!(worker < self.threads, "a worker of this pool");
        // SAFETY: the share lies inside the slice, overlaps no other worker's, and is the worker's alone (contract).
        unsafe { core::slice::from_raw_parts_mut(self.base.add(worker * self.each).as_ptr(), self.each) }
    }
}
