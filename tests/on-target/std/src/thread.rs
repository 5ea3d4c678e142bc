//! Scoped threads, as QuRT's.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::marker::PhantomData;
use estream_sim::memory::{self, Range, Source};
use estream_sim::qurt;
use spin::Mutex;

/// Bytes of a thread's stack, as std has them.
const STACK: u32 = 2 << 20;

type Body<'a> = Box<dyn FnOnce() + Send + 'a>;

struct Running {
    id: u32,
    stack: Range,
}

/// A scope that threads do not outlive.
pub struct Scope<'scope, 'env: 'scope> {
    threads: Mutex<Vec<Running>>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// Runs `body`, then waits for all threads that it started.
///
/// # Panics
/// When a thread panicked.
pub fn scope<'env, T>(body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
    let scope = Scope { threads: Mutex::new(Vec::new()), scope: PhantomData, env: PhantomData };
    let result = body(&scope);
    let threads = core::mem::take(&mut *scope.threads.lock());
    for thread in threads {
        assert!(join(thread) == 0, "a scoped thread panicked");
    }
    result
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread.
    ///
    /// # Panics
    /// When there is none to be had.
    pub fn spawn(&'scope self, body: impl FnOnce() + Send + 'scope) {
        let thread = start(Box::new(body));
        self.threads.lock().push(thread);
    }
}

/// Runs `body` on a thread of its own and waits; whether it returned, rather than panicked.
pub fn returns(body: impl FnOnce() + Send) -> bool {
    join(start(Box::new(body))) == 0
}

/// Lets others run.
pub fn yield_now() {
    estream_sim::sys::sleep_us(0);
}

fn start(body: Body<'_>) -> Running {
    extern "C" fn run(argument: *mut c_void) {
        // SAFETY: `start` made it of such a box, for this thread alone.
        let body = unsafe { Box::from_raw(argument.cast::<Body<'static>>()) };
        body();
        qurt::qurt_thread_exit(0)
    }
    // SAFETY: whoever starts a thread waits for its end while what it borrows is alive; only the lifetime changes.
    let body = unsafe { core::mem::transmute::<Body<'_>, Body<'static>>(body) };
    let stack = memory::map(STACK, Source::Zeros).expect("a stack");
    let attributes = qurt::Attributes::new(stack);
    let mut id = 0;
    let argument = Box::into_raw(Box::new(body)).cast();
    // SAFETY: the id is live, and the stack the thread's until `join` gives it back.
    let created = unsafe { qurt::qurt_thread_create(&raw mut id, &raw const attributes, run, argument) };
    assert!(created == 0, "no thread is to be had");
    Running { id, stack }
}

fn join(thread: Running) -> i32 {
    let mut status = 0;
    // SAFETY: the thread is joined once, and its stack is nobody's afterwards.
    unsafe {
        qurt::qurt_thread_join(thread.id, &raw mut status);
        memory::unmap(thread.stack);
    }
    status
}
