//! The two faces as users meet them: the binary is run, and judged by what it prints, how it exits and what it leaves; the
//! library is called.

mod harness;
mod library;
mod outputs;
mod prompts;
mod refusals;
mod tuning;
