//! What a thread has besides its registers: the memory that stubs save and load through the global pointer, the stack that
//! models run on, and what it has counted.
//!
//! Each thread of the domain has one, by its place in the table of threads, and its global pointer points there from its
//! first instruction on. The firmware's own stacks are as large as on a device, so nothing here runs on them. A context
//! outlives its thread and passes to the next one in that place.

use crate::counts::Counts;
use crate::memory::{self, Source};
use crate::units;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};
use estream_kernels_asm::model::float::Operands;
use estream_patch::context as at;
use estream_patch::site::RESULTS;

/// A vector register's value.
pub type Vector = [u32; 32];

/// A vector where it can be loaded.
#[repr(align(128))]
pub struct Aligned(pub Vector);

/// Threads that may have one: those of the table, and the one that carries calls.
pub const CONTEXTS: usize = crate::qurt::THREADS + 1;
/// Bytes of stack for the models: the matrix unit's decodes two operands of a chain at a time.
const STACK_BYTES: usize = 64 << 10;

/// A thread's context. The first fields are where stubs and entry look for them.
#[repr(C, align(128))]
pub struct Context {
    /// Vectors that models made.
    pub results: [Vector; RESULTS],
    /// r0 to r31 before the packet.
    pub registers: [u32; 32],
    /// sa0, lc0, sa1, lc1.
    pub loops: [u32; 4],
    /// m0, m1.
    pub modifiers: [u32; 2],
    /// p3:0.
    pub predicates: u32,
    status: u32,
    back: u32,
    stack_top: u32,
    saved: [u32; 6],
    /// Scalars that models made, by the place of their word.
    pub scalars: [u32; 4],
    /// Where the late store goes.
    pub store: u32,
    /// The late store's base register after its step.
    pub base: u32,
    /// The simulator's counters when the entry was called.
    pub entered: [u32; 3],
    /// What was executed beyond the packets of the skel.
    pub surplus: [u32; 3],
    /// Where a late store goes whose condition is false.
    pub sink: Aligned,
    /// What the model of a vector instruction reads.
    pub operands: Operands,
    /// The operator that the thread works for, 0 for whichever the domain does.
    pub operator: u32,
    /// What it has counted, by operator.
    pub counts: Counts,
    /// What the stack must not grow into.
    guard: u32,
    stack: [u8; STACK_BYTES],
}

/// What stands below the stack.
const GUARD: u32 = 0x5354_4f50;

const _: () = {
    assert!(offset_of!(Context, results) == at::RESULTS_AT as usize);
    assert!(offset_of!(Context, registers) == at::REGISTERS_AT as usize);
    assert!(offset_of!(Context, loops) == at::LOOPS_AT as usize);
    assert!(offset_of!(Context, modifiers) == at::MODIFIERS_AT as usize);
    assert!(offset_of!(Context, predicates) == at::PREDICATES_AT as usize);
    assert!(offset_of!(Context, status) == at::STATUS_AT as usize);
    assert!(offset_of!(Context, back) == at::RETURN_AT as usize);
    assert!(offset_of!(Context, stack_top) == at::STACK_AT as usize);
    assert!(offset_of!(Context, saved) == at::SAVED_AT as usize);
    assert!(offset_of!(Context, scalars) == at::SCALARS_AT as usize);
    assert!(offset_of!(Context, store) == at::STORE_AT as usize);
    assert!(offset_of!(Context, base) == at::BASE_AT as usize);
    assert!(offset_of!(Context, entered) == at::ENTERED_AT as usize);
    assert!(offset_of!(Context, surplus) == at::SURPLUS_AT as usize);
    assert!(offset_of!(Context, sink) == at::SINK_AT as usize);
};

impl Context {
    /// Whether no model has needed more stack than there is.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.guard == GUARD
    }
}

/// Where the contexts are that were asked for; 0 for none. They are mapped, not static, so that a program's stubs stay in
/// reach of its code.
static PLACES: [AtomicU32; CONTEXTS] = [const { AtomicU32::new(0) }; CONTEXTS];

/// The context of the thread with this id, made ready for a thread to begin with: what its global pointer is to hold. None
/// where there is no memory for it.
///
/// # Safety
/// No thread that runs has this id, or the caller is the one that does and has no other use of its context.
#[must_use]
pub unsafe fn prepare(id: u32) -> Option<u32> {
    let place = PLACES.get(id as usize)?;
    if place.load(Ordering::Relaxed) == 0 {
        let range = memory::map(size_of::<Context>() as u32, Source::Zeros)?;
        place.store(range.base.addr().get() as u32, Ordering::Release);
    }
    let at = place.load(Ordering::Relaxed);
    let context: *mut Context = core::ptr::with_exposed_provenance_mut(at as usize);
    // SAFETY: the mapping is aligned and large enough, zeros are a context, and by the caller's promise nobody else uses it.
    let context = unsafe { &mut *context };
    let stack = context.stack.as_ptr().addr() as u32;
    context.stack_top = (stack + STACK_BYTES as u32) & !127;
    context.operator = 0;
    context.guard = GUARD;
    units::reset_engine(id);
    Some(at)
}

/// Gives the calling thread the context of its id, if nobody did when it was started: the one that carries calls.
pub fn adopt() {
    // SAFETY: this is the thread with that id, and no stub is being run.
    let context = unsafe { prepare(crate::qurt::qurt_thread_get_id()) }.unwrap_or(0);
    // SAFETY: the register has no other use in this program or in a skel.
    unsafe { core::arch::asm!("gp = {}", in(reg) context, options(nomem, nostack)) };
}

/// The calling thread's context.
#[must_use]
pub fn own() -> *mut Context {
    let context: u32;
    // SAFETY: reads a register that only the start of a thread sets.
    unsafe { core::arch::asm!("{} = gp", out(reg) context, options(nomem, nostack)) };
    core::ptr::with_exposed_provenance_mut(context as usize)
}

/// What all threads have counted.
pub fn counts() -> impl Iterator<Item = &'static Counts> {
    let places = PLACES.iter().map(|place| place.load(Ordering::Acquire));
    places.filter(|&at| at != 0).map(|at| {
        let context: *const Context = core::ptr::with_exposed_provenance(at as usize);
        // SAFETY: a context stays mapped; the counts are atomics, so that they may be read while their thread counts.
        unsafe { &(*context).counts }
    })
}
