//! Functions of floats that core does not have: references in tests, by libm. In scope everywhere through the prelude.

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident => $double:ident, $single:ident;)*) => {
        /// std's inherent functions of floats, as a trait.
        pub trait Float: Sized {
            $($(#[$doc])* #[must_use] fn $name(self) -> Self;)*
            /// A power by repeated multiplication.
            #[must_use]
            fn powi(self, exponent: i32) -> Self;
        }

        impl Float for f64 {
            $(fn $name(self) -> Self { libm::$double(self) })*
            fn powi(self, exponent: i32) -> Self { libm::pow(self, exponent.into()) }
        }

        impl Float for f32 {
            $(fn $name(self) -> Self { libm::$single(self) })*
            fn powi(self, exponent: i32) -> Self { libm::powf(self, exponent as Self) }
        }
    };
}

functions! {
    /// e to this power.
    exp => exp, expf;
    /// 2 to this power.
    exp2 => exp2, exp2f;
    /// Natural logarithm.
    ln => log, logf;
    /// Logarithm to the base 2.
    log2 => log2, log2f;
    /// Square root.
    sqrt => sqrt, sqrtf;
    /// Sine.
    sin => sin, sinf;
    /// Cosine.
    cos => cos, cosf;
    /// The next integer downwards.
    floor => floor, floorf;
    /// The next integer upwards.
    ceil => ceil, ceilf;
}
