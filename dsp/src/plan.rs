//! What a session will need: choices clamped, sizes counted, nothing made yet.

use crate::block::Carver;
use crate::buffers::{Buffers, Sizes};
use crate::embed;
use crate::kernels::{self, Backend};
use crate::matrix::{self, Machine};
use crate::model::{FeedWeights, Model};
use crate::platform;
use crate::residency::MAX_LOAD;
use crate::topology::{self, Topology};
use crate::traffic::RESERVED_TICKETS;
use crate::window::Cut;
use estream_idl::address::{PAGE, SegmentPages, pages};
use estream_idl::call::{Config, Plan, Prepare};
use estream_idl::control::{CONTROL_PAGES, MAX_TICKETS};
use estream_idl::io::IoLayout;
use estream_idl::status::{Refusal, Status};
use estream_idl::streaming::{DenseWeights, Schedule};

/// Most threads of a session.
pub const MAX_THREADS: u32 = 64;
/// Most candidates of an output.
const MAX_TOP: u32 = 4096;
/// Most tokens of a pass: keeps every product of the sizes inside an address.
const MAX_TOKENS: u32 = 1 << 20;

/// A session that could be started.
pub struct Planned<'a> {
    /// The model.
    pub model: Model<'a>,
    /// The configuration after clamping.
    pub config: Config,
    /// The backend.
    pub backend: Backend,
    /// The io segment's layout.
    pub io: IoLayout,
    /// Counts of the private block.
    pub sizes: Sizes,
    /// Scratchpad budget in bytes.
    pub budget: u32,
    /// How dense weights are cut into stages, where they are streamed.
    pub cut: Option<Cut>,
    /// What the host is told.
    pub reply: Plan,
}

fn refuse(status: Status, needed: u64, limit: u64) -> Refusal {
    Refusal { needed, limit, ..status.into() }
}

/// Bytes before the private block's tables: the recipe and directory, copied.
#[must_use]
pub const fn prepare_bytes(prepare: &Prepare<'_>) -> usize {
    (prepare.recipe.len() + prepare.directory.len()).next_multiple_of(PAGE)
}

/// Plans a session.
///
/// # Errors
/// A refusal with the numbers that would be possible.
pub fn plan<'a>(prepare: &Prepare<'a>) -> Result<Planned<'a>, Refusal> {
    let model = Model::read(prepare.recipe, prepare.directory)?;
    let config = clamp(&prepare.config, &model)?;
    let backend = kernels::choose(config.kernels).ok_or(Refusal::from(Status::NoKernels))?;
    let budget = if config.scratch == 0 { platform::scratch_bytes() } else { config.scratch };
    let (mut scratch, mut row_chunk, mut record_bytes) = (0, config.max_tokens.next_multiple_of(32), 0u64);
    for index in 0..model.layers() {
        let feed = model.layer(index)?.feed;
        if let FeedWeights::Sparse(sparse) = &feed {
            record_bytes = record_bytes.max(sparse.store.record_bytes as u64);
        }
        for unit in topology::units(&feed).iter().flatten() {
            let topology = Topology::new(unit, &backend, &config, budget)?;
            scratch = scratch.max(topology.place.bytes());
            row_chunk = row_chunk.min(topology.place.rows() as u32);
        }
    }
    let mut words = scratch.div_ceil(4);
    if backend.matrix {
        // The scratchpad is the unit's as a whole, and other operators than the gated ones have to fit it.
        let needed = matrix::least_bytes(&model, &config);
        if needed > budget as usize {
            return Err(refuse(Status::ScratchTooSmall, needed as u64, budget.into()));
        }
        scratch = budget as usize;
        words = Machine::scratch_words(scratch);
    }
    // A group is asked for at once, so its loads must fit the tickets that are left to banks.
    let records_a_load = (MAX_LOAD as u64).checked_div(record_bytes).unwrap_or(1).max(1);
    let most = records_a_load * (MAX_TICKETS - RESERVED_TICKETS) as u64;
    if u64::from(config.group) > most {
        return Err(refuse(Status::BadConfig, config.group.into(), most));
    }
    let io = IoLayout::new(&config, model.recipe.vocab).ok_or(Refusal::from(Status::BadConfig))?;
    let arena = record_bytes * u64::from(config.group) * u64::from(config.banks);
    let staging = embed::staging_pages(&model.embedding, config.max_tokens as usize);
    let counted = |pages: u64| {
        u32::try_from(pages).map_err(|_| refuse(Status::NoMemory, pages * PAGE as u64, u64::from(u32::MAX)))
    };
    let cut = match config.streaming.dense {
        DenseWeights::Resident => None,
        DenseWeights::Streamed => Some(Cut::new(&model)?),
    };
    let dense = cut.as_ref().map_or(model.directory.header.dense.bytes, |cut| cut.segment_bytes() as u64);
    let segments = SegmentPages([
        CONTROL_PAGES,
        counted(io.pages as u64)?,
        counted(pages(dense))?,
        counted(staging as u64)?,
        counted(pages(arena))?,
    ]);
    let sizes = Sizes::new(&model, &backend, &config, words);
    let mut carver = Carver::measuring();
    Buffers::layout(&mut carver, &sizes, model.recipe.kinds.len())?;
    let reply = Plan {
        segments,
        private_bytes: carver.bytes() + prepare_bytes(prepare) as u64,
        stack_bytes: u64::from(config.threads) * platform::STACK_BYTES as u64,
        group: config.group,
        banks: config.banks,
        depth: config.depth,
        threads: config.threads,
        kernels: backend.set,
        row_chunk,
        scratch_bytes: scratch as u32,
    };
    Ok(Planned { model, config, backend, io, sizes, budget, cut, reply })
}

fn clamp(config: &Config, model: &Model<'_>) -> Result<Config, Refusal> {
    let limits = [
        (u64::from(config.max_tokens), u64::from(MAX_TOKENS)),
        (u64::from(config.max_requests), u64::from(config.max_tokens)),
        (u64::from(config.depth), u64::from(u32::MAX)),
    ];
    for (asked, most) in limits {
        if asked == 0 || asked > most {
            return Err(refuse(Status::BadConfig, asked, most));
        }
    }
    for (asked, most) in [(config.max_outputs, MAX_TOKENS), (config.top_k, MAX_TOP)] {
        if asked > most {
            return Err(refuse(Status::BadConfig, asked.into(), most.into()));
        }
    }
    let layers = || model.experts().map(|experts| experts.experts);
    let group = config.group.min(layers().max().unwrap_or(0));
    if group == 0 || config.banks == 0 {
        let entries = model.directory.layers.iter().map(|entry| entry.record_bytes).max().unwrap_or(0);
        return Err(refuse(Status::ArenaTooSmall, entries, 0));
    }
    let groups: u64 = layers().map(|experts| u64::from(experts.div_ceil(group))).sum();
    let banks = match config.streaming.schedule {
        Schedule::Resident => u32::MAX.into(),
        _ => u64::from(config.banks),
    };
    let banks =
        u32::try_from(banks.min(groups)).map_err(|_| refuse(Status::BadConfig, groups, u32::MAX.into()))?;
    let threads = if config.threads == 0 { platform::processors() } else { config.threads };
    Ok(Config {
        group,
        banks,
        depth: config.depth.min(banks),
        threads: threads.clamp(1, MAX_THREADS),
        ..*config
    })
}
