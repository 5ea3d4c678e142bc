//! How many packets the kernels take, each called on a known size: what `cargo xtask packets` runs in the simulator.
//!
//! A packet is what a hardware thread issues at a time, so packets are the time of a kernel whose operands are near,
//! short of stalls. The simulator counts them, a packet with a word of the models once. Beside each figure stands what no
//! schedule can go below: a packet holds one vector load and one vector store, so a kernel takes at least as many packets
//! as it has of either. Loads and stores are those of the operands alone; what a kernel keeps in registers is free.
//!
//! Two ways of counting. A kernel that can be called is called on two sizes, and the difference is its steady state. The
//! pieces of the fused operator mark themselves as in a pass ([`marks`]): their figures hold everything that a piece of
//! work costs, claims and bounds included. One thread does all of it, so that no packet is spent on waiting.
//!
//! A line of output is: kernel, what the figure is for, packets a thousand of them, loads, stores (0 and 0 where the bound
//! is another unit's).
//!
//! # Fences
//! Unsafe code is denied in the crate but for the module listed with `#[allow(unsafe_code)]` below.
#![deny(unsafe_code)]
#![feature(asm_experimental_arch)]

#[allow(unsafe_code)]
mod counter;
mod kernels;
mod marks;
mod memory;
mod operator;

/// A kernel's packets.
struct Line {
    kernel: &'static str,
    unit: &'static str,
    packets: u32,
    count: u32,
    loads: u32,
    stores: u32,
}

impl Line {
    fn print(&self) {
        let thousandth = (u64::from(self.packets) * 1000).div_ceil(u64::from(self.count.max(1)));
        println!("packets\t{}\t{}\t{thousandth}\t{}\t{}", self.kernel, self.unit, self.loads, self.stores);
    }
}

fn main() {
    kernels::decode();
    kernels::rows();
    operator::gated();
    operator::attention();
}
