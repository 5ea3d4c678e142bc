//! The tuner's measurements on this machine: the storage's rate, then one request for each candidate G.
//!
//! Candidates are the powers of two up to E whose groups fit the largest budget. Each is run once, with the kernels and
//! threads that will be used, in an arena of a few banks: L, X and T^ne do not depend on how many there are. Nothing else
//! is run; the number of requests is part of the answer.

use crate::arena::{Arena, Banks};
use crate::engine::{Engine, NoRows, config, plan};
use crate::errors::{Error, Exit, Result};
use crate::memory;
use crate::model::Model;
use crate::observe::trace;
use crate::options::{Device, Options};
use crate::request::Request;
use estream_host::{FileRange, Pack, PageKind, time_reads};
use estream_idl::streaming::{DenseWeights, Schedule, Streaming};
use estream_tune::{GroupProfile, Profile, Rate, Rest, smallest_depth};
use std::path::Path;

/// Tokens of a profiling request, where the model's context holds so many.
pub const TOKENS: u32 = 1024;
/// Reads in flight that are tried.
const DEPTHS: [u32; 4] = [1, 2, 4, 8];
/// Bytes of a measurement of the storage, at least.
const RATE_BYTES: u64 = 192 << 20;
/// Banks of a profiling request beyond those that are being filled.
const SPARE_BANKS: u32 = 2;

/// What is told meanwhile: bytes read of bytes to read, about.
pub struct Watch<'a> {
    /// Called after every step.
    pub progress: &'a dyn Fn(u64, u64),
    /// Called with every engine that is about to run.
    pub running: &'a dyn Fn(&Engine),
}

/// Profiles the pack at `path` as `options` would run it, for budgets up to `budget` bytes.
///
/// # Errors
/// `budget-too-small` where not even single experts fit, and whatever opening and running the pack may meet.
pub fn profile(path: &Path, options: &Options, budget: u64, watch: &Watch<'_>) -> Result<Profile> {
    if options.device != Device::Native {
        let message =
            "only the native device can be profiled: the simulator's times are those of an emulator";
        return Err(Error::new("usage", Exit::Usage, message));
    }
    let model = Model::read(path)?;
    let tokens = model.context.min(TOKENS);
    let options = options.clone().max_tokens(tokens).max_requests(1).max_outputs(1).rows(false);
    let options =
        Options { streaming: Streaming { schedule: Schedule::CrossLayer, ..options.streaming }, ..options };
    let pack = Pack::open(path, options.verify, watch.progress)?;
    let candidates = candidates(path, &options, &model, budget)?;
    let mut done = 0;
    let passes = candidates.len() as u64 * model.expert_bytes;
    let total = passes + candidates.len() as u64 * DEPTHS.len() as u64 * RATE_BYTES;
    let mut rates = Vec::new();
    for &(group, _) in &candidates {
        for depth in DEPTHS {
            if depth == 1 || u64::from(depth * group) * model.record_bytes <= budget {
                rates.push(rate(&pack, group, depth, rates.len())?);
            }
            done += RATE_BYTES;
            (watch.progress)(done, total);
        }
    }
    let depth = smallest_depth(&rates).unwrap_or(1);
    let mut groups = Vec::new();
    for (group, rest) in candidates {
        let fits = budget.saturating_sub(rest.resident.min(rest.streamed.unwrap_or(u64::MAX)));
        let most = u32::try_from(fits / (u64::from(group) * model.record_bytes)).unwrap_or(u32::MAX);
        let banks = (depth + SPARE_BANKS).min(most);
        if banks >= depth {
            groups.push(observe(path, &pack, &options, (group, banks, depth), rest, budget, watch)?);
        }
        done += model.expert_bytes;
        (watch.progress)(done, total);
    }
    let dense_bytes = dense_bytes(&pack);
    let mut profile = Profile { tokens, record_bytes: model.record_bytes, dense_bytes, rates, depth, groups };
    profile.complete();
    Ok(profile)
}

/// The candidates of G that a budget could hold one group of, with the memory besides the arena.
fn candidates(path: &Path, options: &Options, model: &Model, budget: u64) -> Result<Vec<(u32, Rest)>> {
    let mut candidates = Vec::new();
    let mut least = u64::MAX;
    for group in (0..=16).map(|power| 1 << power).filter(|&group| group == 1 || group <= model.experts) {
        let rest = Rest {
            resident: beside_arena(path, options, model, group, DenseWeights::Resident)?,
            streamed: Some(beside_arena(path, options, model, group, DenseWeights::Streamed)?),
        };
        let one =
            rest.resident.min(rest.streamed.unwrap_or(u64::MAX)) + u64::from(group) * model.record_bytes;
        least = least.min(one);
        if one <= budget {
            candidates.push((group, rest));
        }
    }
    if candidates.is_empty() { Err(too_small(budget, least)) } else { Ok(candidates) }
}

/// A budget that nothing fits into, with the least that something does.
#[must_use]
pub fn too_small(budget: u64, minimum: u64) -> Error {
    let message =
        format!("a budget of {budget} bytes is too small: this model needs at least {minimum} bytes");
    Error::new("budget-too-small", Exit::Runtime, message)
}

/// Memory besides the arena with groups of `group`: what the plan says, and what the process itself holds.
fn beside_arena(
    path: &Path,
    options: &Options,
    model: &Model,
    group: u32,
    dense: DenseWeights,
) -> Result<u64> {
    let mut options = options.clone().arena(Arena::Group(group, Some(Banks::Count(1))));
    options.streaming.dense = dense;
    let cut = options.arena.cut(model)?;
    let plan = plan(path, &options.device, &config(&options, model, cut))?;
    let arena = plan.segments.bytes_of(estream_idl::address::Segment::Arena);
    let process = memory::resident().unwrap_or(0);
    Ok(plan.segments.total_bytes() + plan.private_bytes + plan.stack_bytes + process - arena)
}

/// The storage's rate for groups of `group` with `depth` reads in flight; each measurement reads another part of the pack.
fn rate(pack: &Pack, group: u32, depth: u32, measurement: usize) -> Result<Rate> {
    let header = pack.header();
    let bytes = (u64::from(group) * header.record_bytes).min(header.experts.bytes);
    let groups = (header.experts.bytes / bytes).max(1);
    let count = RATE_BYTES.div_ceil(bytes).max(2 * u64::from(depth));
    let range = |number: u64| -> FileRange {
        let number = (number + measurement as u64 * count) % groups;
        (header.experts.file + number * bytes, bytes as usize)
    };
    let ranges: Vec<_> = (0..count).map(range).collect();
    let taken = time_reads(pack, &ranges, depth, PageKind::Huge)?;
    let bytes_per_second = (count * bytes) as f64 / taken.as_secs_f64().max(1e-9);
    Ok(Rate { group, depth, bytes_per_second })
}

/// One request with groups of `group`.
fn observe(
    path: &Path,
    pack: &Pack,
    options: &Options,
    (group, banks, depth): (u32, u32, u32),
    rest: Rest,
    budget: u64,
    watch: &Watch<'_>,
) -> Result<GroupProfile> {
    // Each group by a request of its own, so that its time is its own.
    let options = options.clone().arena(Arena::Group(group, Some(Banks::Count(banks)))).depth(depth).merge(0);
    let fits = rest.resident + u64::from(group * banks) * pack.header().record_bytes <= budget;
    let options = options.dense(if fits { DenseWeights::Resident } else { DenseWeights::Streamed });
    let mut engine = Engine::open_with(path, &options, &|_, _| ())?;
    (watch.running)(&engine);
    let (tokens, vocab) = (options.max_tokens, engine.model().vocab);
    let ids: Vec<u32> = (0..tokens).map(|position| (position * 7919 + 13) % vocab).collect();
    let pass = engine.prefill_into(&[Request::next_token(ids)], &mut NoRows)?;
    engine.close()?;
    Ok(GroupProfile::observe(group, rest, &trace(&pass, pack, group)?))
}

/// Bytes of the dense weights of each layer with experts, those of layers without before it included.
fn dense_bytes(pack: &Pack) -> Vec<u64> {
    let tables = pack.tables();
    let mut from = 0;
    let layer = |entry: estream_idl::pack::LayerEntry| {
        let layers = from..=entry.layer;
        from = entry.layer + 1;
        let of_layers = tables.matrices.iter().filter(|matrix| layers.contains(&u32::from(matrix.layer)));
        of_layers.map(|matrix| matrix.bytes).sum()
    };
    tables.layers.iter().map(layer).collect()
}
