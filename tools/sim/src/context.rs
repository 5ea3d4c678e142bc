//! What a thread has besides its registers: the memory that stubs save and load through the global pointer, the stack that
//! models run on, and what it has counted.
//!
//! Each thread of the domain has one, by its place in the table of threads, and its global pointer points there from its
//! first instruction on. The firmware's own stacks are as large as on a device, so nothing here runs on them. A context
//! outlives its thread and passes to the next one in that place.

use crate::counts::Counts;
use crate::units;
use core::cell::UnsafeCell;
use core::mem::offset_of;
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

    const fn new() -> Self {
        Self {
            results: [[0; 32]; RESULTS],
            registers: [0; 32],
            loops: [0; 4],
            modifiers: [0; 2],
            predicates: 0,
            status: 0,
            back: 0,
            stack_top: 0,
            saved: [0; 6],
            scalars: [0; 4],
            store: 0,
            base: 0,
            entered: [0; 3],
            surplus: [0; 3],
            sink: Aligned([0; 32]),
            operands: Operands { u: [[0; 32]; 2], v: [0; 32], x: [[0; 32]; 2] },
            operator: 0,
            counts: Counts::NONE,
            guard: 0,
            stack: [0; STACK_BYTES],
        }
    }
}

/// The contexts of all threads.
struct All([UnsafeCell<Context>; CONTEXTS]);

// SAFETY: a context is written by its own thread alone; the fields that others read are atomics.
unsafe impl Sync for All {}

static ALL: All = All([const { UnsafeCell::new(Context::new()) }; CONTEXTS]);

/// The context of the thread with this id, made ready for a thread to begin with: what its global pointer is to hold.
///
/// # Safety
/// No thread that runs has this id, or the caller is the one that does and has no other use of its context.
#[must_use]
pub unsafe fn prepare(id: u32) -> u32 {
    let Some(cell) = ALL.0.get(id as usize) else { return 0 };
    // SAFETY: by the caller's promise nobody else uses the context.
    let context = unsafe { &mut *cell.get() };
    let stack = context.stack.as_ptr().addr() as u32;
    context.stack_top = (stack + STACK_BYTES as u32) & !127;
    context.operator = 0;
    context.guard = GUARD;
    units::reset_engine(id);
    cell.get().addr() as u32
}

/// Gives the calling thread the context of its id, if nobody did when it was started: the one that carries calls.
pub fn adopt() {
    // SAFETY: this is the thread with that id, and no stub is being run.
    let context = unsafe { prepare(crate::qurt::qurt_thread_get_id()) };
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
    ALL.0.iter().map(|cell| {
        // SAFETY: the counts are atomics, so that they may be read while their thread counts.
        unsafe { &(*cell.get()).counts }
    })
}
