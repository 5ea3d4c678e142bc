//! One sound directory, and every lie about it that a number can tell.

use super::*;
use crate::format::Format;
use crate::pack::{Extent, Role};
use std::string::ToString as _;
use std::vec::Vec;
use zerocopy::IntoBytes as _;

const P: u64 = PAGE_BYTES;

/// The tables of a directory and the header over them, to be spoilt.
#[derive(Clone)]
struct Tables {
    header: Header,
    head: DirectoryHeader,
    layers: Vec<LayerEntry>,
    matrices: Vec<MatrixEntry>,
    permutations: Vec<u16>,
}

/// Three matrices on pages 10 to 14, embedding rows on 15 and 16, four records of 3 pages and three of 4 from 17 on.
fn sound() -> Tables {
    let mut header = Header::empty();
    header.directory = Extent { file: 2 * P, bytes: 0, crc: 0 };
    header.dense = Range { file: 10 * P, bytes: 5 * P };
    header.embedding = Range { file: 15 * P, bytes: 2 * P };
    header.experts = Range { file: 17 * P, bytes: 24 * P };
    header.record_bytes = 4 * P;
    (header.sparse_layers, header.experts_per_layer) = (2, 4);
    let matrix = |role: Role, layer, k, n, page: u64, pages: u64| MatrixEntry {
        role: role as u16,
        layer,
        k,
        n,
        reserved: 0,
        file: page * P,
        bytes: pages * P,
        format: Format::F32.to_bytes(),
    };
    // One tile of f32 is 4096 bytes.
    let part = |offset: u32, k, n| Part { offset, k, n, reserved: 0, format: Format::F32.to_bytes() };
    let layer = |layer, experts, page: u64, pages: u64, permutation| LayerEntry {
        layer,
        experts,
        file: page * P,
        record_bytes: pages * P,
        permutation,
        reserved: 0,
        gate: part(0, 20, 32),
        up: part(8192, 20, 32),
        down: part(4096, 32, 20),
    };
    Tables {
        header,
        head: DirectoryHeader {
            layers: 2,
            matrices: 3,
            permutations: 7,
            row_bytes: 128,
            dense: header.dense,
            embedding: header.embedding,
            embedding_format: Format::F32.to_bytes(),
        },
        layers: std::vec![layer(1, 4, 17, 3, 0), layer(3, 3, 29, 4, 4)],
        matrices: std::vec![
            matrix(Role::Router, 0, 64, 32, 10, 2),
            matrix(Role::Router, 1, 32, 33, 12, 2),
            matrix(Role::FinalNorm, NO_LAYER, 1024, 0, 14, 1),
        ],
        permutations: std::vec![0, 2, 3, 1, 2, 1, 0],
    }
}

/// What the check says of the tables, and the byte of the fault.
fn verdict(tables: &Tables) -> Result<(), (DirectoryFault, u64)> {
    let Tables { header, mut head, layers, matrices, permutations } = tables.clone();
    head.layers = layers.len() as u32;
    head.matrices = matrices.len() as u32;
    head.permutations = permutations.len() as u32;
    let bytes = [head.as_bytes(), layers.as_bytes(), matrices.as_bytes(), permutations.as_bytes()].concat();
    let directory = Directory::read(&bytes).expect("the lengths are right");
    let found = directory.check(&header).map_err(|fault| (fault, fault.offset(&directory, &header)));
    // Without a header everything but what the header says is found just the same.
    match (directory.check_tables(), found) {
        (Ok(()), Err((fault, _))) => assert_eq!(fault.table, DirectoryTable::Header),
        (alone, with) => assert_eq!(alone.err(), with.err().map(|(fault, _)| fault)),
    }
    found
}

fn spoilt(spoil: impl FnOnce(&mut Tables)) -> (DirectoryTable, usize, u64) {
    let mut tables = sound();
    spoil(&mut tables);
    let (fault, offset) = verdict(&tables).expect_err("a fault");
    assert!(fault.to_string().contains(fault.what));
    (fault.table, fault.index, offset)
}

#[test]
fn a_sound_directory_passes_with_the_largest_numbers_too() {
    verdict(&sound()).unwrap();
    let mut tables = sound();
    // 4096 experts with records of 1 GiB, in reverse order, behind what stood there.
    let last = LayerEntry {
        layer: 255,
        experts: 4096,
        file: 41 * P,
        record_bytes: 1 << 30,
        permutation: 7,
        ..tables.layers[1]
    };
    tables.layers.push(last);
    tables.permutations.extend((0..4096).rev());
    tables.header.experts.bytes += 4096 << 30;
    tables.header.record_bytes = 1 << 30;
    (tables.header.sparse_layers, tables.header.experts_per_layer) = (3, 4096);
    verdict(&tables).unwrap();
}

#[test]
fn a_header_that_says_something_else_is_named_by_its_field() {
    // Byte offsets as the format has them: two numbers, a size, four extents of 16 bytes, three ranges, W_e, two counts.
    type Lie = fn(&mut Header);
    let lies: [(Lie, u64); 9] = [
        (|h| h.dense.file += P, 88),
        (|h| h.dense.bytes -= P, 88),
        (|h| h.embedding.bytes += P, 104),
        (|h| h.experts.file -= P, 120),
        (|h| h.experts.bytes += P, 120),
        (|h| h.record_bytes = 3 * P, 136),
        (|h| h.record_bytes = 5 * P, 136),
        (|h| h.sparse_layers = 1, 144),
        (|h| h.experts_per_layer = 3, 148),
    ];
    for (lie, offset) in lies {
        assert_eq!(
            spoilt(|tables| lie(&mut tables.header)),
            (DirectoryTable::Header, offset as usize, offset)
        );
    }
}

#[test]
fn ranges_and_rows_that_cannot_be_are_faults_of_the_head() {
    let lies: [fn(&mut DirectoryHeader); 8] = [
        |h| h.dense.file += 1,
        |h| h.dense = Range { file: !(P - 1), bytes: P },
        |h| h.embedding.bytes += 512,
        |h| h.embedding.bytes = !(P - 1),
        |h| h.embedding.file += P,
        |h| h.row_bytes = 0,
        |h| h.row_bytes = 24,
        |h| h.embedding_format.as_mut_bytes()[0] = 9,
    ];
    for lie in lies {
        assert_eq!(spoilt(|tables| lie(&mut tables.head)), (DirectoryTable::Head, 0, 2 * P));
    }
}

#[test]
fn matrices_out_of_place_or_of_another_size_are_named() {
    type Lie = fn(&mut MatrixEntry);
    let lies: [(usize, Lie); 14] = [
        (0, |m| m.file -= P),
        (1, |m| m.file -= P),
        (1, |m| m.file += P),
        (1, |m| m.bytes -= P),
        (0, |m| m.bytes = !(P - 1)),
        (2, |m| m.bytes = 2 * P),
        (2, |m| m.k = 1025),
        (2, |m| m.k = 0),
        (1, |m| m.k = MAX_INPUTS),
        (0, |m| m.n = u32::MAX),
        (1, |m| m.layer = 0),
        (0, |m| m.role = 0),
        (0, |m| m.role = 32),
        (1, |m| m.layer = 256),
    ];
    for (index, lie) in lies {
        let at = 2 * P + 72 + 2 * 152 + 56 * index as u64;
        let found = spoilt(|tables| lie(&mut tables.matrices[index]));
        assert_eq!(found, (DirectoryTable::Matrices, index, at), "{lie:?}");
    }
    assert_eq!(spoilt(|tables| tables.matrices.truncate(2)).1, 2);
    let beyond = |tables: &mut Tables| {
        let next = MatrixEntry { role: Role::Head as u16, file: 15 * P, ..tables.matrices[2] };
        tables.matrices.push(next);
    };
    assert_eq!(spoilt(beyond), (DirectoryTable::Matrices, 3, 2 * P + 72 + 2 * 152 + 3 * 56));
}

#[test]
fn layers_out_of_place_and_parts_that_leave_or_overlap_are_named() {
    type Lie = fn(&mut LayerEntry);
    let lies: [(usize, Lie); 22] = [
        (0, |l| l.file += P),
        (1, |l| l.file -= P),
        (1, |l| l.layer = 1),
        (1, |l| l.layer = 256),
        (1, |l| l.layer = u32::MAX),
        (0, |l| l.experts = 0),
        (1, |l| l.experts = 4097),
        (0, |l| l.record_bytes = 0),
        (0, |l| l.record_bytes += 512),
        (0, |l| l.record_bytes = (1 << 30) + P),
        (0, |l| l.record_bytes = !(P - 1)),
        (0, |l| l.gate.offset = 64),
        (0, |l| l.gate.offset = 12_288),
        (0, |l| l.up.offset = u32::MAX - 127),
        (0, |l| l.up.offset = 4096),
        (0, |l| l.down.offset = 128),
        (1, |l| l.gate.k = 21),
        (1, |l| l.down.n = 0),
        (1, |l| (l.gate.n, l.up.n, l.down.k) = (0, 0, 0)),
        (1, |l| l.up.format.as_mut_bytes()[1] = 7),
        (1, |l| (l.gate.n, l.up.n, l.down.k) = (64, 64, 64)),
        (1, |l| l.permutation = 3),
    ];
    for (number, (index, lie)) in lies.into_iter().enumerate() {
        let found = spoilt(|tables| lie(&mut tables.layers[index]));
        assert_eq!(found, (DirectoryTable::Layers, index, 2 * P + 72 + 152 * index as u64), "lie {number}");
    }
    // A larger record moves what follows: the next layer is where the fault shows.
    assert_eq!(spoilt(|tables| tables.layers[0].record_bytes += P).1, 1);
}

#[test]
fn orders_that_are_no_permutations_are_named_by_their_entry() {
    let at = |index: u64| 2 * P + 72 + 2 * 152 + 3 * 56 + 2 * index;
    for (index, value) in [(1, 0), (3, 4), (4, 3), (6, 1), (0, u16::MAX)] {
        let (table, _, offset) = spoilt(|tables| tables.permutations[index] = value);
        assert_eq!(table, DirectoryTable::Permutations);
        // A repetition is found at its second place.
        assert!(offset >= at(index as u64), "{index}");
    }
    let longer = spoilt(|tables| tables.permutations.push(0));
    assert_eq!(longer, (DirectoryTable::Permutations, 7, at(7)));
    let shorter = spoilt(|tables| tables.permutations.truncate(6));
    assert_eq!(shorter, (DirectoryTable::Permutations, 6, at(6)));
}
