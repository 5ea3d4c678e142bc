//! A bench report as a table: markdown for people, CSV for programs that take no JSON.

use super::{BenchReport, Row};
use estream::size::human;

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
    text += "| test | tokens/s | prefill | waiting | reading | computing | bubbles | read | cold first token | cold prefill | peak |\n";
    text += "|---|---|---|---|---|---|---|---|---|---|---|\n";
    for row in &report.rows {
        text += &format!("| {} |\n", cells(row, &Words).join(" | "));
    }
    if let Some(tokens) = report.io_bound_below_tokens {
        text += &format!("\nreads take longer than computing below {tokens:.0} tokens\n");
    }
    if let Some(cache) = report.page_cache {
        text += &format!("page cache before a cold run: {cache}\n");
    }
    text
}

/// The report as CSV; an empty field was not measured.
#[must_use]
pub fn csv(report: &BenchReport) -> String {
    let mut text = String::from(
        "test,tokens_per_second,tokens_per_second_sd,prefill_ms,io_wait_ms,reading_ms,computing_ms,bubble_rate,read_bytes,\
         cold_first_token_ms,cold_prefill_ms,peak_bytes\n",
    );
    for row in &report.rows {
        text += &(cells(row, &Numbers).join(",") + "\n");
    }
    text
}

/// How numbers are written.
trait Style {
    fn speed(&self, mean: f64, sd: Option<f64>) -> Vec<String>;
    fn ms(&self, value: f64) -> String;
    fn rate(&self, value: f64) -> String;
    fn bytes(&self, value: u64) -> String;
    fn nothing(&self) -> String;
}

/// For people.
struct Words;
/// For programs.
struct Numbers;

impl Style for Words {
    fn speed(&self, mean: f64, sd: Option<f64>) -> Vec<String> {
        let sd = sd.map(|sd| format!(" ± {sd:.1}")).unwrap_or_default();
        vec![format!("{mean:.1}{sd}")]
    }
    fn ms(&self, value: f64) -> String {
        format!("{value:.1} ms")
    }
    fn rate(&self, value: f64) -> String {
        format!("{:.1} %", 100.0 * value)
    }
    fn bytes(&self, value: u64) -> String {
        human(value)
    }
    fn nothing(&self) -> String {
        "–".to_owned()
    }
}

impl Style for Numbers {
    fn speed(&self, mean: f64, sd: Option<f64>) -> Vec<String> {
        vec![format!("{mean:.3}"), sd.map(|sd| format!("{sd:.3}")).unwrap_or_default()]
    }
    fn ms(&self, value: f64) -> String {
        format!("{value:.3}")
    }
    fn rate(&self, value: f64) -> String {
        format!("{value:.5}")
    }
    fn bytes(&self, value: u64) -> String {
        value.to_string()
    }
    fn nothing(&self) -> String {
        String::new()
    }
}

fn cells(row: &Row, style: &dyn Style) -> Vec<String> {
    let ms = |value: Option<f64>| value.map_or_else(|| style.nothing(), |value| style.ms(value));
    let bytes = |value: Option<u64>| value.map_or_else(|| style.nothing(), |value| style.bytes(value));
    let (warm, cold) = (row.warm.as_ref(), row.cold.as_ref());
    let overlap = warm.and_then(|warm| warm.overlap);
    let mut cells = vec![row.test.clone()];
    match warm {
        Some(warm) => cells.extend(style.speed(warm.tokens_per_second, warm.tokens_per_second_sd)),
        None => cells.extend(style.speed(0.0, None).iter().map(|_| style.nothing())),
    }
    cells.extend([
        ms(warm.map(|warm| warm.prefill_ms)),
        ms(warm.map(|warm| warm.io_wait_ms)),
        ms(overlap.map(|overlap| overlap.reading_ms)),
        ms(overlap.map(|overlap| overlap.computing_ms)),
        overlap.map_or_else(|| style.nothing(), |overlap| style.rate(overlap.bubble_rate)),
        bytes(warm.map(|warm| warm.read_bytes)),
        ms(cold.map(|cold| cold.first_token_ms)),
        ms(cold.map(|cold| cold.prefill_ms)),
        bytes(cold.and_then(|cold| cold.peak_bytes)),
    ]);
    cells
}
