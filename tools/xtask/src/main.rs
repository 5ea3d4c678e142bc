//! Drives cargo.
fn main() {}
