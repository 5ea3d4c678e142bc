//! Packets by hand: what can stand beside a word that the simulator does not have, and what must become of it.
//!
//! The word is `v3.sf=vadd(v1.sf,v2.sf)` nearly always, of which this machine knows the result.

use crate::bench::{State, Vector};
use crate::floats::Checked;

/// `Vd.sf=vadd(Vu.sf,Vv.sf)` of moderate numbers.
fn sum(u: &Vector, v: &Vector) -> Vector {
    std::array::from_fn(|lane| (f32::from_bits(u[lane]) + f32::from_bits(v[lane])).to_bits())
}

fn product(u: &Vector, v: &Vector) -> Vector {
    std::array::from_fn(|lane| (f32::from_bits(u[lane]) * f32::from_bits(v[lane])).to_bits())
}

fn larger(u: &Vector, v: &Vector) -> Vector {
    std::array::from_fn(|lane| f32::from_bits(u[lane]).max(f32::from_bits(v[lane])).to_bits())
}

fn add(state: &mut State) {
    state.vectors[3] = sum(&state.vectors[1], &state.vectors[2]);
}

/// Stores the sum in a vector of the memory.
fn add_and_store(state: &mut State, at: usize) {
    add(state);
    let value = state.vectors[3];
    state.set(at, &value);
}

/// A case of one packet, `r0` at the memory before it and the distance that it has moved behind.
fn packet(name: &str, beside: &str, expected: impl Fn(&mut State) + 'static) -> Checked {
    routine(name, &format!("\t{{ v3.sf = vadd(v1.sf,v2.sf); {beside} }}"), expected)
}

fn routine(name: &str, body: &str, expected: impl Fn(&mut State) + 'static) -> Checked {
    let body = format!("\tr0 = r16\n\tr10 = r31\n{body}\n\tr31 = r10\n\tr10 = #0\n\tr0 = sub(r0,r16)");
    Checked::new(name, body, move |state| {
        state.registers[0] = 0;
        state.registers[10] = 0;
        expected(state);
    })
}

/// The state that the cases need: predicates p0 true and p1 false, steps in m0 and m1, small numbers in r1 to r9.
pub fn state() -> State {
    let mut state = State::random(2);
    state.scalar_predicates = 0x00ff_00ff;
    state.modifiers = [256, 384];
    state.predicates[1] = std::array::from_fn(|word| if word % 3 == 0 { u32::MAX } else { 0 });
    for (index, register) in state.registers.iter_mut().enumerate() {
        *register = index as u32;
    }
    state.registers[8] = 9;
    state
}

pub fn stores() -> Vec<Checked> {
    let moved = |by: u32, at: usize| {
        move |state: &mut State| {
            add_and_store(state, at);
            state.registers[0] = by;
        }
    };
    vec![
        packet("a new store", "vmem(r0+#1) = v3.new", |state| add_and_store(state, 1)),
        packet("a new store with a hint", "vmem(r0+#7):nt = v3.new", |state| add_and_store(state, 7)),
        packet("a new store that steps", "vmem(r0++#2) = v3.new", moved(256, 0)),
        packet("a new store that steps back", "vmem(r0++#-1) = v3.new", moved(0_u32.wrapping_sub(128), 0)),
        packet("a new store that steps by a register", "vmem(r0++m1) = v3.new", moved(384, 0)),
        packet("a new store under a true condition", "if (p0) vmem(r0+#1) = v3.new", |state| {
            add_and_store(state, 1)
        }),
        packet("a new store under a false condition", "if (!p0) vmem(r0+#1) = v3.new", add),
        packet("a new store under another false condition", "if (p1) vmem(r0++#1) = v3.new", add),
        packet(
            "a new store under a true condition that steps",
            "if (!p1) vmem(r0++m0):nt = v3.new",
            moved(256, 0),
        ),
        packet("a store of the old value", "vmem(r0+#0) = v3", |state| {
            let old = state.vectors[3];
            add(state);
            state.set(0, &old);
        }),
        packet("a store of another value that steps", "vmem(r0++#1) = v7", |state| {
            add(state);
            let other = state.vectors[7];
            state.set(0, &other);
            state.registers[0] = 128;
        }),
        packet("a new store whose base changes", "r0 = add(r0,#128); vmem(r0+#0) = v3.new", moved(128, 0)),
        packet(
            "a new store and a load of the same bytes",
            "v7 = vmem(r0+#0); vmem(r0+#0) = v3.new",
            |state| {
                state.vectors[7] = state.at(0);
                add_and_store(state, 0);
            },
        ),
        packet("a new store of what runs itself", "v6 = vxor(v1,v2); vmem(r0+#0) = v6.new", |state| {
            add(state);
            let [u, v] = [state.vectors[1], state.vectors[2]];
            state.vectors[6] = std::array::from_fn(|lane| u[lane] ^ v[lane]);
            let value = state.vectors[6];
            state.set(0, &value);
        }),
        packet("the first of two words stored", "v6.sf = vmax(v1.sf,v2.sf); vmem(r0+#0) = v3.new", |state| {
            state.vectors[6] = larger(&state.vectors[1], &state.vectors[2]);
            add_and_store(state, 0);
        }),
        packet(
            "the second of two words stored",
            "v6.sf = vmax(v1.sf,v2.sf); vmem(r0+#0) = v6.new",
            |state| {
                add(state);
                state.vectors[6] = larger(&state.vectors[1], &state.vectors[2]);
                let value = state.vectors[6];
                state.set(0, &value);
            },
        ),
        packet("a scalar new store", "r6 = add(r7,#3); memw(r0+#8) = r6.new", |state| {
            add(state);
            state.registers[6] = 10;
            state.memory[8..12].copy_from_slice(&10_u32.to_le_bytes());
        }),
    ]
}

pub fn operands() -> Vec<Checked> {
    vec![
        packet("an operand is overwritten", "v1 = v7", |state| {
            add(state);
            state.vectors[1] = state.vectors[7];
        }),
        packet("the old result is read", "v6 = v3", |state| {
            state.vectors[6] = state.vectors[3];
            add(state);
        }),
        packet("the old result of two words is read", "v1.sf = vmax(v3.sf,v2.sf)", |state| {
            let old = state.vectors[3];
            add(state);
            state.vectors[1] = larger(&old, &state.vectors[2]);
        }),
        // qf32 keeps a bit less than a single does: the last one is left out.
        routine(
            "a scalar operand is overwritten",
            "\tr5 = ##0x3fc00000\n\t{ v3.qf32 = vmpy(v1.sf,r5.sf); r5 = #-2 }\n\tv3.sf = v3.qf32\n\tv6 = vsplat(r5)\n\tv3 = vand(v3,v6)",
            |state| {
                let exact = product(&state.vectors[1], &[1.5_f32.to_bits(); 32]);
                state.vectors[3] = exact.map(|lane| lane & !1);
                state.vectors[6] = [!1; 32];
                state.registers[5] = !1;
            },
        ),
        routine(
            "a predicate is read and made",
            "\t{ q1 = vcmp.gt(v1.sf,v2.sf); v6 = vmux(q1,v7,v8) }",
            |state| {
                let [old, u, v] = [state.predicates[1], state.vectors[1], state.vectors[2]];
                state.vectors[6] = std::array::from_fn(|lane| {
                    if old[lane] == 0 { state.vectors[8][lane] } else { state.vectors[7][lane] }
                });
                state.predicates[1] = std::array::from_fn(|lane| {
                    if f32::from_bits(u[lane]) > f32::from_bits(v[lane]) { u32::MAX } else { 0 }
                });
            },
        ),
        packet("a temporary load", "v1.tmp = vmem(r0++#1)", |state| {
            state.vectors[3] = sum(&state.at(0), &state.vectors[2]);
            state.registers[0] = 128;
        }),
        packet("a current load with another reader", "v1.cur = vmem(r0+#3); v6 = v1", |state| {
            let loaded = state.at(3);
            state.vectors[3] = sum(&loaded, &state.vectors[2]);
            (state.vectors[1], state.vectors[6]) = (loaded, loaded);
        }),
        packet("a current load of the second operand", "v2.cur = vmem(r0++m0)", |state| {
            let loaded = state.at(0);
            state.vectors[3] = sum(&state.vectors[1], &loaded);
            state.vectors[2] = loaded;
            state.registers[0] = 256;
        }),
        packet("a current load under a false condition", "if (p1) v1.cur = vmem(r0+#3)", add),
        packet("a current load under a true condition", "if (!p1) v1.cur = vmem(r0+#3)", |state| {
            let loaded = state.at(3);
            state.vectors[3] = sum(&loaded, &state.vectors[2]);
            state.vectors[1] = loaded;
        }),
        routine(
            "a current load and a new store",
            "\tr11 = r16\n\t{ v3.sf = vadd(v1.sf,v2.sf); v1.cur = vmem(r0++#1); vmem(r11+#4) = v3.new }\n\tr11 = #0",
            |state| {
                state.registers[11] = 0;
                let loaded = state.at(0);
                state.vectors[3] = sum(&loaded, &state.vectors[2]);
                let value = state.vectors[3];
                state.set(4, &value);
                state.vectors[1] = loaded;
                state.registers[0] = 128;
            },
        ),
        packet("a plain load", "v1 = vmem(r0+#3)", |state| {
            add(state);
            state.vectors[1] = state.at(3);
        }),
        packet("an extended constant", "r6 = ##0x12345678", |state| {
            add(state);
            state.registers[6] = 0x1234_5678;
        }),
        packet("two short instructions in one word", "r6 = memw(r0+#4); r7 = #5", |state| {
            add(state);
            let word = state.memory[4..8].try_into().expect("four bytes");
            (state.registers[6], state.registers[7]) = (u32::from_le_bytes(word), 5);
        }),
    ]
}

pub fn branches() -> Vec<Checked> {
    let skip = "\tr7 = #77\n.Lx%:";
    let after = |set: u32| {
        move |state: &mut State| {
            add(state);
            if set != 0 {
                state.registers[7] = set;
            }
        }
    };
    let jump = |name: &str, beside: &str, taken: bool| {
        let body = format!("\t{{ v3.sf = vadd(v1.sf,v2.sf); {beside} }}\n{skip}");
        routine(name, &body, after(if taken { 0 } else { 77 }))
    };
    let call = |name: &str, prepare: &str, beside: &str, called: bool| {
        let body = format!(
            "{prepare}\t{{ v3.sf = vadd(v1.sf,v2.sf); {beside} }}\n\tjump .Lx%\n.Lf%:\n\tr7 = #88\n\tjumpr r31\n.Lx%:"
        );
        routine(name, &body, move |state| {
            after(if called { 88 } else { 0 })(state);
            state.registers[6] = 0;
        })
    };
    let to_routine = "\tr6 = add(pc,##.Lf%@PCREL)\n";
    let mut cases = vec![
        jump("a jump", "jump .Lx%", true),
        jump("a jump under a true condition", "if (p0) jump:nt .Lx%", true),
        jump("a jump under a false condition", "if (!p0) jump:t .Lx%", false),
        jump("a jump by a comparison", "if (r1!=#0) jump:t .Lx%", true),
        jump("a jump by a new value", "r5 = add(r7,#2); if (cmp.eq(r5.new,r8)) jump:t .Lx%", true),
        jump(
            "a jump by a new value that is another",
            "r5 = add(r7,#3); if (cmp.eq(r5.new,r8)) jump:t .Lx%",
            false,
        ),
    ];
    for checked in cases.iter_mut().skip(4) {
        let inner = std::mem::replace(&mut checked.expected, Box::new(|_| ()));
        let other = checked.case.name.ends_with("another");
        checked.expected = Box::new(move |state| {
            inner(state);
            state.registers[5] = if other { 10 } else { 9 };
        });
    }
    let mut more = vec![
        jump("a jump by a new predicate", "p2 = cmp.gt(r4,#3); if (p2.new) jump:t .Lx%", true),
        jump(
            "a jump by a new predicate that is false",
            "p2 = cmp.gt(r4,#3); if (!p2.new) jump:t .Lx%",
            false,
        ),
    ];
    for checked in &mut more {
        let inner = std::mem::replace(&mut checked.expected, Box::new(|_| ()));
        checked.expected = Box::new(move |state| {
            inner(state);
            state.scalar_predicates |= 0xff << 16;
        });
    }
    cases.append(&mut more);
    cases.extend([
        call("a call", "\tr6 = #0\n", "call .Lf%", true),
        call("a call under a true condition", "\tr6 = #0\n", "if (p0) call .Lf%", true),
        call("a call under a false condition", "\tr6 = #0\n", "if (p1) call .Lf%", false),
        call("a call through a register", to_routine, "callr r6", true),
        call("a call through a register under a false condition", to_routine, "if (!p0) callr r6", false),
    ]);
    for checked in cases.iter_mut().rev().take(2) {
        checked.case.body = checked.case.body.replace("\tr31 = r10", "\tr6 = #0\n\tr31 = r10");
    }
    cases.extend([
        jump("a return under a false condition", "if (p1) jumpr:nt r31", false),
        routine("a frame's end", "\tcall .Lf%\n\tjump .Lx%\n.Lf%:\n\tallocframe(#8)\n\t{ v3.sf = vadd(v1.sf,v2.sf); dealloc_return }\n.Lx%:", add),
        routine("a short return", "\tcall .Lf%\n\tjump .Lx%\n.Lf%:\n\t{ v3.sf = vadd(v1.sf,v2.sf); r7 = #1; jumpr r31 }\n.Lx%:", after(1)),
        routine("a return with a new store", "\tcall .Lf%\n\tjump .Lx%\n.Lf%:\n\t{ v3.sf = vadd(v1.sf,v2.sf); vmem(r0+#1) = v3.new; jumpr r31 }\n.Lx%:", |state| add_and_store(state, 1)),
    ]);
    cases
}

pub fn loops() -> Vec<Checked> {
    let doubled = |times: u32| {
        move |state: &mut State| {
            (0..times).for_each(|_| state.vectors[3] = sum(&state.vectors[3], &state.vectors[3]));
            state.registers[7] = 7 + times;
        }
    };
    let double = "v3.sf = vadd(v3.sf,v3.sf)";
    vec![
        routine(
            "a loop's start",
            &format!(
                "\t{{ v6.sf = vmax(v1.sf,v2.sf); loop0(.Ltop%,#4) }}\n.Ltop%:\n\t{{ {double}; r7 = add(r7,#1) }}:endloop0"
            ),
            move |state| {
                state.vectors[6] = larger(&state.vectors[1], &state.vectors[2]);
                doubled(4)(state);
            },
        ),
        routine(
            "a loop's count in a register",
            &format!(
                "\t{{ v6.sf = vmax(v1.sf,v2.sf); loop0(.Ltop%,r3) }}\n.Ltop%:\n\t{double}\n\tr7 = add(r7,#1)\n\t{{ nop; nop }}:endloop0"
            ),
            move |state| {
                state.vectors[6] = larger(&state.vectors[1], &state.vectors[2]);
                doubled(3)(state);
            },
        ),
        routine(
            "an address relative to the packet",
            "\t{ v3.sf = vadd(v1.sf,v2.sf); r6 = add(pc,##.Lx%@PCREL) }\n\tr7 = add(pc,##.Lx%@PCREL)\n.Lx%:\n\tr6 = sub(r6,r7)\n\tr7 = #0",
            |state| {
                add(state);
                (state.registers[6], state.registers[7]) = (0, 0);
            },
        ),
        routine(
            "an outer loop's end",
            &format!(
                "\tloop1(.Louter%,#2)\n.Louter%:\n\tloop0(.Linner%,#3)\n.Linner%:\n\tr7 = add(r7,#1)\n\t{{ nop; nop }}:endloop0\n\t{{ {double}; r5 = add(r5,#1); nop }}:endloop1"
            ),
            |state| {
                (0..2).for_each(|_| state.vectors[3] = sum(&state.vectors[3], &state.vectors[3]));
                (state.registers[5], state.registers[7]) = (7, 13);
            },
        ),
        routine(
            "the end of both loops",
            &format!(
                "\tloop1(.Louter%,#2)\n.Louter%:\n\tloop0(.Linner%,#3)\n.Linner%:\n\tr5 = r7\n\t{{ {double}; r7 = add(r7,#1); nop }}:endloop0:endloop1"
            ),
            |state| {
                (0..6).for_each(|_| state.vectors[3] = sum(&state.vectors[3], &state.vectors[3]));
                (state.registers[5], state.registers[7]) = (12, 13);
            },
        ),
    ]
}
