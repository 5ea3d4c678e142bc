//! The pure logic of the firmware against models that are dumber than it: one binary, since it links once.

mod executor;
mod matrix;
mod pipeline;
mod residency;
mod routes;
mod vtcm;
