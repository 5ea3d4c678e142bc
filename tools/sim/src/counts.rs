//! What the models were asked to do, by operator: the numbers that show that a kernel runs on the unit that it is for.
//!
//! The skel says what it works for through two functions that it imports weakly: on a device, where nobody provides them,
//! they cost one test of a null pointer. [`estream_sim_mark`] is for the domain, all workers of its pool included;
//! [`estream_sim_mark_thread`] is for the calling thread, where units work side by side, and goes before. Numbers and names
//! of the operators are the contract's ([`Operator`]).
//!
//! Each thread counts for itself in words of its context, so counting costs no atomic operation that the simulator would
//! have to serialise.

use crate::{context, stderr};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use estream_idl::operator::Operator;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Count {
    /// HVX floating-point words.
    Float = 0,
    /// Fused multiplies of HMX.
    Pairs = 1,
    /// 32×32×32 multiplies of HMX: 32,768 MACs each.
    Tiles = 2,
    /// Stores of an accumulator of HMX.
    Stores = 3,
    /// Values that such a store could not hold.
    Saturations = 4,
    /// Descriptors that DMA has completed.
    Descriptors = 5,
    /// Bytes that DMA has copied.
    Bytes = 6,
}

impl Count {
    /// Everything that is counted, with its key in the report.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Float, "float"),
        (Self::Pairs, "pairs"),
        (Self::Tiles, "tiles"),
        (Self::Stores, "stores"),
        (Self::Saturations, "saturations"),
        (Self::Descriptors, "descriptors"),
        (Self::Bytes, "bytes"),
    ];
}

const COUNTS: usize = Count::ALL.len();
/// The operators, and "none" in front.
const OPERATORS: usize = Operator::ALL.len() + 1;

/// One thread's counts.
#[derive(Debug)]
pub struct Counts([[AtomicU64; COUNTS]; OPERATORS]);

impl Counts {
    /// Adds to a count; only the thread itself does.
    pub fn add(&self, operator: u32, count: Count, amount: u64) {
        let Some(counts) = self.0.get(operator as usize) else { return };
        let cell = &counts[count as usize];
        cell.store(cell.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }
}

/// The operator that the domain works for.
static DOMAIN: AtomicU32 = AtomicU32::new(0);

/// Who is told that a thread turns from one operator to another: the address of a [`Listener`], 0 for nobody.
static LISTENER: AtomicU32 = AtomicU32::new(0);

/// Is told the operator that the calling thread has worked for, each time that it marks another.
pub type Listener = extern "C" fn(u32);

/// Has every mark from now on told to `listener`: for programs that read counters of their own, of which the simulator
/// has more than it reports.
#[unsafe(no_mangle)]
pub extern "C" fn estream_sim_listen(listener: Listener) {
    LISTENER.store(listener as usize as u32, Ordering::Relaxed);
}

/// Tells the listener what the calling thread, with this mark of its own, has worked for.
fn turn(own: u32) {
    let listener = LISTENER.load(Ordering::Relaxed);
    if listener != 0 {
        // SAFETY: a function of this type was stored.
        let listener: Listener = unsafe { core::mem::transmute(listener as usize) };
        listener(operator(own));
    }
}

/// The operator that a thread with this mark of its own counts for.
#[must_use]
pub fn operator(own: u32) -> u32 {
    if own == 0 { DOMAIN.load(Ordering::Relaxed) } else { own }
}

/// The number if it is an operator's, or 0.
fn known(operator: u32) -> u32 {
    if (operator as usize) < OPERATORS { operator } else { 0 }
}

/// Says what the domain works for from now on, 0 for nothing; returns what it was before, so that marks nest.
#[unsafe(no_mangle)]
pub extern "C" fn estream_sim_mark(operator: u32) -> u32 {
    // SAFETY: the context is the calling thread's.
    turn(unsafe { (*context::own()).operator });
    DOMAIN.swap(known(operator), Ordering::Relaxed)
}

/// Says what the calling thread works for from now on, whatever the domain does; 0 ends that. Returns what it was before.
#[unsafe(no_mangle)]
pub extern "C" fn estream_sim_mark_thread(operator: u32) -> u32 {
    // SAFETY: the context is the calling thread's.
    turn(unsafe { (*context::own()).operator });
    // SAFETY: the context is the calling thread's, which is in no stub while it calls this.
    unsafe { core::mem::replace(&mut (*context::own()).operator, known(operator)) }
}

/// What the domain has counted so far for one operator ([`Operator`]'s number, 0 for none), by [`Count`]'s number; 0 for
/// what is neither. For programs that check themselves.
#[unsafe(no_mangle)]
pub extern "C" fn estream_sim_count(operator: u32, count: u32) -> u64 {
    if count as usize >= COUNTS || operator as usize >= OPERATORS {
        return 0;
    }
    context::counts().map(|counts| counts.0[operator as usize][count as usize].load(Ordering::Relaxed)).sum()
}

/// Writes one line per operator that has counted anything: `estream-sim: operator=NAME float=N pairs=N …`.
pub fn report() {
    for operator in 0..OPERATORS as u32 {
        let counts: [u64; COUNTS] =
            core::array::from_fn(|count| estream_sim_count(operator, Count::ALL[count].0 as u32));
        if counts == [0; COUNTS] {
            continue;
        }
        let name = Operator::from_wire(operator).map_or("none", Operator::name);
        let [float, pairs, tiles, stores, saturations, descriptors, bytes] = counts;
        stderr::line(format_args!(
            "estream-sim: operator={name} float={float} pairs={pairs} tiles={tiles} stores={stores} saturations={saturations} descriptors={descriptors} bytes={bytes}"
        ));
    }
}
