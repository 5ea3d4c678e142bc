//! The HVX floating-point words as cases: each alone, and in the packets that compilers put them in.

use crate::bench::{Case, State, Vector};
use estream_kernels_asm::model::float::{Operands, execute};
use estream_kernels_asm::word::Float;

/// The registers that operands are given: two for a source pair, one of the singles for the rest.
pub const U: usize = 1;
pub const V: usize = 2;
pub const UU: usize = 8;
pub const D: usize = 3;
pub const DD: usize = 4;
pub const Q: usize = 1;
pub const R: usize = 5;

/// What a form writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Result {
    Vector,
    Pair,
    Predicate,
}

/// A form with its registers filled in.
#[derive(Clone, Debug)]
pub struct Word {
    pub float: Float,
    pub text: String,
    pub result: Result,
    /// Whether the first source is a pair.
    pub wide: bool,
}

impl Word {
    /// The word, with `first` as its first vector source where that is no pair.
    pub fn with(float: Float, first: usize) -> Self {
        let mnemonic = float.mnemonic();
        let result = match &mnemonic[..2] {
            "Vd" | "Vx" if mnemonic.starts_with("Vdd") || mnemonic.starts_with("Vxx") => Result::Pair,
            "Vd" | "Vx" => Result::Vector,
            _ => Result::Predicate,
        };
        let wide = mnemonic.contains("Vuu32");
        let text = mnemonic
            .replace("Vdd32", "v5:4")
            .replace("Vxx32", "v5:4")
            .replace("Vuu32", "v9:8")
            .replace("Vd32", "v3")
            .replace("Vx32", "v3")
            .replace("Vu32", &format!("v{first}"))
            .replace("Vv32", "v2")
            .replace("Rt32", "r5")
            .replace("Qd4", "q1")
            .replace("Qx4", "q1");
        Self { float, text, result, wide }
    }

    pub fn new(float: Float) -> Self {
        Self::with(float, U)
    }

    /// The register whose value a store can take from its own packet.
    pub fn stored(&self) -> Option<usize> {
        match self.result {
            Result::Vector => Some(D),
            Result::Pair => Some(DD + 1),
            Result::Predicate => None,
        }
    }

    /// Does to a state what the word does, with `u` in place of its first source if one is given.
    pub fn apply(&self, state: &mut State, u: Option<Vector>) {
        let mnemonic = self.float.mnemonic();
        let u = if self.wide {
            [state.vectors[UU], state.vectors[UU + 1]]
        } else {
            [u.unwrap_or(state.vectors[U]), [0; 32]]
        };
        let v = if mnemonic.contains("Rt32") {
            let mut scalar = [0; 32];
            scalar[0] = state.registers[R];
            scalar
        } else {
            state.vectors[V]
        };
        let x = match self.result {
            Result::Vector => [state.vectors[D], [0; 32]],
            Result::Pair => [state.vectors[DD], state.vectors[DD + 1]],
            Result::Predicate => [state.predicates[Q], [0; 32]],
        };
        let operands = Operands { u, v, x };
        let [low, high] = execute(self.float, &operands).expect("the form is modelled");
        match self.result {
            Result::Vector => state.vectors[D] = low,
            Result::Pair => [state.vectors[DD], state.vectors[DD + 1]] = [low, high],
            Result::Predicate => state.predicates[Q] = low,
        }
    }
}

/// A case with what it makes of a state.
pub struct Checked {
    pub case: Case,
    pub expected: Box<dyn Fn(&mut State)>,
}

impl Checked {
    pub fn new(
        name: impl Into<String>,
        body: impl Into<String>,
        expected: impl Fn(&mut State) + 'static,
    ) -> Self {
        Self { case: Case::new(name, body), expected: Box::new(expected) }
    }
}

/// The packets that every form is put in. r0 ends as 0, since addresses differ from run to run.
pub fn company(word: &Word) -> Vec<Checked> {
    let text = &word.text;
    let checked = |name: &str, body: String, expected: fn(&Word, &mut State)| {
        let word = word.clone();
        Checked::new(format!("{name}: {}", word.text), body, move |state| expected(&word, state))
    };
    if word.float == Float::HFromHfRnd {
        // LLVM 22 disassembles v3.h=v1.hf:rnd and does not assemble it.
        return vec![checked("alone", "\t.word 0x1e06e1c3".into(), |word, state| word.apply(state, None))];
    }
    let mut cases = vec![
        checked("alone", format!("\t{text}"), |word, state| word.apply(state, None)),
        checked("with a return", format!("\t{{ {text}\n\t  jumpr r31 }}"), |word, state| {
            word.apply(state, None)
        }),
        checked(
            "closing a loop",
            format!(
                "\tr7 = #0\n\tloop0(.Ltop%,#3)\n.Ltop%:\n\tr6 = r7\n\t{{ {text}\n\t  r7 = add(r7,#2) }}:endloop0"
            ),
            |word, state| {
                (0..3).for_each(|_| word.apply(state, None));
                (state.registers[6], state.registers[7]) = (4, 6);
            },
        ),
    ];
    if let Some(stored) = word.stored() {
        cases.push(checked(
            "feeding a store",
            format!("\tr0 = add(r16,#640)\n\t{{ {text}\n\t  vmem(r0+#-3) = v{stored}.new }}\n\tr0 = #0"),
            |word, state| {
                word.apply(state, None);
                let value = state.vectors[word.stored().expect("a vector")];
                state.set(2, &value);
                state.registers[0] = 0;
            },
        ));
    }
    if !word.wide {
        cases.push(checked(
            "with a load of its source",
            format!("\tr0 = r16\n\t{{ {text}\n\t  v1.cur = vmem(r0+#2) }}\n\tr0 = #0"),
            |word, state| {
                let loaded = state.at(2);
                word.apply(state, Some(loaded));
                state.vectors[U] = loaded;
                state.registers[0] = 0;
            },
        ));
    }
    cases
}
