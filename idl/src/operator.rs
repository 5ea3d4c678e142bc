//! The parts of a pass that the simulator counts apart.
//!
//! The firmware marks what it works for by these numbers, and the simulated domain's report names them; a device has nobody
//! who listens. 0 is no operator.

macro_rules! operators {
    ($($name:ident = $number:literal $text:literal;)+) => {
        /// A part of a pass.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Operator { $(#[doc = $text] $name = $number,)+ }

        impl Operator {
            /// All of them, by ascending number from 1.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The operator with this number.
            #[must_use]
            pub const fn from_wire(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)+ _ => None }
            }

            /// Its name in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

operators! {
    Embed = 1 "embed";
    Norm = 2 "norm";
    Rope = 3 "rope";
    Product = 4 "product";
    Attention = 5 "attention";
    Softmax = 6 "softmax";
    Convolution = 7 "convolution";
    Router = 8 "router";
    Gather = 9 "gather";
    Fetch = 10 "fetch";
    Decode = 11 "decode";
    Multiply = 12 "multiply";
    Activate = 13 "activate";
    Scatter = 14 "scatter";
    Head = 15 "head";
    SelfTest = 16 "self-test";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_run_from_one() {
        for (index, &operator) in Operator::ALL.iter().enumerate() {
            assert_eq!(operator as usize, index + 1);
            assert_eq!(Operator::from_wire(operator as u32), Some(operator));
        }
        assert_eq!(
            (Operator::from_wire(0), Operator::from_wire(Operator::ALL.len() as u32 + 1)),
            (None, None)
        );
    }
}
