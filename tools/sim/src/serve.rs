//! The models at work: what the entry calls for each displaced packet.
//!
//! Everything a packet reads is read before anything is written. Vector registers are live here and read by number; general
//! ones stand in the context, where the entry has saved them. Results go into the context as well, and the stub commits
//! them once the rest of the packet has run.

use crate::context::{Context, Vector};
use crate::counts::{Count, operator};
use crate::patch::Placed;
use crate::{enter, fault, units};
use estream_kernels_asm::model::float;
use estream_kernels_asm::model::hmx::Issue;
use estream_kernels_asm::word::{Dma, Float, Form, Operation, Register};
use estream_patch::packet::LoopEnd;
use estream_patch::site::{Counter, LateStore, Task, Work};
use estream_patch::vector::{Access, EarlyLoad, Step, VECTOR_BYTES};

/// Serves a packet: r0 of the entry's caller is the site, the context that of the calling thread.
#[unsafe(no_mangle)]
extern "C" fn estream_sim_serve(placed: &Placed, context: &mut Context) {
    let site = &placed.site;
    let early = site.load.map(|load| early(&load, context));
    let mut issues = [Issue { word: estream_kernels_asm::word::Hmx::Other, s: 0, t: 0 }; 4];
    let mut issued = 0;
    let mut floats = 0;
    for task in site.tasks() {
        match task.work {
            Work::Form(form) => match form.operation {
                Operation::Float(which) => {
                    floats += 1;
                    compute(context, task, &form, which, early.as_ref());
                }
                Operation::Hmx(word) => {
                    let [s, t] = form.sources.map(|source| scalar(context, source));
                    issues[issued] = Issue { word, s, t };
                    issued += 1;
                }
                Operation::Dma(dma) => transfer(context, task, dma, &form, placed),
            },
            Work::Counter(counter, _) => {
                let which = match counter {
                    Counter::Packets => 0,
                    Counter::Instructions => 1,
                    Counter::Vectors => 2,
                };
                context.scalars[usize::from(task.word)] =
                    context.entered[which].wrapping_sub(context.surplus[which]);
            }
        }
    }
    let operator = operator(context.operator);
    if floats > 0 {
        context.counts.add(operator, Count::Float, floats);
    }
    if issued > 0 {
        match units::matrix(&issues[..issued]) {
            Ok(done) => {
                context.counts.add(operator, Count::Pairs, done.pairs);
                context.counts.add(operator, Count::Tiles, done.tiles);
                context.counts.add(operator, Count::Stores, done.stores);
                context.counts.add(operator, Count::Saturations, done.saturations);
            }
            Err(violation) => fault::end(site.packet.address, format_args!("{violation}")),
        }
    }
    if let Some(store) = &site.store {
        late(store, context);
    }
    if !context.is_whole() {
        fault::end(site.packet.address, format_args!("the stack of the models is too small for this packet"));
    }
    let weight = if goes_on(site.end, context) { placed.loops } else { placed.leaves };
    context.surplus[0] = context.surplus[0].wrapping_add(weight.packets);
    context.surplus[1] = context.surplus[1].wrapping_add(weight.instructions);
    context.surplus[2] = context.surplus[2].wrapping_add(weight.vectors);
}

/// The value of a general register before the packet; 0 for an operand that is none.
fn scalar(context: &Context, register: Option<Register>) -> u32 {
    match register {
        Some(Register::Scalar(r)) => context.registers[usize::from(r & 31)],
        _ => 0,
    }
}

/// Whether a loop that ends with the packet starts over.
const fn goes_on(end: LoopEnd, context: &Context) -> bool {
    let [_, inner, _, outer] = context.loops;
    match end {
        LoopEnd::None => false,
        LoopEnd::Inner => inner > 1,
        LoopEnd::Outer => outer > 1,
        LoopEnd::Both => inner > 1 || outer > 1,
    }
}

/// What a vector register stands for in a packet with an early load.
struct Early {
    register: u8,
    value: Vector,
}

/// The access's address and its base register's value afterwards; none if its condition is false.
fn address(access: &Access, context: &Context) -> Option<(u32, u32)> {
    if let Some((predicate, wanted)) = access.condition {
        // A predicate is a byte, of which conditions look at the lowest bit.
        let holds = context.predicates >> (8 * u32::from(predicate)) & 1 == 1;
        if holds != wanted {
            return None;
        }
    }
    let base = context.registers[usize::from(access.base & 31)];
    let (offset, step) = match access.step {
        Step::Offset(bytes) => (bytes, 0),
        Step::Immediate(bytes) => (0, bytes),
        Step::Modifier(m) => (0, context.modifiers[usize::from(m & 1)].cast_signed()),
    };
    let at = base.wrapping_add_signed(offset) & !(VECTOR_BYTES - 1);
    Some((at, base.wrapping_add_signed(step)))
}

/// Loads what the packet reads as the value of a register. Under a false condition that is the register's old value.
fn early(load: &EarlyLoad, context: &Context) -> Early {
    let mut early = Early { register: load.register, value: [0; 32] };
    match address(&load.access, context) {
        Some((at, _)) => {
            let at: *const Vector = core::ptr::with_exposed_provenance(at as usize);
            // SAFETY: the skel's own load, of the address that it would load; like on a device, what is not mapped faults.
            early.value = unsafe { at.read_volatile() };
        }
        None => enter::vector(load.register, &mut early.value),
    }
    early
}

/// Where the late store goes, and where its base register does.
fn late(store: &LateStore, context: &mut Context) {
    let base = context.registers[usize::from(store.access.base & 31)];
    let sink = (&raw const context.sink).addr() as u32;
    (context.store, context.base) = address(&store.access, context).unwrap_or((sink, base));
}

/// Reads a vector operand as its packet sees it.
fn vector(number: u8, early: Option<&Early>, into: &mut Vector) {
    match early {
        Some(early) if early.register == number => *into = early.value,
        _ => enter::vector(number, into),
    }
}

fn operand(register: Register, early: Option<&Early>, into: &mut [Vector; 2]) {
    match register {
        Register::Vector(_) => vector(register.low(), early, &mut into[0]),
        Register::Pair(_) => {
            vector(register.low(), early, &mut into[0]);
            vector(register.high(), early, &mut into[1]);
        }
        Register::Predicate(q) => enter::predicate(q, &mut into[0]),
        Register::Scalar(_) => {}
    }
}

fn compute(context: &mut Context, task: &Task, form: &Form, which: Float, early: Option<&Early>) {
    let Context { operands, registers, results, .. } = context;
    let [first, second] = form.sources;
    if let Some(first) = first {
        operand(first, early, &mut operands.u);
    }
    match second {
        Some(Register::Vector(v)) => vector(v, early, &mut operands.v),
        Some(Register::Scalar(r)) => operands.v[0] = registers[usize::from(r & 31)],
        _ => {}
    }
    let Some(destination) = form.destination else { return };
    if form.accumulates {
        operand(destination, early, &mut operands.x);
    }
    let Some([low, high]) = float::execute(which, operands) else { return };
    let place = usize::from(task.result);
    results[place] = low;
    if matches!(destination, Register::Pair(_)) {
        results[place + 1] = high;
    }
}

fn transfer(context: &mut Context, task: &Task, dma: Dma, form: &Form, placed: &Placed) {
    let [s, t] = form.sources.map(|source| scalar(context, source));
    match units::transfer(dma, s, t) {
        Ok((value, done)) => {
            context.scalars[usize::from(task.word)] = value;
            let operator = operator(context.operator);
            context.counts.add(operator, Count::Descriptors, done.descriptors);
            context.counts.add(operator, Count::Bytes, done.bytes);
        }
        Err(violation) => fault::end(placed.site.packet.address, format_args!("{violation}")),
    }
}
