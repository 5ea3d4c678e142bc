//! Hexagon's kernels: natively over the models of its units (`hmx-model`), and as the skel that ships in the simulator.
//!
//! `goldens` holds them to llama.cpp, `laws` to themselves under other settings, `scales` to f64 for rows of any
//! size, `saturation` to failing by name; `skel` holds the skel's bytes and its units' work to what they must be, and
//! `revisions` the skels of all revisions to each other.

mod goldens;
mod laws;
mod prompts;
mod refusals;
mod revisions;
mod saturation;
mod scales;
mod skel;
