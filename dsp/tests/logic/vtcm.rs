//! The planner: buffers that live at once never overlap (lifetimes read off the step table), plans stay inside their
//! budget, improve with it, and the minimum is exact.

use estream_dsp::pipeline::{CHAIN_TILES, Cut, Matrix, Table};
use estream_dsp::vtcm::{FULL_ROWS, Packing, Plan, PlanError, Shape};
use estream_idl::format::Format;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;

/// Two bytes an element.
const HMX: Packing = Packing { block: 64, tile: 2048, output: 2 };
/// Four bytes an element.
const NATIVE: Packing = Packing { block: 128, tile: 4096, output: 4 };
/// Digits with their scale, and codes with scales and minima of half blocks.
const DIGITS: Packing = Packing { block: 84, tile: 1536, output: 4 };

fn shapes() -> impl Strategy<Value = Shape> {
    let format =
        || prop::sample::select(vec![Format::Q4_0, Format::Q8_0, Format::Q6_K, Format::F16, Format::F32]);
    let packing = prop::sample::select(vec![HMX, NATIVE, DIGITS]);
    (1usize..6000, 1usize..16000, format(), format(), format(), packing, 1usize..5, 0usize..700).prop_map(
        |(inputs, inner, gate, up, down, packing, lanes, max_rows)| Shape {
            inputs,
            inner,
            gate,
            up,
            down,
            packing,
            lanes,
            max_rows,
        },
    )
}

/// Steps in which a buffer holds something that is still needed, by name, from the table alone.
fn lifetimes(plan: &Plan, pairs: usize, strips: usize) -> BTreeMap<(&'static str, usize), Range<usize>> {
    let table = Table::new(0..pairs, plan.inward, 0..strips, plan.outward);
    let mut lives: BTreeMap<(&'static str, usize), Range<usize>> = BTreeMap::new();
    let mut touch = |name, index, step: usize| {
        let life = lives.entry((name, index)).or_insert(step..step + 1);
        life.end = step + 1;
    };
    touch("z", 0, 0);
    for (step, work) in table.steps().enumerate() {
        work.fetch.iter().for_each(|fetch| touch("c", fetch.c, step));
        if let Some(decode) = work.decode {
            touch("c", decode.c, step);
            touch("d", decode.d, step);
        }
        if let Some(multiply) = work.multiply {
            touch("d", multiply.d, step);
            touch("o", multiply.o, step);
            touch(if multiply.piece.matrix == Matrix::Down { "h" } else { "z" }, 0, step);
        }
        if let Some(activate) = work.activate {
            touch("h", 0, step);
            touch("o", activate.gate, step);
            touch("o", activate.up, step);
        }
        work.scatter.iter().for_each(|scatter| touch("o", scatter.o, step));
    }
    lives
}

/// Every property of one plan that does not need a second plan.
fn check(shape: &Shape, plan: &Plan) {
    let tiles = |width: usize| width.div_ceil(32);
    let (inward, outward) = (tiles(shape.inputs), tiles(shape.inner));
    // A part's bytes from the pack's definition: codes, extra bits, super-scales, scales, each plane padded to 128.
    let format_bytes = |format: Format, cut: Cut, part: usize| {
        let tiles = cut.part.min(cut.tiles - part * cut.part);
        let half_per_tile = (tiles * 64).next_multiple_of(128);
        match format {
            Format::Q4_0 => tiles * 512 + half_per_tile,
            Format::Q8_0 => tiles * 1024 + half_per_tile,
            Format::Q6_K => {
                tiles * (512 + 256) + (tiles.div_ceil(8) * 64).next_multiple_of(128) + half_per_tile
            }
            Format::F16 => tiles * 2048,
            _ => tiles * 4096,
        }
    };
    assert_eq!((plan.inward.tiles, plan.outward.tiles), (inward, outward));
    for cut in [plan.inward, plan.outward] {
        assert!(
            cut.part == cut.tiles || cut.part.is_multiple_of(CHAIN_TILES) && cut.part < cut.tiles,
            "{cut:?}"
        );
    }
    assert!(plan.rows.is_multiple_of(32) && plan.rows > 0);
    assert_eq!((plan.z_stride, plan.h_stride), (inward * shape.packing.block, outward * shape.packing.block));
    assert!(plan.z.bytes >= plan.rows * plan.z_stride);
    assert!(plan.h.bytes >= plan.rows * plan.h_stride);

    let lives = lifetimes(plan, tiles(shape.inner).min(5), tiles(shape.inputs).min(5));
    let always = 0..usize::MAX;
    let mut spans = vec![(plan.z, lives[&("z", 0)].clone()), (plan.h, lives[&("h", 0)].clone())];
    for lane in 0..plan.lanes {
        let lane = plan.lane(lane);
        for (name, buffers) in [("c", &lane.c[..]), ("d", &lane.d[..]), ("o", &lane.o[..])] {
            for (index, &span) in buffers.iter().enumerate() {
                spans.push((span, lives.get(&(name, index)).unwrap_or(&always).clone()));
            }
        }
        for (cut, formats) in [(plan.inward, &[shape.gate, shape.up][..]), (plan.outward, &[shape.down][..])]
        {
            for part in 0..cut.parts() {
                let largest = formats.iter().map(|&format| format_bytes(format, cut, part)).max().unwrap();
                assert!(lane.c.iter().all(|c| c.bytes >= largest), "a part does not fit C");
            }
            assert!(lane.d.iter().all(|d| d.bytes >= cut.part * shape.packing.tile), "D is too small");
        }
        assert!(lane.o.iter().all(|o| o.bytes >= plan.rows * 32 * shape.packing.output));
    }
    for (at, (span, life)) in spans.iter().enumerate() {
        assert!(span.offset.is_multiple_of(128) && span.range().end <= plan.bytes);
        for (other, other_life) in &spans[..at] {
            let together = life.start < other_life.end && other_life.start < life.end;
            let apart = span.range().end <= other.offset || other.range().end <= span.offset;
            assert!(apart || !together, "{span:?} and {other:?} live at once and overlap");
        }
    }
}

/// What is to be preferred, best last.
fn quality(plan: &Plan) -> [usize; 5] {
    [plan.lanes, plan.rows.min(FULL_ROWS), plan.inward.part, plan.outward.part, plan.rows]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn plans_are_sound_inside_their_budget_and_grow_with_it(
        shape in shapes(), budgets in prop::collection::vec(0u64..24 << 20, 2..6), forced in 0usize..6,
    ) {
        let most = shape.max_rows.max(1).next_multiple_of(32);
        let mut budgets = budgets;
        budgets.sort_unstable();
        let mut last = None;
        for budget in budgets {
            match Plan::new(&shape, budget, forced * 32) {
                Ok(plan) => {
                    check(&shape, &plan);
                    prop_assert!(plan.bytes as u64 <= budget);
                    prop_assert!(plan.lanes >= 1 && plan.lanes <= shape.lanes && plan.rows <= most);
                    if forced > 0 {
                        prop_assert_eq!(plan.rows, (forced * 32).min(most));
                    }
                    if let Some(last) = last {
                        prop_assert!(quality(&plan) >= last, "{:?} after {:?}", quality(&plan), last);
                    }
                    last = Some(quality(&plan));
                }
                Err(PlanError::Minimum { bytes }) => {
                    prop_assert!(last.is_none(), "a larger budget has no plan");
                    prop_assert!(bytes > budget);
                }
                Err(error) => prop_assert!(false, "{error:?}"),
            }
        }
    }

    #[test]
    fn the_minimum_is_exact(shape in shapes(), forced in 0usize..4) {
        let Err(PlanError::Minimum { bytes }) = Plan::new(&shape, 0, forced * 32) else { panic!("a plan of 0 bytes") };
        let plan = Plan::new(&shape, bytes, forced * 32).unwrap();
        check(&shape, &plan);
        prop_assert_eq!((plan.bytes as u64, plan.lanes), (bytes, 1));
        prop_assert_eq!(Plan::new(&shape, bytes - 1, forced * 32), Err(PlanError::Minimum { bytes }));
        if forced == 0 {
            prop_assert_eq!(plan.rows, 32);
        }
    }
}

const OLMOE: Shape = Shape {
    inputs: 2048,
    inner: 1024,
    gate: Format::Q4_0,
    up: Format::Q4_0,
    down: Format::Q4_0,
    packing: HMX,
    lanes: 1,
    max_rows: 4096,
};

#[test]
fn the_plans_of_two_models_are_those_worked_out_by_hand() {
    // OLMoE, fp16, 2 MiB: whole strips. C = 64·(512 + 64), D = 64·2,048, a row tile Z + H + 4·O = (64 + 32 + 4)·2,048.
    let plan = Plan::new(&OLMOE, 2 << 20, 0).unwrap();
    let fixed = 2 * (64 * 576 + 64 * 2048);
    assert_eq!((plan.inward, plan.outward), (Cut { tiles: 64, part: 64 }, Cut { tiles: 32, part: 32 }));
    assert_eq!(plan.rows, ((2 << 20) - fixed) / 204_800 * 32);
    assert_eq!(plan.bytes, fixed + plan.rows / 32 * 204_800);

    // Mixtral, fp16, 4 MiB: a down strip decodes to 896 KiB, two of them and 64 rows (2,310,144 B) do not fit. Two equal
    // parts do: 224 tiles, that is 129,024 B of C and 448 KiB of D, twice.
    let mixtral = Shape { inputs: 4096, inner: 14336, ..OLMOE };
    let plan = Plan::new(&mixtral, 4 << 20, 0).unwrap();
    assert_eq!((plan.outward, plan.inward), (Cut { tiles: 448, part: 224 }, Cut { tiles: 128, part: 128 }));
    assert_eq!(
        (plan.rows, plan.bytes),
        (64, 64 / 32 * (262_144 + 917_504 + 8_192) + 2 * (129_024 + 458_752))
    );
}

#[test]
fn questions_without_an_answer_are_refused() {
    assert_eq!(Plan::new(&OLMOE, 1 << 20, 48), Err(PlanError::Rows { rows: 48 }));
    for shape in [
        Shape { inputs: 0, ..OLMOE },
        Shape { inner: usize::MAX, ..OLMOE },
        Shape { lanes: 0, ..OLMOE },
        Shape { packing: Packing { tile: 0, ..HMX }, ..OLMOE },
        Shape { packing: Packing { tile: 100, ..HMX }, ..OLMOE },
        Shape { packing: Packing { block: 66, ..HMX }, ..OLMOE },
        Shape { packing: Packing { output: 9, ..HMX }, ..OLMOE },
    ] {
        assert_eq!(Plan::new(&shape, 1 << 20, 0), Err(PlanError::Shape));
    }
    let many =
        Shape { lanes: 65535, max_rows: usize::MAX, inputs: (1 << 24) - 1, inner: (1 << 24) - 1, ..OLMOE };
    assert!(matches!(Plan::new(&many, 8 << 20, 0), Err(PlanError::Minimum { .. })));
    let short = Plan::new(&Shape { lanes: 4, ..OLMOE }, 600 << 10, 0).unwrap();
    assert!(short.lanes < 4 && short.rows == 32, "lanes give way before the plan does: {short:?}");
}

#[test]
fn cuts_are_as_equal_as_chains_allow() {
    let cut = |tiles, limit| Cut::balanced(tiles, limit).part;
    assert_eq!(
        [cut(56, 32), cut(448, 416), cut(448, 448), cut(20, 32), cut(96, 64), cut(65, 64)],
        [32, 224, 448, 20, 64, 64]
    );
    assert_eq!(Cut::balanced(56, 32).parts(), 2);
    assert_eq!(cut(100, 0), 32, "a part is at least a chain");
}
