//! Atomics, or loom's models of them: the rings are written once against these names and explored under `--cfg loom`.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, Ordering, fence};
