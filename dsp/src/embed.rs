//! Embedding: the pages that hold the batch's rows, asked for once each, in waves through a small staging segment.
//!
//! Rows lie end to end in the pack, so a row may straddle pages. Tokens are visited in the order of their ids; a row that
//! a wave cuts is assembled in one row buffer over two waves, since at most one row crosses a wave's end.

use crate::engine::Fault;
use crate::kernels::rows::decode_row;
use crate::mailbox::Purpose;
use crate::model::Embedding;
use crate::shared::Shared;
use crate::traffic::Traffic;
use estream_idl::address::{PAGE, Segment};
use estream_idl::status::Status;

/// Pages of the staging segment, and so of a wave.
pub const WAVE_PAGES: usize = 64;

/// Pages of the staging segment for a pass of at most `tokens` tokens.
#[must_use]
pub fn staging_pages(embedding: &Embedding, tokens: usize) -> usize {
    let row_pages = embedding.row_bytes.div_ceil(PAGE) + 1;
    tokens.saturating_mul(row_pages).clamp(1, WAVE_PAGES)
}

/// One wave: the distinct pages it holds, ascending, as pages of the embedding.
struct Wave {
    pages: [u32; WAVE_PAGES],
    count: usize,
}

impl Wave {
    fn end(&self) -> u32 {
        self.pages[..self.count].last().map_or(0, |&page| page + 1)
    }

    fn slot(&self, page: u32) -> Option<usize> {
        self.pages[..self.count].binary_search(&page).ok()
    }
}

fn pages_of(embedding: &Embedding, id: u32) -> core::ops::Range<u32> {
    let first = id as usize * embedding.row_bytes;
    (first / PAGE) as u32..(first + embedding.row_bytes).div_ceil(PAGE) as u32
}

/// Embeds `ids`: row t of `x` (rows of `width` elements) becomes the embedding of token t. `order` is scratch of one u32 a
/// token, `row` of `row_bytes`.
///
/// # Errors
/// What the mailbox or a load reports.
pub(crate) fn embed(
    embedding: &Embedding,
    staging: usize,
    ids: &[u32],
    order: &mut [u32],
    row: &mut [u8],
    width: usize,
    x: &mut [f32],
    traffic: &mut Traffic<'_>,
    shared: &Shared<'_>,
) -> Result<(), Fault> {
    order.iter_mut().zip(0..).for_each(|(entry, token)| *entry = token);
    order.sort_unstable_by_key(|&token| (ids[token as usize], token));
    let (mut next, mut next_page) = (0, 0);
    let mut done = 0;
    while done < order.len() {
        let mut wave = Wave { pages: [0; WAVE_PAGES], count: 0 };
        'fill: while next < order.len() {
            for page in pages_of(embedding, ids[order[next] as usize]) {
                if page >= next_page {
                    if wave.count == staging {
                        break 'fill;
                    }
                    wave.pages[wave.count] = page;
                    wave.count += 1;
                    next_page = page + 1;
                }
            }
            next += 1;
        }
        request(embedding, &wave, traffic)?;
        traffic.settle()?;
        done += finish_rows(embedding, &wave, ids, &order[done..], row, width, x, shared)?;
    }
    Ok(())
}

/// Asks for a wave's pages, neighbours in one load.
fn request(embedding: &Embedding, wave: &Wave, traffic: &mut Traffic<'_>) -> Result<(), Status> {
    let mut first = 0;
    while first < wave.count {
        let adjacent = |&at: &usize| wave.pages[at] == wave.pages[first] + (at - first) as u32;
        let end = (first..wave.count).take_while(adjacent).last().map_or(first, |last| last) + 1;
        let file = embedding.file + u64::from(wave.pages[first]) * PAGE as u64;
        traffic.mailbox.load(Purpose::Embed, Segment::Embed, first as u32, (end - first) as u32, file)?;
        traffic.loading += 1;
        first = end;
    }
    Ok(())
}

/// Copies what the wave holds of the rows of `order`, decodes those that it completes, and returns how many.
fn finish_rows(
    embedding: &Embedding,
    wave: &Wave,
    ids: &[u32],
    order: &[u32],
    row: &mut [u8],
    width: usize,
    x: &mut [f32],
    shared: &Shared<'_>,
) -> Result<usize, Status> {
    let mut finished = 0;
    while finished < order.len() {
        let id = ids[order[finished] as usize];
        let pages = pages_of(embedding, id);
        let first_byte = id as usize * embedding.row_bytes;
        for page in pages.clone() {
            // A page of an earlier wave has left its part in the row buffer already.
            let Some(slot) = wave.slot(page) else { continue };
            let bytes = shared.embedding_page(slot)?;
            let page_byte = page as usize * PAGE;
            let from = first_byte.max(page_byte);
            let to = (first_byte + embedding.row_bytes).min(page_byte + PAGE);
            row[from - first_byte..to - first_byte].copy_from_slice(&bytes[from - page_byte..to - page_byte]);
        }
        if pages.end > wave.end() {
            break;
        }
        let same = order[finished..].iter().take_while(|&&token| ids[token as usize] == id).count();
        let (&first, others) = order[finished..finished + same].split_first().ok_or(Status::Protocol)?;
        let at = first as usize * width;
        decode_row(embedding.format, width, row, &mut x[at..at + width]);
        for &token in others {
            x.copy_within(at..at + width, token as usize * width);
        }
        finished += same;
    }
    Ok(finished)
}
