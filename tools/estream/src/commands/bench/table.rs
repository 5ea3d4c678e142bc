//! A bench report as a table: markdown for people, CSV for programs that take no JSON.

use super::{BenchReport, Row};
use estream::size::human;

/// A value of a row; what was not measured is nothing, never zero.
enum Cell {
    Text(String),
    Plain(Option<f64>),
    Ms(Option<f64>),
    Share(Option<f64>),
    Bytes(Option<u64>),
    Rate(Option<f64>),
}

/// A column: its name for people, its name for programs, its value.
type Column = (&'static str, &'static str, fn(&Row) -> Cell);

const COLUMNS: [Column; 19] = [
    ("test", "test", |row| Cell::Text(row.test.clone())),
    ("tokens/s", "tokens_per_second", |row| {
        Cell::Plain(row.warm.as_ref().map(|warm| warm.tokens_per_second))
    }),
    ("±", "tokens_per_second_sd", |row| {
        Cell::Plain(row.warm.as_ref().and_then(|warm| warm.tokens_per_second_sd))
    }),
    ("prefill", "prefill_ms", |row| Cell::Ms(row.warm.as_ref().map(|warm| warm.prefill_ms))),
    ("waiting", "io_wait_ms", |row| Cell::Ms(row.warm.as_ref().map(|warm| warm.io_wait_ms))),
    ("reading", "reading_ms", |row| Cell::Ms(row.overlap().map(|overlap| overlap.reading_ms))),
    ("computing", "computing_ms", |row| Cell::Ms(row.overlap().map(|overlap| overlap.computing_ms))),
    ("bubbles", "bubble_rate", |row| Cell::Share(row.overlap().map(|overlap| overlap.bubble_rate))),
    ("reads alone", "reads_alone_ms", |row| Cell::Ms(row.warm.as_ref().and_then(|warm| warm.reads_alone_ms))),
    ("resident", "resident_ms", |row| Cell::Ms(row.resident.map(|resident| resident.prefill_ms))),
    ("total/longer", "total_over_longer", |row| Cell::Plain(row.total_over_longer)),
    ("MAC/s", "macs_per_second", |row| Cell::Rate(row.resident.map(|resident| resident.macs_per_second))),
    ("read", "read_bytes", |row| Cell::Bytes(row.warm.as_ref().map(|warm| warm.read_bytes))),
    ("read/s", "read_bytes_per_second", |row| {
        let rate = row.warm.as_ref().and_then(|warm| warm.read_bytes_per_second);
        Cell::Bytes(rate.map(|rate| rate as u64))
    }),
    ("of the best", "share_of_best", |row| {
        Cell::Share(row.warm.as_ref().and_then(|warm| warm.share_of_best))
    }),
    ("requests", "requests", |row| Cell::Rate(row.warm.as_ref().map(|warm| warm.requests as f64))),
    ("cold first token", "cold_first_token_ms", |row| {
        Cell::Ms(row.cold.as_ref().map(|cold| cold.first_token_ms))
    }),
    ("cold prefill", "cold_prefill_ms", |row| Cell::Ms(row.cold.as_ref().map(|cold| cold.prefill_ms))),
    ("peak", "peak_bytes", |row| Cell::Bytes(row.cold.as_ref().and_then(|cold| cold.peak_bytes))),
];

/// The report as markdown.
#[must_use]
pub fn markdown(report: &BenchReport) -> String {
    let mut text = format!(
        "{}: {} device, {} kernels, {} threads, {} banks of {} experts, {} reads in flight, {} schedule, {} reads, {} pages\n\n",
        report.pack,
        report.device,
        report.kernels,
        report.threads,
        report.banks,
        report.group,
        report.depth,
        report.schedule,
        report.read_mode,
        report.pages
    );
    let names: Vec<_> = COLUMNS.iter().map(|(name, ..)| *name).collect();
    text += &format!("| {} |\n|{}\n", names.join(" | "), "---|".repeat(COLUMNS.len()));
    for row in &report.rows {
        let cells: Vec<_> = COLUMNS.iter().map(|(.., value)| for_people(value(row))).collect();
        text += &format!("| {} |\n", cells.join(" | "));
    }
    let storage = &report.storage;
    text += &format!(
        "\nstorage at its best: {}/s with requests of {}, {} in flight; {}/s into 4 KiB pages\n",
        human(storage.best_bytes_per_second as u64),
        human(storage.request_bytes),
        storage.depth,
        human(storage.small_pages_bytes_per_second as u64)
    );
    if report.rows.iter().any(|row| row.warm.as_ref().is_some_and(|warm| warm.read_bytes_expected.is_some()))
    {
        text += "every byte that was read was called for by the routes or counted as read in vain, and none was read twice\n";
    }
    if let Some(tokens) = report.io_bound_below_tokens {
        text += &format!("reads take longer than computing below {tokens:.0} tokens\n");
    }
    if let Some(cache) = report.page_cache {
        text += &format!("page cache before a cold run: {cache}\n");
    }
    text
}

/// The report as CSV; an empty field was not measured.
#[must_use]
pub fn csv(report: &BenchReport) -> String {
    let names: Vec<_> = COLUMNS.iter().map(|(_, name, _)| *name).collect();
    let mut text = names.join(",") + "\n";
    for row in &report.rows {
        let cells: Vec<_> = COLUMNS.iter().map(|(.., value)| for_programs(value(row))).collect();
        text += &(cells.join(",") + "\n");
    }
    text
}

fn for_people(cell: Cell) -> String {
    let text = match cell {
        Cell::Text(text) => Some(text),
        Cell::Plain(value) => {
            value.map(|value| if value < 10.0 { format!("{value:.3}") } else { format!("{value:.1}") })
        }
        Cell::Ms(value) => value.map(|value| format!("{value:.1} ms")),
        Cell::Share(value) => value.map(|value| format!("{:.1} %", 100.0 * value)),
        Cell::Bytes(value) => value.map(human),
        Cell::Rate(value) => value.map(|value| match value {
            value if value >= 1e9 => format!("{:.1} G", value / 1e9),
            value => format!("{value:.0}"),
        }),
    };
    text.unwrap_or_else(|| "–".to_owned())
}

fn for_programs(cell: Cell) -> String {
    let text = match cell {
        Cell::Text(text) => Some(text),
        Cell::Plain(value) | Cell::Ms(value) => value.map(|value| format!("{value:.3}")),
        Cell::Share(value) => value.map(|value| format!("{value:.5}")),
        Cell::Bytes(value) => value.map(|value| value.to_string()),
        Cell::Rate(value) => value.map(|value| format!("{value:.0}")),
    };
    text.unwrap_or_default()
}
