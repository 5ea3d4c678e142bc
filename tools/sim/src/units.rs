//! The units beside the threads: one matrix unit for the domain, a DMA engine per thread, over the domain's memory.
//!
//! The models hold the units' rules; this module tells them what the platform knows: which VTCM is held, who has locked the
//! matrix unit, whether it is powered, which addresses are mapped.

use crate::context::CONTEXTS;
use crate::{memory, power, qurt, resources};
use core::sync::atomic::{AtomicU32, Ordering};
use estream_kernels_asm::model::dma::{self, Engine, Pace};
use estream_kernels_asm::model::hmx::{Counters, Issue, Revision, Unit, Violation};
use estream_kernels_asm::model::{Memory, Vtcm};
use estream_kernels_asm::word::Dma;
use spin::Mutex;

/// The low byte of the skel's `e_flags`: which revision the units are of.
static ARCHITECTURE: AtomicU32 = AtomicU32::new(0x73);

/// Sets the revision of the units. Before the skel runs.
pub fn set_architecture(architecture: u32) {
    ARCHITECTURE.store(architecture, Ordering::Relaxed);
}

fn revision() -> Revision {
    match ARCHITECTURE.load(Ordering::Relaxed) {
        0x81.. => Revision::V81,
        0x79.. => Revision::V79,
        0x75.. => Revision::V75,
        _ => Revision::V73,
    }
}

/// The domain's memory as the units see it: what is mapped, and nothing else.
struct Domain;

impl Memory for Domain {
    fn read(&self, address: u32, into: &mut [u8]) -> bool {
        let mapped = memory::is_mapped(address, into.len() as u32);
        if mapped {
            let from: *const u8 = core::ptr::with_exposed_provenance(address as usize);
            // SAFETY: the bytes are mapped, and none of this program's own data: a unit reads what a kernel told it to.
            unsafe { from.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        }
        mapped
    }

    fn write(&mut self, address: u32, from: &[u8]) -> bool {
        let mapped = memory::is_mapped(address, from.len() as u32);
        if mapped {
            let to: *mut u8 = core::ptr::with_exposed_provenance_mut(address as usize);
            // SAFETY: as in `read`.
            unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        }
        mapped
    }
}

/// The VTCM that is held, of no bytes if none is.
fn vtcm() -> Vtcm {
    resources::vtcm().unwrap_or(Vtcm { base: 0, length: 0, single_page: true })
}

/// The matrix unit, and the lock that it has seen last.
struct Matrix {
    unit: Unit,
    lock: u32,
}

static MATRIX: Mutex<Option<Matrix>> = Mutex::new(None);

/// Has the matrix unit run all its words of a packet; what it did.
///
/// # Errors
/// The rule that the packet breaks.
pub fn matrix(issues: &[Issue]) -> Result<Counters, Violation> {
    let vtcm = vtcm();
    let lock = resources::matrix_lock();
    let mut matrix = MATRIX.lock();
    let Matrix { unit, lock: seen } =
        matrix.get_or_insert_with(|| Matrix { unit: Unit::new(revision(), vtcm), lock: 0 });
    unit.set_vtcm(vtcm);
    unit.set_power(power::matrix_is_on());
    // What the unit holds survives as long as the same lock does. 0 is a thread without one.
    if *seen != lock {
        unit.set_lock(lock != 0);
        *seen = lock;
    }
    let before = unit.counters();
    unit.packet(&mut Domain, issues)?;
    let after = unit.counters();
    Ok(Counters {
        pairs: after.pairs - before.pairs,
        tiles: after.tiles - before.tiles,
        stores: after.stores - before.stores,
        saturations: after.saturations - before.saturations,
    })
}

/// The engines, by thread, once they were used.
static ENGINES: [Mutex<Option<Engine>>; CONTEXTS] = [const { Mutex::new(None) }; CONTEXTS];

/// Gives the thread with this id, which does not run yet, a new engine.
pub fn reset_engine(id: u32) {
    if let Some(engine) = ENGINES.get(id as usize) {
        *engine.lock() = None;
    }
}

/// Has the calling thread's engine run an instruction; the value that it returns, and what the engine did. Copies happen
/// as late as they may, so that a kernel that does not wait reads old bytes.
///
/// # Errors
/// The rule that the instruction, or a descriptor of its chain, breaks.
pub fn transfer(instruction: Dma, s: u32, t: u32) -> Result<(u32, dma::Counters), dma::Violation> {
    let vtcm = vtcm();
    let mut engine = ENGINES[qurt::qurt_thread_get_id() as usize % CONTEXTS].lock();
    let engine = engine.get_or_insert_with(|| Engine::new(vtcm, Pace::Deferred));
    engine.set_vtcm(vtcm);
    let before = engine.counters();
    let value = match instruction {
        Dma::Start => engine.start(&mut Domain, s).map(|()| 0),
        Dma::Link => engine.link(&mut Domain, s, t).map(|()| 0),
        Dma::Poll => engine.poll(&mut Domain),
        Dma::Wait => engine.wait(&mut Domain),
        Dma::Pause => Ok(engine.pause()),
        Dma::Resume => engine.resume(&mut Domain, s).map(|()| 0),
    }?;
    let after = engine.counters();
    let done = dma::Counters {
        descriptors: after.descriptors - before.descriptors,
        bytes: after.bytes - before.bytes,
        looks: after.looks - before.looks,
    };
    Ok((value, done))
}
