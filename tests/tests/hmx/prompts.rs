//! What the tests run: options, models and prompts that hang on no doubtful choice of experts.

use estream::{Arena, Banks, KernelSet, Options};
use estream_tests::fixture::{self, Golden};

/// The bound of the mean KL over positions before the first flip.
pub const KL: f64 = 2e-5;
/// The oracle's margin up to which a choice may fall otherwise.
const MARGIN: f64 = 2e-4;
/// Where more is allowed, and known: lfm2moe's logistic gate is up to four times as steep in its logit as a softmax over
/// sixteen experts, and its convolution multiplies three products that are each rounded to halves. Measured: 6.4e-4.
const WIDER: (&str, f64) = ("lfm2moe", 8e-4);

/// The margin up to which a golden's choices may fall otherwise.
pub fn margin(golden: &Golden) -> f64 {
    if golden.name.starts_with(WIDER.0) { WIDER.1 } else { MARGIN }
}

/// The models of the units, with groups and banks that make the arena turn over.
pub fn options() -> Options {
    Options::new().kernels(KernelSet::HMX_MODEL).arena(Arena::Group(4, Some(Banks::Count(3)))).threads(2)
}

/// The families of the shared folder, or our own where there is none; all goldens under `ESTREAM_FULL=1`.
pub fn goldens() -> Vec<Golden> {
    if fixture::full() { fixture::goldens() } else { fixture::families() }
}
