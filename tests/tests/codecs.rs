//! Every ggml type through the packer and the kernels, against the values of somebody else's dequantiser.
//!
//! A model is built around the blocks, packed, read as the firmware reads it, and its strips and rows are decoded by the
//! firmware's own kernels. The values must be the same bits (but for the sign of a zero).

use estream_dsp::kernels::rows::decode_row;
use estream_dsp::kernels::{Backend, Kernels, Strip, choose};
use estream_dsp::model::{ExpertStore, FeedWeights, LayerWeights, Matrix, MixerWeights, Model};
use estream_idl::call::KernelSet;
use estream_idl::format::Format;
use estream_idl::pack::{Extent, Header};
use estream_tests::codecs::{self, Rows, TYPES};
use estream_tests::gguf::Parts;
use estream_tests::{fixture, oracle};
use std::path::Path;
use zerocopy::FromBytes;

/// Rows taken of a tensor of the goldens.
const ROWS: usize = 40;

fn backends() -> Vec<Backend> {
    [KernelSet::SCALAR, KernelSet::AVX2].into_iter().filter_map(choose).collect()
}

/// Packs a model and returns the pack's bytes.
fn packed(model: &Parts, folder: &Path) -> Vec<u8> {
    let (input, output) = (folder.join("model.gguf"), folder.join("model.estream"));
    std::fs::write(&input, model.write(32)).expect("the model can be written");
    let options = estream_pack::Options { order: None, progress: &|_, _| () };
    estream_pack::convert(&input, &output, &options).unwrap_or_else(|error| panic!("{error}"));
    std::fs::read(output).expect("the pack")
}

fn extent(pack: &[u8], extent: Extent) -> &[u8] {
    &pack[extent.file as usize..][..extent.bytes as usize]
}

/// A matrix of strips as rows of f32, `[n][k]`.
fn decoded(kernels: &dyn Kernels, format: Format, k: usize, n: usize, bytes: &[u8]) -> Vec<f32> {
    let (strip, tiles) = (format.strip(k), k.div_ceil(32));
    let mut values = vec![f32::NAN; n * k];
    let mut columns = vec![f32::NAN; tiles * 32 * 32];
    for (index, bytes) in bytes.chunks_exact(strip.bytes).take(n.div_ceil(32)).enumerate() {
        kernels.decode(Strip { format, k, bytes }, 0..tiles, &mut columns);
        for column in 0..32.min(n - 32 * index) {
            for i in 0..k {
                values[(32 * index + column) * k + i] = columns[32 * i + column];
            }
        }
    }
    values
}

/// Where weights differ, or nothing.
fn difference(got: &[f32], wanted: &[f32]) -> Option<String> {
    assert_eq!(got.len(), wanted.len());
    let at = got.iter().zip(wanted).position(|(got, wanted)| got != wanted)?;
    Some(format!("element {at} is {:e}, not {:e}", got[at], wanted[at]))
}

/// The experts of a sparse layer.
fn store(layer: &LayerWeights) -> &ExpertStore {
    let FeedWeights::Sparse(sparse) = &layer.feed else { panic!("the model's layers have experts") };
    &sparse.store
}

/// Packs `rows` in all their places and compares what comes out.
fn check(rows: &Rows, folder: &Path, what: &str) {
    let pack = packed(&codecs::model(rows, false), folder);
    let header = Header::read_from_prefix(&pack).expect("a header").0;
    let model = Model::read(extent(&pack, header.recipe), extent(&pack, header.directory))
        .unwrap_or_else(|refusal| panic!("{what}: {refusal:?}"));
    let layer = model.layer(0).unwrap_or_else(|refusal| panic!("{what}: {refusal:?}"));
    let MixerWeights::Attention(attention) = &layer.mixer else { panic!("{what}: the model has attention") };
    let store = store(&layer);
    let queries = rows.cycle(32);
    for Backend { set, kernels, .. } in backends() {
        let set = set.name();
        let dense = |matrix: &Matrix, wanted: &[f32], name: &str| {
            let bytes = &pack[header.dense.file as usize + matrix.at..];
            let got = decoded(kernels, matrix.format, matrix.k, matrix.n, bytes);
            assert_eq!(difference(&got, wanted), None, "{what} {set}: {name}");
        };
        dense(&model.head, &rows.values, "head");
        dense(&attention.query, &queries.values, "query");
        for (matrix, name) in [(&store.unit.gate, "gate"), (&store.unit.up, "up")] {
            let bytes = &pack[store.file as usize + matrix.at..];
            let got = decoded(kernels, matrix.format, matrix.k, matrix.n, bytes);
            assert_eq!(difference(&got, &rows.values), None, "{what} {set}: {name}");
        }
    }
    let (embedding, mut row) = (model.embedding, vec![0.0; rows.width]);
    for (index, wanted) in rows.values.chunks_exact(rows.width).enumerate() {
        let at = embedding.file as usize + index * embedding.row_bytes;
        decode_row(embedding.format, rows.width, &pack[at..], &mut row);
        assert_eq!(difference(&row, wanted), None, "{what}: row {index} of the embedding");
    }
}

/// Packs `rows` as the down matrix of an expert as wide as they are.
fn check_down(rows: &Rows, folder: &Path, what: &str) {
    let rows = rows.cycle(32);
    let pack = packed(&codecs::model(&rows, true), folder);
    let header = Header::read_from_prefix(&pack).expect("a header").0;
    let model = Model::read(extent(&pack, header.recipe), extent(&pack, header.directory))
        .unwrap_or_else(|refusal| panic!("{what}: {refusal:?}"));
    let layer = model.layer(0).unwrap_or_else(|refusal| panic!("{what}: {refusal:?}"));
    let store = store(&layer);
    let Matrix { format, k, n, at } = store.unit.down;
    for Backend { set, kernels, .. } in backends() {
        let got = decoded(kernels, format, k, n, &pack[store.file as usize + at..]);
        assert_eq!(difference(&got, &rows.values), None, "{what} {}: down", set.name());
    }
}

#[test]
fn packed_weights_are_those_of_the_package_gguf() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    for (name, _) in TYPES {
        for rows in codecs::rows(name) {
            let what = format!("{name} of width {}", rows.width);
            check(&rows, folder.path(), &what);
            check_down(&rows, folder.path(), &what);
        }
    }
}

#[test]
fn the_oracle_s_own_dequantiser_agrees_with_the_package_gguf() {
    for (name, kind) in TYPES {
        for rows in codecs::rows(name) {
            let values = oracle::dequantise(kind, &rows.stored).expect("the oracle knows the type");
            assert_eq!(difference(&values, &rows.values), None, "{name} of width {}", rows.width);
        }
    }
}

/// Plain elements come in any width: an expert's inner width need not fill tiles.
#[test]
fn plain_experts_of_odd_widths_are_packed() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    for name in ["F32", "F16", "BF16"] {
        let all = &codecs::rows(name)[0];
        let element = all.stored.len() / all.values.len();
        let (width, rows) = (50, 20);
        let (stored, values) =
            (all.stored[..width * rows * element].to_vec(), all.values[..width * rows].to_vec());
        check_down(&Rows { kind: all.kind, width, stored, values }, folder.path(), name);
    }
}

/// Every tensor of the goldens that llama.cpp's quantiser made, of architectures that cannot be run yet too.
#[test]
fn the_tensors_of_the_goldens_decode_right() {
    let Some(shared) = fixture::shared() else { return };
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let mut checked = 0;
    for entry in std::fs::read_dir(shared.join("goldens/wild")).expect("the goldens") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "gguf") {
            continue;
        }
        for piece in Parts::read(&std::fs::read(&path).expect("a golden")).tensors {
            let width = piece.shape[0] as usize;
            if piece.shape.len() < 2 || !width.is_multiple_of(32) {
                continue;
            }
            let count = piece.shape[1..].iter().product::<u64>() as usize;
            let stored = piece.data[..piece.data.len() / count * count.min(ROWS)].to_vec();
            let values = oracle::dequantise(piece.kind, &stored).expect("the oracle knows the type");
            let what = format!("{}: {}", path.display(), piece.name);
            check(&Rows { kind: piece.kind, width, stored, values }, folder.path(), &what);
            checked += 1;
        }
    }
    assert!(checked > 200, "{checked} tensors");
}
