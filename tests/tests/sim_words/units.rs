//! The matrix unit and user DMA: a product, a copy, and every rule that ends the run when it is broken.

use crate::bench::{Case, State};
use half::f16;

/// Where things stand in the memory of a case, in bytes.
const ACTIVATION: usize = 0;
const WEIGHT: usize = 4096;
const BIAS: usize = 8192;
const OUTPUT: usize = 10240;

/// The byte of element (i, j) of a tile.
fn at(i: usize, j: usize) -> usize {
    i / 2 * 128 + j * 4 + (i & 1) * 2
}

fn put(state: &mut State, byte: usize, value: f16) {
    state.memory[byte..byte + 2].copy_from_slice(&value.to_bits().to_le_bytes());
}

/// Two tiles along k of small whole numbers, whose products and sums are exact, and the identity for a bias block.
pub fn operands() -> State {
    let mut state = State::random(4);
    for k in 0..64 {
        for other in 0..32 {
            let (tile, within) = (2048 * (k / 32), k % 32);
            let a = f16::from_f32(((k * 7 + other * 3) % 9) as f32 - 4.0);
            let w = f16::from_f32(((k * 5 + other * 11) % 7) as f32 - 3.0);
            put(&mut state, ACTIVATION + tile + at(other, within), a);
            put(&mut state, WEIGHT + tile + at(within, other), w);
        }
    }
    for column in 0..32 {
        state.memory[BIAS + 4 * column..][..4].copy_from_slice(&0x3c00_u32.to_le_bytes());
        state.memory[BIAS + 128 + 4 * column..][..4].fill(0);
    }
    state
}

fn element(state: &State, byte: usize) -> f64 {
    f16::from_bits(u16::from_le_bytes([state.memory[byte], state.memory[byte + 1]])).to_f64()
}

/// What the product of the operands is.
pub fn multiplied(state: &mut State) {
    for row in 0..32 {
        for column in 0..32 {
            let terms = (0..64).map(|k| {
                let (tile, within) = (2048 * (k / 32), k % 32);
                element(state, ACTIVATION + tile + at(row, within))
                    * element(state, WEIGHT + tile + at(within, column))
            });
            let sum = f16::from_f64(terms.sum());
            put(state, OUTPUT + at(row, column), sum);
        }
    }
}

const ADDRESSES: &str = "\tr0 = r16\n\tr1 = ##4095\n\tr2 = add(r16,##4096)\n\tr3 = ##4095\n\tr4 = add(r16,##8192)\n\tr5 = add(r16,##10240)\n\tr6 = #0\n";
/// bias=mxmem2(r4); mxclracc.hf
const BIAS_AND_CLEAR: &str = "\t.word 0x9204c3fe\n\t.word 0xa6e0c013\n";
/// { activation.hf=mxmem(r0,r1):deep; weight.hf=mxmem(r2,r3) }
const PAIR: &str = "\t.word 0x920041e2\n\t.word 0x9202e3ef\n";
/// mxmem(r5,r6):after.hf=acc
const STORE: &str = "\t.word 0xa6e5e604\n";
const NO_ADDRESSES: &str = "\n\tr0 = #0\n\tr2 = #0\n\tr4 = #0\n\tr5 = #0\n";

/// The registers that the cases leave.
pub fn registers(state: &mut State) {
    state.registers[..7].copy_from_slice(&[0, 4095, 0, 4095, 0, 0, 0]);
}

/// The product of the operands, with another instruction in the packet of the pair.
pub fn product() -> Case {
    let pair = "\t.word 0x7f004000\n\t.word 0x920041e2\n\t.word 0x9202e3ef\n";
    Case::new("a product", format!("{ADDRESSES}{BIAS_AND_CLEAR}{pair}{STORE}{NO_ADDRESSES}"))
}

/// Broken rules: flags of what is acquired, the case, and a part of the message.
pub fn broken() -> Vec<(u32, Case, &'static str)> {
    let case = |name: &str, body: String| Case::new(name, format!("{ADDRESSES}{body}"));
    let ordinary = format!("{BIAS_AND_CLEAR}{PAIR}{STORE}");
    vec![
        (3, case("no power vote", ordinary.clone()), "without a power vote"),
        (5, case("no lock", ordinary.clone()), "without its lock"),
        (6, case("no VTCM", format!("\t.word 0xa6e0c013\n{PAIR}")), "without its lock"),
        (7, case("no clear", format!("\t.word 0x9204c3fe\n{PAIR}")), "not cleared"),
        (
            7,
            case("a split pair", format!("{BIAS_AND_CLEAR}\t.word 0x9200c1e2\n\t.word 0x9202e3ef\n")),
            "without its partner",
        ),
        (7, case("33 tiles", format!("{BIAS_AND_CLEAR}\tr1 = ##67583\n\tr3 = ##67583\n{PAIR}")), "33 tiles"),
        (
            7,
            case("operands on a stack", format!("{BIAS_AND_CLEAR}\tr0 = and(r29,#-2048)\n{PAIR}")),
            "not in VTCM",
        ),
        (7, case("a crooked tile", format!("{BIAS_AND_CLEAR}\tr0 = add(r0,#128)\n{PAIR}")), "not aligned"),
        (7, case("no bias block", format!("\t.word 0xa6e0c013\n{PAIR}{STORE}")), "without a bias block"),
        (7, case("nothing to store", format!("\t.word 0x9204c3fe\n{STORE}")), "holds nothing"),
        (0, case("a null descriptor", "\tr0 = #0\n\tdmstart(r0)\n".into()), "null descriptor"),
        (
            0,
            case("a start while running", format!("{}\tdmstart(r0)\n\tdmstart(r0)\n", descriptor(false))),
            "while the engine runs",
        ),
        (
            0,
            case("bypass of memory", format!("{}\tdmstart(r0)\n\tr1 = dmwait\n", descriptor(true))),
            "bypass",
        ),
        (
            0,
            case(
                "nowhere to copy to",
                format!(
                    "{}\tr1 = #64\n\tmemw(r0+#12) = r1\n\tdmstart(r0)\n\tr1 = dmwait\n",
                    descriptor(false)
                ),
            ),
            "not mapped",
        ),
    ]
}

/// A linear descriptor at r0 = r16: 256 bytes from byte 1024 of the memory to byte 2048.
fn descriptor(bypass: bool) -> String {
    let word_1 = 256 | if bypass { 1 << 29 } else { 0 };
    format!(
        "\tr0 = r16\n\tr1 = #0\n\tmemw(r0+#0) = r1\n\tr1 = ##{word_1}\n\tmemw(r0+#4) = r1\n\tr1 = add(r16,##1024)\n\tmemw(r0+#8) = r1\n\tr1 = add(r16,##2048)\n\tmemw(r0+#12) = r1\n"
    )
}

/// A copy that is waited for; and one that is looked at too early, whose first word r2 gets as it was.
pub fn copies() -> [Case; 2] {
    let done = "\tr0 = memw(r0+#4)\n";
    [
        Case::new(
            "a copy",
            format!("{}\tdmstart(r0)\n\tr1 = dmwait\n\tr2 = memw(r16+#2048)\n{done}", descriptor(false)),
        ),
        Case::new(
            "an early look",
            format!("{}\tdmstart(r0)\n\tr2 = memw(r16+#2048)\n\tr1 = dmwait\n{done}", descriptor(false)),
        ),
    ]
}
