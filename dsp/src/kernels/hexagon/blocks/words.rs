//! The instructions that all these packets are made of. Registers are the same in all of them:
//!
//! | register | holds |
//! |---|---|
//! | v1:0 | a pair's codes as floats (nibbles), two pairs' as integers (bytes) |
//! | v3:2, v9:8, v11:10 | products; v11:8 the pairs that nibbles look up |
//! | v5:4, v15:14 | sums |
//! | v6, v7 | what is stored, and its magnitudes |
//! | v12, v13 | nibbles times 16; codes as floats (bytes) |
//! | v16, v17 and v22, v23 | scales and minima of the two halves of k |
//! | v18, v19 | nibbles as they are, and the high ones in front |
//! | v20, v21, v24, v25 | the table, ones, the bits of a magnitude, the largest magnitudes |

/// A packet of what its parts say.
macro_rules! packet {
    ($($part:expr),+) => { concat!("{{ ", $($part,)+ " }}\n") };
}

/// A rounding and the store of what it makes.
macro_rules! store {
    ($from:literal) => {
        concat!("v6.hf = ", $from, ".qf32 ; vmem({o}++#1) = v6.new")
    };
}

/// The magnitudes of what was stored last.
macro_rules! magnitudes {
    () => {
        "v7 = vand(v6,v24)"
    };
}

/// They are taken in.
macro_rules! watch {
    () => {
        "v25.uh = vmax(v25.uh,v7.uh)"
    };
}

/// A pair's product under halves.
macro_rules! product {
    ($to:literal, $code:literal, $scale:literal) => {
        concat!($to, ".qf32 = vmpy(", $code, ".hf,", $scale, ".hf)")
    };
}

/// A product of floats.
macro_rules! times {
    ($to:literal, $code:literal, $scale:literal) => {
        concat!($to, ".qf32 = vmpy(", $code, ".qf32,", $scale, ".qf32)")
    };
}

/// A sum of floats.
macro_rules! plus {
    ($to:literal, $product:literal, $min:literal) => {
        concat!($to, ".qf32 = vadd(", $product, ".qf32,", $min, ".qf32)")
    };
}
