//! Layouts for the matrix unit: inside the budget, apart from each other, and no chain over a border.

use estream_dsp::matrix::layout::{BIAS_BYTES, Layout, Operand, STRETCH, Shape, TARGET_BYTES, TILE_BYTES};
use estream_idl::format::Format;
use proptest::prelude::*;
use std::ops::Range;

/// All chains of an operand.
fn operand(operand: &Operand, row_tiles: usize) -> Vec<Range<usize>> {
    (0..row_tiles)
        .flat_map(|row| (0..operand.chains()).map(move |chain| (row, chain)))
        .map(|(row, chain)| {
            let at = operand.chain(row, chain);
            at..at + operand.chain_tiles(chain) * TILE_BYTES
        })
        .collect()
}

fn check(shape: &Shape<'_>, budget: usize, layout: &Layout) -> Result<(), TestCaseError> {
    prop_assert!(layout.bytes <= budget && layout.rows.is_multiple_of(32) && layout.rows > 0);
    let row_tiles = layout.rows / 32;
    prop_assert!(row_tiles == 1 || layout.inward.parts() <= 1 && layout.outward.parts() == 1);
    let mut chains = [operand(&layout.z, row_tiles), operand(&layout.h, row_tiles)].concat();
    let part = layout.inward.part.max(layout.outward.part);
    for d in layout.d {
        let cut = estream_dsp::matrix::layout::chains(d, part).map(|(_, range)| range);
        chains.extend(cut);
    }
    for chain in &chains {
        prop_assert!(chain.start.is_multiple_of(TILE_BYTES) && chain.len() <= 32 * TILE_BYTES);
        prop_assert_eq!(chain.start / STRETCH, (chain.end - 1) / STRETCH, "{:?} crosses", chain);
    }
    let c = |k: usize, format: &Format| format.strip(k * 32).bytes;
    let mut bytes = shape.formats.iter().map(|format| c(layout.outward.part, format)).max().unwrap_or(0);
    if let Some((_, formats)) = shape.inward {
        bytes = formats.iter().map(|format| c(layout.inward.part, format)).fold(bytes, usize::max);
    }
    let o = layout.o.map(|at| at..at + row_tiles * TILE_BYTES);
    prop_assert!(o.iter().all(|o| o.start.is_multiple_of(TILE_BYTES)));
    let mut all = [chains, o.to_vec()].concat();
    all.extend(layout.c.map(|at| at..at + bytes));
    all.push(layout.exponents..layout.exponents + 4 * layout.rows);
    all.push(layout.targets..layout.targets + TARGET_BYTES * layout.rows);
    all.push(0..BIAS_BYTES);
    all.sort_by_key(|range| range.start);
    for pair in all.windows(2) {
        prop_assert!(pair[0].end <= pair[1].start, "{:?} and {:?} overlap", pair[0], pair[1]);
    }
    prop_assert!(all.last().is_none_or(|last| last.end <= layout.bytes));
    Ok(())
}

const FORMATS: [Format; 4] = [Format::Q4_0, Format::Q4_K, Format::Q8_0, Format::F32];

proptest! {
    #[test]
    fn layouts_are_sound_and_refusals_exact(
        inputs in 1usize..5000,
        inner in 1usize..16000,
        gated in any::<bool>(),
        kinds in (0usize..4, 0usize..4, 0usize..4),
        budget in (64usize << 10)..(9 << 20),
        forced in 0usize..4,
        most in 1usize..600,
    ) {
        let formats = [FORMATS[kinds.0], FORMATS[kinds.1]];
        let outward = [FORMATS[kinds.2]];
        let inward = gated.then_some((inputs, formats));
        let shape = Shape { inward, inputs: inner, formats: &outward, max_rows: most };
        match Layout::new(&shape, budget, forced * 32) {
            Ok(layout) => {
                check(&shape, budget, &layout)?;
                prop_assert!(layout.rows <= most.next_multiple_of(32));
                if forced > 0 {
                    prop_assert_eq!(layout.rows, (forced * 32).min(most.next_multiple_of(32)));
                }
            }
            Err(needed) => {
                prop_assert!(needed > budget);
                let layout = Layout::new(&shape, needed, forced * 32).expect("what was asked for is enough");
                check(&shape, needed, &layout)?;
            }
        }
    }
}

#[test]
fn the_shapes_of_known_models_get_the_rows_they_should() {
    let shape = |inputs, inner| Shape {
        inward: Some((inputs, [Format::Q4_0; 2])),
        inputs: inner,
        formats: &[Format::Q4_0],
        max_rows: 512,
    };
    let rows =
        |inputs, inner, budget| Layout::new(&shape(inputs, inner), budget, 0).map(|layout| layout.rows);
    assert!(rows(2048, 1024, 8 << 20).expect("8 MiB") >= 512);
    assert!(rows(2048, 768, 2 << 20).expect("2 MiB") >= 64);
    // A down strip of 448 tiles decodes to 896 KiB: whole in 8 MiB, in parts in 2.
    let whole = Layout::new(&shape(4096, 14_336), 8 << 20, 0).expect("8 MiB");
    assert!(whole.rows >= 64 && whole.outward.parts() == 1, "{whole:?}");
    let parted = Layout::new(&shape(4096, 14_336), 2 << 20, 0).expect("2 MiB");
    assert!(parted.rows == 32 && parted.outward.parts() > 1, "{parted:?}");
}
